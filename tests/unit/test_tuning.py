"""Tuning: a setting that changes at run time counts at once, and nonsense changes nothing."""

from __future__ import annotations

import pytest

from penstock.broker.admin import AdminError
from penstock.broker.alarms import Thresholds
from penstock.config import Config
from penstock.credit import Spec
from penstock.tuning import Tuning, thresholds
from tests.unit.fakes import House


class Desk:
    def __init__(self) -> None:
        self.house = House()
        self.broker = self.house.broker
        self.config = Config()
        self.tuning = Tuning(self.config, self.broker)

    def value(self, name: str) -> object:
        (found,) = [one["value"] for one in self.tuning.all() if one["name"] == name]
        return found


def test_a_delay_counts_for_the_channels_and_queues_that_are_there_and_for_those_to_come() -> None:
    desk = Desk()
    peer = desk.house.peer()
    vhost = desk.broker.vhosts["/"]
    peer.open(1)
    desk.house.queue("before")
    desk.tuning.change("faults.channel_delay_us", "70")
    desk.tuning.change("faults.queue_delay_us", "90")
    peer.open(2)
    assert {channel.mailbox.delay_us for channel in desk.broker.ack_timeout.channels} == {70}
    desk.tuning.change("faults.channel_delay_us", "0")
    desk.house.queue("after")
    assert {queue.mailbox.delay_us for queue in vhost.queues.values()} == {90}
    desk.tuning.change("faults.queue_delay_us", "0")
    assert {queue.mailbox.delay_us for queue in vhost.queues.values()} == {0}
    assert {channel.mailbox.delay_us for channel in desk.broker.ack_timeout.channels} == {0}


def test_the_defaults_of_config_and_of_alarms_are_the_same() -> None:
    assert thresholds(Config()) == Thresholds()


def test_a_change_of_credit_counts_for_all_links_at_once() -> None:
    desk = Desk()
    peer = desk.house.peer()
    peer.open()
    link = peer.reader.lanes[1].link
    desk.tuning.change("credit.reader_channel", "10,5")
    assert link.credit == 10
    desk.tuning.change("credit.reader_channel_bytes", "1000,500")
    assert link.credit_bytes == 1000
    desk.tuning.change("credit.channel_queue", "20,2")
    desk.tuning.change("credit.channel_queue_bytes", "2000,1000")
    assert desk.broker.channel_queue.messages == Spec(20, 2)
    assert desk.broker.channel_queue.bytes == Spec(2000, 1000)
    assert desk.value("credit.channel_queue") == "20,2"


@pytest.mark.parametrize(
    ("name", "text", "field", "value"),
    [
        ("alarms.memory_bytes_high", "1000", "memory_bytes_high", 1000),
        ("alarms.memory_relative_high", "0.9", "memory_relative_high", 0.9),
        ("alarms.disk_free_bytes_low", "7", "disk_free_bytes_low", 7),
        ("alarms.disk_free_relative_low", "1.5", "disk_free_relative_low", 1.5),
        ("alarms.blocked_deadline_s", "30", "blocked_deadline_s", 30),
    ],
)
def test_the_settings_of_alarms_follow(name: str, text: str, field: str, value: float) -> None:
    desk = Desk()
    desk.tuning.change(name, text)
    assert getattr(desk.broker.alarms.thresholds, field) == value
    assert desk.value(name) == text


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("alarms.memory_relative_high", "1.5", "setting alarms.memory_relative_high: 1.5 is out of range: 0 to 1"),
        ("alarms.memory_relative_high", "nan", "setting alarms.memory_relative_high: nan is out of range: 0 to 1"),
        ("alarms.blocked_deadline_s", "soon", "setting alarms.blocked_deadline_s: 'soon' is not a number"),
        ("alarms.disk_free_bytes_low", "-1", "setting alarms.disk_free_bytes_low: -1 is out of range: at least 0"),
        ("limits.channel_max", "5", "setting limits.channel_max is read at the start only"),
        ("credit.none", "5", "there is no setting 'credit.none'"),
    ],
)
def test_nonsense_is_refused_with_a_reason_and_changes_nothing(name: str, text: str, reason: str) -> None:
    desk = Desk()
    before = desk.tuning.all()
    with pytest.raises(AdminError) as refused:
        desk.tuning.change(name, text)
    assert str(refused.value) == reason
    assert refused.value.missing == (name == "credit.none")
    assert desk.tuning.all() == before
    assert desk.broker.alarms.thresholds == Thresholds()


def test_a_further_setting_can_be_plugged_in() -> None:
    desk = Desk()
    heard: list[str] = []
    desk.tuning.follow("credit.channel_queue", lambda: heard.append(str(desk.config.spec("credit.channel_queue"))))
    desk.tuning.change("credit.channel_queue", "8,4")
    assert heard == ["8,4"]
