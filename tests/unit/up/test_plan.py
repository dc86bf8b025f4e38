"""`penstock up` without a process: the words for each part, where the broker is reached, how pauses grow."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from penstock.up.crew import Aide
from penstock.up.part import Family, Happenings, Part
from penstock.up.plan import HOPELESS_PAUSE_MAX_S, PAUSE_MAX_S, STEADY_S, Plan, pause_s

PLAN = Plan("127.0.0.1:0", None, "127.0.0.1:15672", Path("data"), Path("/var/tables"))


def test_the_page_shows_the_tables_that_the_pipeline_writes() -> None:
    plan = replace(PLAN, settings=["management.tables=elsewhere"])
    assert plan.broker()[-1] == "management.tables=/var/tables"  # of two the last counts
    words = plan.pipeline()
    assert words[words.index("--tables") + 1] == "/var/tables"


def test_what_was_not_said_is_left_to_serve() -> None:
    assert "--listen-tls" not in PLAN.broker()
    assert "--config" not in PLAN.broker()
    more = replace(PLAN, listen_tls="0.0.0.0:5671", config=Path("p.toml")).broker()
    assert more[more.index("--listen-tls") + 1] == "0.0.0.0:5671"
    assert more[more.index("--config") + 1] == "p.toml"


@pytest.mark.parametrize(
    ("ready", "address"),
    [
        ("ready: amqp 127.0.0.1:5672, management http://127.0.0.1:15672/", "amqp://guest:guest@127.0.0.1:5672"),
        ("ready: amqp 0.0.0.0:40001", "amqp://guest:guest@127.0.0.1:40001"),
        ("ready: amqp [::]:5672, amqps [::]:5671", "amqp://guest:guest@[::1]:5672"),
        ("ready: amqp [fe80::1]:5672", "amqp://guest:guest@[fe80::1]:5672"),
        ("ready: amqp broker.local:5672", "amqp://guest:guest@broker.local:5672"),
    ],
)
def test_the_broker_is_reached_where_it_says_it_is(ready: str, address: str) -> None:
    assert PLAN.address(ready) == address


def test_an_address_that_was_given_counts() -> None:
    assert replace(PLAN, uri="amqps://a:b@host").address("ready: amqp 127.0.0.1:1") == "amqps://a:b@host"


@pytest.fixture
def aide() -> Aide:
    return Aide(Part("pipeline", Happenings(), Family()), [], 1.0)


def test_pauses_grow_up_to_a_minute() -> None:
    assert [pause_s(failures, PAUSE_MAX_S) for failures in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert pause_s(10_000, PAUSE_MAX_S) == PAUSE_MAX_S


def test_a_part_that_was_ready_for_long_begins_with_the_shortest_pause(aide: Aide) -> None:
    aide.began()
    assert aide.ended(10.0) == 1
    assert aide.due_s == 11.0
    aide.began()
    assert aide.ended(12.0) == 2
    aide.began()
    aide.ready_s = 20.0
    assert aide.ended(20.0 + STEADY_S) == 1


def test_a_part_that_is_ready_and_then_fails_soon_waits_longer_each_time_up_to_a_minute(aide: Aide) -> None:
    pauses = []
    for began_s in range(0, 8000, 1000):
        aide.began()
        aide.ready_s = began_s + 2 * STEADY_S  # its start does not count, however long it takes
        pauses.append(aide.ended(began_s + 3 * STEADY_S - 1))
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]


def test_a_part_that_is_never_ready_waits_longer_each_time_however_long_it_tries(aide: Aide) -> None:
    pauses = []
    for began_s in range(0, 12_000, 1000):
        aide.began()
        pauses.append(aide.ended(began_s + 2 * STEADY_S))
    assert pauses == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600]
    assert pauses[-1] == HOPELESS_PAUSE_MAX_S


def test_a_part_that_is_ready_at_last_does_not_wait_so_long_any_more(aide: Aide) -> None:
    for began_s in range(0, 12_000, 1000):
        aide.began()
        aide.ended(began_s + 1)
    aide.began()
    aide.ready_s = 20_001
    assert aide.ended(20_002) == PAUSE_MAX_S
    aide.began()
    aide.ready_s = 21_001
    assert aide.ended(21_001 + STEADY_S) == 1
