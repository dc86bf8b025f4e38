"""The printer of `penstock up`: whole lines, who speaks, and a reader that does not read."""

from __future__ import annotations

import json
import os

import pytest

from penstock.up.printer import LINES_MAX, Printer, tagged


def test_a_line_tells_who_speaks(capfd: pytest.CaptureFixture[str]) -> None:
    printer = Printer()
    printer.exact("ready: amqp 127.0.0.1:1")
    printer.line("broker", "a line")
    printer.say("warning", "the pipeline is away")
    printer.close(60)
    found = capfd.readouterr()
    assert found.out == "ready: amqp 127.0.0.1:1\n"
    first, second = found.err.splitlines()
    assert first == "broker   | a line"
    assert second.startswith("up       | 20")
    assert second.endswith("Z warning the pipeline is away")


def test_as_json_a_line_keeps_its_fields() -> None:
    assert json.loads(tagged("broker", '{"event": "listening"}')) == {"part": "broker", "event": "listening"}
    assert json.loads(tagged("demo", "no JSON")) == {"part": "demo", "text": "no JSON"}
    assert json.loads(tagged("demo", "17")) == {"part": "demo", "text": "17"}


@pytest.mark.parametrize("as_json", [False, True])
def test_a_reader_that_does_not_read_stops_nobody_and_is_told_what_it_missed(as_json: bool) -> None:
    readable, writable = os.pipe()
    printer = Printer(as_json, stderr=writable)
    for _ in range(3 * LINES_MAX):
        printer.line("broker", "x" * 80)  # far more than a pipe holds: none of these may wait
    whole = json.dumps({"part": "broker", "text": "x" * 80}) if as_json else f"broker   | {'x' * 80}"
    shown = missed = 0
    with open(readable, "rb") as pipe:
        while shown + missed < 3 * LINES_MAX:
            line = pipe.readline().decode().rstrip("\n")
            if "lines are left out" in line:
                text = json.loads(line)["text"] if as_json else line.partition(" | ")[2]
                missed += int(text.split()[0])
            else:
                assert line == whole
                shown += 1
        printer.close(60)
    os.close(writable)
    assert missed


def test_a_reader_that_is_gone_stops_nobody() -> None:
    readable, writable = os.pipe()
    os.close(readable)
    printer = Printer(stderr=writable)
    printer.line("broker", "nobody hears this")
    printer.close(60)
    os.close(writable)
