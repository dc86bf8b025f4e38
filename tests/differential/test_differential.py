"""One script, two brokers: what Penstock says to each case is what RabbitMQ 3.10.8 was recorded to say.

Where Penstock differs on purpose, differences.py has what it says instead, and that is held too. With RabbitMQ
installed, the recordings are held against a live one; otherwise that test is skipped, visibly.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import pytest

from penstock.perf.rabbitmq import NotInstalled
from tests.differential.admin import PenstockAdmin
from tests.differential.differences import DIFFERENCES
from tests.differential.player import play_all
from tests.differential.rabbit import running_target
from tests.differential.recording import all_cases, areas, read_recorded
from tests.differential.script import Target
from tests.differential.transcript import Transcript
from tests.wire.live import ROOT, LiveBroker

pytestmark = pytest.mark.timeout(900)  # the first test plays the cases of all

CASES: Final = all_cases()
RECORDED: Final = read_recorded()
CASES_MIN: Final = 300


def selected(request: pytest.FixtureRequest) -> list[str]:
    """The cases this run of pytest asks for: with -k, not all need to be played."""
    marks = (getattr(item, "callspec", None) for item in request.session.items)
    return [name for mark in marks if mark is not None and (name := mark.params.get("name")) in CASES]


@pytest.fixture(scope="module")
def said_by_penstock(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Transcript]]:
    """All selected cases, played to one broker."""
    with LiveBroker(data=tmp_path_factory.mktemp("penstock")) as broker:
        target = Target("Penstock", broker.port, PenstockAdmin(broker))
        yield play_all(target, [CASES[name] for name in dict.fromkeys(selected(request))])


def show(transcript: Transcript) -> list[str]:
    return [f"{stream}: {line}" for stream in sorted(transcript) for line in transcript[stream]]


@pytest.mark.parametrize("name", CASES)
def test_penstock_says_what_rabbitmq_says(name: str, said_by_penstock: dict[str, Transcript]):
    said, recorded = said_by_penstock[name], RECORDED[name]
    difference = DIFFERENCES.get(name)
    if difference is None:
        assert show(said) == show(recorded)
        return
    assert show(said) != show(recorded), f"{name} differs no longer: take it out of differences.py"
    assert show(said) == show(recorded | difference.instead)


@pytest.mark.timeout(900)
def test_the_recordings_are_what_rabbitmq_says():
    try:
        with running_target() as target:
            said = play_all(target, CASES.values())
    except NotInstalled as reason:
        pytest.skip(str(reason))
    differing = {name: (show(said[name]), show(RECORDED[name])) for name in CASES if said[name] != RECORDED[name]}
    assert not differing


def test_every_case_is_recorded_and_every_recording_has_its_case():
    assert set(RECORDED) == set(CASES)


def test_there_are_at_least_300_cases():
    assert len(CASES) >= CASES_MIN


def test_every_deliberate_difference_is_about_a_case_and_has_a_reason():
    assert not set(DIFFERENCES) - set(CASES)
    assert all(difference.why and difference.instead for difference in DIFFERENCES.values())


def test_the_document_counts_the_cases_of_every_area():
    text = (ROOT / "docs" / "differential.md").read_text("utf-8")
    told = {name: int(count) for name, count in re.findall(r"^\| `(\w+)` \| (\d+) \|", text, re.MULTILINE)}
    assert told == {area.name: len(area.cases) for area in areas()}
    assert f"{len(CASES)} cases" in text
