"""The rows of `penstock top`, from two looks at the API."""

from __future__ import annotations

import io

from rich.console import Console

from penstock.console.site import Row
from penstock.console.top import duration, lines, ordered, picture

BEFORE: Row = {
    "at_ns": 1_000_000_000,
    "stages": [{"id": "connection a", "kind": "connection", "name": "a", "received": 100}],
    "links": [],
}
NOW: Row = {
    "at_ns": 3_000_000_000,
    "stages": [
        {
            "id": "connection a",
            "kind": "connection",
            "name": "a",
            "received": 500,
            "share_1m": 0.93,
            "blocked_for_s": 4.0,
            "blocked_by": [{"stage": "channel a (1)", "alarm": None}, {"stage": None, "alarm": "memory"}],
            "mailbox": 0,
        },
        {"id": "channel a (1)", "kind": "channel", "received": 7, "share_1m": 0.0, "blocked_by": [], "mailbox": 12},
        {"id": "queue q", "kind": "queue", "received": 7, "share_1m": 0.5, "saturated": True, "messages": 70},
    ],
    "links": [
        {"upstream": "connection a", "downstream": "channel a (1)", "credit": 0, "initial": 400},
        {"upstream": "connection a", "downstream": "channel a (2)", "credit": 300, "initial": 400},
    ],
    "alarms": [{"source": "memory", "reason": "low on memory"}],
    "verdicts": [{"sentence": "a is held back by its channel."}],
}


def test_rates_are_since_the_last_look_and_a_new_stage_has_none():
    a, channel, _ = lines(NOW, BEFORE)
    assert (a.rate, channel.rate) == (200.0, 0.0)
    assert [line.rate for line in lines(NOW, None)] == [0.0, 0.0, 0.0]


def test_a_row_says_what_the_stage_waits_for_and_its_scarcest_credit():
    a, channel, q = lines(NOW, BEFORE)
    assert a.blocked_by == "channel a (1), memory alarm"
    assert a.credit == "0/400"
    assert (channel.blocked_by, channel.credit) == ("", "")
    assert q.blocked_by == "confirms held"


def test_each_sort_puts_its_greatest_first():
    found = lines(NOW, BEFORE)
    assert [line.name for line in ordered(found, "blocked")] == ["connection a", "queue q", "channel a (1)"]
    assert ordered(found, "mailbox")[0].name == "channel a (1)"
    assert ordered(found, "rate")[0].name == "connection a"
    assert [line.name for line in ordered(found, "name")] == ["channel a (1)", "connection a", "queue q"]


def test_the_picture_has_alarms_stages_and_sentences_and_fits_a_small_screen():
    console = Console(width=160, file=io.StringIO())
    with console.capture() as captured:
        console.print(picture(NOW, BEFORE, "blocked", 12, "http://here:15672"))
    shown = captured.get()
    assert "3 stages, 1 blocked, 1 connection held back" in shown
    assert "alarm: memory: low on memory" in shown
    assert "a is held back by its channel." in shown
    assert "93%" in shown
    many: Row = {**NOW, "stages": [{"id": f"queue {at}", "kind": "queue"} for at in range(50)]}
    with console.capture() as captured:
        console.print(picture(many, None, "name", 10, "http://here:15672"))
    assert "… and 47 more" in captured.get()


def test_durations_are_short():
    assert [duration(seconds) for seconds in (0.02, 41.4, 300)] == ["20 ms", "41 s", "5 min"]


def test_a_name_is_shown_as_it_is_and_cannot_command_the_terminal():
    out = io.StringIO()
    stage: Row = {"id": "queue [/red]\x1b[2J", "kind": "queue", "blocked_by": [{"stage": "queue [/b]"}]}
    console = Console(file=out, width=120, height=40)
    console.print(picture({**NOW, "stages": [stage]}, None, "blocked", 40, "here"))
    assert r"queue [/red]\x1b[2J" in out.getvalue()
    assert "queue [/b]" in out.getvalue()
