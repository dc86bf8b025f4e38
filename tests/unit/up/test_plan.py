"""The plan of `penstock up`: the words for each part, where the broker is reached, how pauses grow."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from penstock.up.crew import Aide
from penstock.up.part import Family, Happenings, Part
from penstock.up.plan import PAUSE_MAX_S, STEADY_S, Plan, pause_s

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


def test_pauses_grow_up_to_a_minute() -> None:
    assert [pause_s(failures) for failures in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert pause_s(10_000) == PAUSE_MAX_S


def test_a_part_that_was_well_for_long_begins_with_the_shortest_pause() -> None:
    aide = Aide(Part("pipeline", Happenings(), Family()), [], 1.0)
    assert [aide.ended(10.0), aide.ended(11.0)] == [1, 2]
    assert aide.due_s == 13.0
    aide.began_s = 20.0
    assert aide.ended(20.0 + STEADY_S) == 1
