"""Outlet: a task's messages on their way to a real broker, which blocks, refuses, cuts and dies."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.client.uri import Uri, parse_uri
from penstock.spark import outlet as outlet_module
from penstock.spark.encoder import Encoder, Outgoing, Plan, Stamp
from penstock.spark.outlet import KEPT_MAX, NotPublished, Outlet, close_kept
from tests.everyday.cable import Cable
from tests.spark.readback import declare, drain, read_stream
from tests.wire.live import LiveBroker, ServeProcess, free_port
from tests.wire.test_alarms import set_memory
from tests.wire.waiting import wait_until

PERSISTENT = b"\x10\x00\x02"  # flags and values of a delivery mode


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    yield
    close_kept()


@pytest.fixture
def live() -> Iterator[LiveBroker]:
    with LiveBroker() as broker:
        yield broker


@pytest.fixture(scope="module", params=["penstock", "rabbitmq"])
def either(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a broker, Penstock and Debian's RabbitMQ in turn."""
    if request.param == "penstock":
        process = ServeProcess(tmp_path_factory.mktemp("serve"))
        yield process.uri
        process.kill()
        return
    yield request.getfixturevalue("rabbitmq")


def rows(count: int, exchange: str = "", key: str = "q", start: int = 0) -> Iterator[Outgoing]:
    return ((row, exchange, key, PERSISTENT, b"%d" % row) for row in range(start, start + count))


def make(uri: str | Uri, window: int = 100, mandatory: bool = False) -> Outlet:
    return Outlet(parse_uri(uri) if isinstance(uri, str) else uri, window, mandatory, "task 7")


def bodies(uri: str, queue: str = "q") -> list[int]:
    return [int(message.body) for message in drain(uri, queue)]


def sink_connections(live: LiveBroker) -> int:
    return live.call(
        lambda: sum(one.client_properties.get("connection_name") == "spark sink" for one in live.connections())
    )


def stamped(bodies: Iterator[int] | range, batch: int = 0) -> Iterator[Outgoing]:
    """Rows with ids, as a streaming query's are."""
    encoder = Encoder(Plan(("body",), "", "q"), Stamp("query", batch, 0))
    for body in bodies:
        yield from encoder.encode(pa.record_batch([pa.array([b"%d" % body])], names=["body"]))


def test_all_rows_are_in_the_queue_in_order_when_flush_returns(either: str, name: str):
    declare(either, name)
    outlet = make(either)
    outlet.publish(rows(1000, key=name))
    outlet.publish(rows(500, key=name, start=1000))
    outlet.flush()
    assert bodies(either, name) == list(range(1500))


def test_the_next_task_uses_the_same_connection(live: LiveBroker):
    declare(live.uri, "q")
    for start in (0, 300, 600):
        outlet = make(live.uri)
        outlet.publish(rows(300, start=start))
        outlet.flush()
        outlet.drop()
        assert sink_connections(live) == 1
    assert bodies(live.uri) == list(range(900))


def test_a_kept_connection_that_was_cut_meanwhile_is_replaced(live: LiveBroker):
    declare(live.uri, "q")
    for start in (0, 300):
        outlet = make(live.uri)
        outlet.publish(rows(300, start=start))
        outlet.flush()
        live.cut_all()
    assert bodies(live.uri) == list(range(600))


def test_an_exchange_that_does_not_exist_is_named(either: str):
    with pytest.raises(NotPublished, match=r"task 7: .*404 NOT_FOUND - no exchange 'nowhere' in vhost '/'"):
        publish_all(make(either), rows(10, exchange="nowhere"))


def test_after_an_error_the_connection_is_not_kept(live: LiveBroker):
    with pytest.raises(NotPublished):
        publish_all(make(live.uri), rows(10, exchange="nowhere"))
    wait_until(lambda: sink_connections(live) == 0)


def test_what_no_queue_wants_is_named_with_its_row_if_it_is_mandatory(either: str, name: str):
    declare(either, name, name, "good")
    messages = [*rows(5, name, "good"), *rows(1, name, "bad", start=5), *rows(5, name, "good", start=6)]
    told = rf"row 5 of the partition: .*exchange '{name}' with routing key 'bad': .*312"
    with pytest.raises(NotPublished, match=told):
        publish_all(make(either, mandatory=True), messages)
    publish_all(make(either), messages)
    assert 5 not in bodies(either, name)


def test_what_a_queue_refuses_is_named_with_its_row(either: str, name: str):
    declare(either, name, arguments={"x-max-length": 3, "x-overflow": "reject-publish"})
    publish_all(make(either), rows(3, key=name))
    told = rf"rows 0, 1, 2 and 7 more of the partition: .*routing key '{name}': .*refused"
    with pytest.raises(NotPublished, match=told):
        publish_all(make(either), rows(10, key=name))


def test_properties_that_fit_no_frame_are_named_with_their_row(live: LiveBroker):
    with pytest.raises(NotPublished, match="task 7: row 0 of the partition: properties of 200000 bytes"):
        publish_all(make(live.uri), [(0, "", "q", bytes(200_000), b"")])


def test_a_connection_that_is_cut_costs_no_row(either: str, name: str):
    declare(either, name)
    with Cable(parse_uri(either).port) as cable:
        publish_all(make(cable.uri), breaking(rows(3000, key=name), (500, 501, 1700, 2999), lambda: cut_cable(cable)))
    found = bodies(either, name)
    assert set(found) == set(range(3000))
    assert len(found) <= 3000 + 4 * 100, "only what was not confirmed is sent again, a window at most"


@pytest.mark.parametrize("seed", range(3))
def test_rows_with_ids_come_exactly_once_wherever_connections_are_cut(seed: int, tmp_path: Path):
    chance = random.Random(seed)
    with LiveBroker(data=tmp_path) as live:
        declare(live.uri, "q")
        for batch in range(2):
            cuts = sorted(chance.sample(range(3000), 6))
            messages = stamped(range(3000 * batch, 3000 * (batch + 1)), batch)
            publish_all(make(live.uri, window=chance.choice((1, 50, 1000))), breaking(messages, cuts, live.cut_all))
        assert bodies(live.uri) == list(range(6000))


def test_a_batch_that_is_sent_again_by_another_task_comes_once(tmp_path: Path):
    with LiveBroker(data=tmp_path) as live:
        declare(live.uri, "q")
        for count in (700, 300, 1000):
            publish_all(make(live.uri), stamped(range(count)))
        publish_all(make(live.uri), stamped(range(1000, 1500), batch=1))
        assert bodies(live.uri) == list(range(1500))


def test_a_stream_drops_what_is_sent_again_too(tmp_path: Path):
    with LiveBroker(data=tmp_path) as live:
        declare(live.uri, "q", arguments={"x-queue-type": "stream"})
        for count in (700, 300, 1000):
            publish_all(make(live.uri), breaking(stamped(range(count)), (150, 290), live.cut_all))
        publish_all(make(live.uri), stamped(range(1000, 1500), batch=1))
        assert [int(message.body) for message in read_stream(live.uri, "q", b"1499")] == list(range(1500))


def test_one_row_that_waits_for_its_confirm_does_not_make_a_task_keep_all_that_follow(live: LiveBroker):
    declare(live.uri, "q")
    declare(live.uri, "slow")
    live.suspend("slow")
    outlet = make(live.uri, window=50)
    outlet.publish(rows(1, key="slow"))
    outlet.publish(rows(5000, start=1))
    assert len(outlet._sent) <= 2 * 50
    live.release("slow")
    outlet.flush()
    assert (bodies(live.uri, "slow"), bodies(live.uri)) == ([0], list(range(1, 5001)))


def test_a_body_of_many_frames_arrives_whole(either: str, name: str):
    declare(either, name)
    large = bytes(range(256)) * 4000
    publish_all(make(either), [(0, "", name, PERSISTENT, large), (1, "", name, PERSISTENT, b"")])
    assert [message.body for message in drain(either, name)] == [large, b""]


def test_only_a_few_connections_are_kept(live: LiveBroker):
    declare(live.uri, "q")
    for window in range(1, KEPT_MAX + 3):
        publish_all(make(live.uri, window), rows(10))
    wait_until(lambda: sink_connections(live) == KEPT_MAX)


def test_rows_that_a_full_queue_refused_are_not_lost_when_they_are_sent_again(live: LiveBroker):
    declare(live.uri, "q", arguments={"x-max-length": 5, "x-overflow": "reject-publish"})
    found: list[int] = []
    for attempt in range(4):
        try:
            publish_all(make(live.uri), stamped(range(15)))
        except NotPublished:
            assert attempt < 2
        found += bodies(live.uri)
    assert found == list(range(15))


def test_a_broker_that_is_killed_and_comes_back_has_every_row_once(tmp_path: Path):
    first = ServeProcess(tmp_path, "--listen", f"127.0.0.1:{free_port()}")
    outlet = make(first.uri)
    messages = stamped(range(4000))
    try:
        declare(first.uri, "q")
        outlet.publish(islice(messages, 2000))
    finally:
        first.kill()
    second: list[ServeProcess] = []
    starter = threading.Thread(
        target=lambda: second.append(ServeProcess(tmp_path, "--listen", f"127.0.0.1:{first.port}"))
    )
    starter.start()
    try:
        publish_all(outlet, messages)
        assert bodies(first.uri) == list(range(4000))
    finally:
        starter.join()
        second[0].kill()


def test_a_blocked_broker_is_waited_for_and_the_log_says_so(live: LiveBroker, caplog: pytest.LogCaptureFixture):
    declare(live.uri, "q")
    set_memory(live, 1)
    outlet = make(live.uri)
    with caplog.at_level(logging.WARNING, "penstock.spark"):
        task = threading.Thread(target=publish_all, args=(outlet, rows(500)))
        task.start()
        wait_until(lambda: "blocks publishers (low on memory" in caplog.text)
        assert task.is_alive()
        set_memory(live, 0)
        task.join(60)
    assert not task.is_alive()
    assert "takes messages again" in caplog.text
    assert bodies(live.uri) == list(range(500))


def test_no_broker_is_an_error_that_names_the_address_after_a_little_patience(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(outlet_module, "FIRST_OUTAGE_S", 0.2)
    with pytest.raises(NotPublished, match=r"task 7: no broker at 127.0.0.1:1: connection refused"):
        publish_all(make(Uri("127.0.0.1", 1)), rows(1))


def test_a_wrong_password_is_an_error_at_once_that_does_not_show_it(live: LiveBroker):
    uri = Uri("127.0.0.1", live.port, "guest", "secret")
    with pytest.raises(NotPublished, match="refused the login of 'guest'") as caught:
        publish_all(make(uri), rows(1))
    assert "secret" not in str(caught.value)


def test_a_broker_that_cuts_every_connection_is_given_up(live: LiveBroker):
    declare(live.uri, "q")
    live.suspend("q")  # nothing is confirmed
    outlet = make(live.uri)
    outlet.publish(rows(50))
    task = Caught(outlet.flush)
    while task.is_alive():
        live.cut_all()
        task.join(0.02)
    assert "5 connections lost, nothing confirmed" in str(task.error)


class Caught(threading.Thread):
    """Runs a function, and has its error."""

    def __init__(self, function: Callable[[], None]) -> None:
        super().__init__()
        self._function = function
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self._function()
        except BaseException as error:
            self.error = error


def cut_cable(cable: Cable) -> None:
    cable.unplug()
    cable.plug()


def breaking(messages: Iterator[Outgoing], places: Sequence[int], cut: Callable[[], None]) -> Iterator[Outgoing]:
    """These messages, and a cut connection before those at these places."""
    for place, message in enumerate(messages):
        if place in places:
            cut()
        yield message


def publish_all(outlet: Outlet, messages: Iterator[Outgoing] | list[Outgoing]) -> None:
    """As a sink does it."""
    try:
        outlet.publish(messages)
        outlet.flush()
    finally:
        outlet.drop()
