"""kill -9 under load: what was confirmed is there, once and in order, and nothing else is.

Publishers and consumers of all kinds work on queues with mixed options until the process is killed at a random moment;
the next one, on the same directory, is looked through. The rules are in tests/crash/history.py.
More rounds: CRASH_ROUNDS=200. A failed run is repeated, as far as chance allows, with the CRASH_SEED it names.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.rounds import ROUNDS, SEED, Site


@pytest.mark.timeout(max(300, ROUNDS * 45))
def test_a_killed_broker_comes_back_with_every_confirmed_message_once_and_in_order(tmp_path: Path) -> None:
    print(f"CRASH_SEED={SEED}")
    site = Site(tmp_path, SEED)
    site.run(ROUNDS)
    print(dict(site.history.counts))
    assert site.history.counts["confirmed"], "every process was killed before it confirmed anything"


@pytest.mark.timeout(max(300, ROUNDS * 45))
def test_after_a_power_loss_every_message_that_was_confirmed_is_there(tmp_path: Path) -> None:
    """What was not synced is lost, or any sectors of it are there; and the process dies at any operation on files."""
    print(f"CRASH_SEED={SEED}")
    site = Site(tmp_path, SEED, power_loss=True)
    site.run(ROUNDS)
    print(dict(site.history.counts))
    assert site.history.counts["confirmed"]


@pytest.mark.timeout(max(300, ROUNDS * 45))
def test_after_a_power_loss_a_dead_letter_is_in_one_of_its_two_queues(tmp_path: Path) -> None:
    """It was gone from both when its removal came before it in the journal, or its body was not synced yet."""
    print(f"CRASH_SEED={SEED}")
    site = Site(tmp_path, SEED, power_loss=True)
    site.focus_on_letters()
    site.run(ROUNDS)


def test_a_disk_that_says_it_synced_and_did_not_is_noticed(tmp_path: Path) -> None:
    """Else the test above would mean nothing."""
    site = Site(tmp_path, SEED, power_loss=True, lies=True)
    with pytest.raises(AssertionError, match="was confirmed and never settled, and is not there"):
        site.run(20)


def test_a_broker_that_lives_on_has_every_message_once_and_in_order(tmp_path: Path) -> None:
    print(f"CRASH_SEED={SEED}")
    site = Site(tmp_path, SEED)
    site.run_one_life(3)
    assert site.history.counts["confirmed"]
