"""What a part has left behind is found and ended, whoever dies in the middle of the look. No process is real."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Sequence

import pytest

from penstock.up import descent

OWN = os.getpid()


class Machine:
    """Its processes at each look: number and parent. Who is `dead` has died since the look."""

    def __init__(self, looks: Sequence[dict[int, int]], dead: set[int]) -> None:
        self.turn = threading.Lock()
        self.looks = list(looks)
        self.dead = dead
        self.killed: list[int] = []

    def parents(self) -> dict[int, int]:
        return self.looks.pop(0)

    def waitpid(self, pid: int, options: int) -> tuple[int, int]:
        assert options == os.WNOHANG
        assert self.turn.locked(), "another thread could wait for it before it is killed"
        return (pid, 0) if pid in self.dead else (0, 0)

    def kill(self, pid: int, number: int) -> None:
        assert number == signal.SIGKILL
        assert self.turn.locked()
        self.killed.append(pid)
        if pid in self.dead or not self.looks[0].get(pid):
            raise ProcessLookupError


def clear(
    monkeypatch: pytest.MonkeyPatch, *looks: dict[int, int], dead: Sequence[int] = (), grace_s: float = 1e9
) -> Machine:
    """A look for strays that finds this; process 1 is known."""
    machine = Machine(looks, set(dead))
    monkeypatch.setattr(descent, "parents", machine.parents)
    monkeypatch.setattr(os, "waitpid", machine.waitpid)
    monkeypatch.setattr(os, "kill", machine.kill)
    monkeypatch.setattr(descent, "LOOK_S", 0.0)
    descent.clear(lambda: {1}, lambda: grace_s, machine.turn)
    return machine


def test_nobody_is_waited_for_but_children_that_are_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not clear(monkeypatch, {1: OWN, 20: 1, 21: 20}).looks


def test_who_was_left_behind_is_waited_for_and_killed_after_the_grace_time(monkeypatch: pytest.MonkeyPatch) -> None:
    left = {1: OWN, 20: OWN}
    assert clear(monkeypatch, left, left, {1: OWN}).killed == []
    assert clear(monkeypatch, left, left, {1: OWN}, grace_s=0.0).killed == [20, 20]


def test_a_process_that_is_gone_when_it_is_to_be_killed_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert clear(monkeypatch, {20: OWN, 21: OWN}, {21: OWN}, {}, grace_s=0.0).killed == [20, 21, 21]


def test_the_children_of_one_that_dies_during_the_look_are_waited_for_too(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = clear(monkeypatch, {20: OWN, 21: 20}, {21: OWN}, {21: OWN}, {}, dead=[20])
    assert not machine.looks, "21 was left behind"
