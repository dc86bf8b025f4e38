"""Engine: runs inputs, keeps those that reach new code, and makes what it finds small.

Inputs begin as the seeds (sessions.py) and the files of fuzz/corpus; every one that takes a step never taken before
joins them. A finding is kept once per kind and place, cut down frame by frame and byte by byte while it still shows the
same, and written to fuzz/corpus, where tests/property/test_fuzz.py replays it from then on.
"""

from __future__ import annotations

import hashlib
import random
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from fuzz.coverage import Coverage
from fuzz.mutation import INPUT_BYTES_MAX, cut, joined, mutate
from fuzz.sessions import HANDSHAKES, LOGIN, SESSIONS
from fuzz.target import DECODER, HANDSHAKE, SESSION, TARGETS, Finding, run

CORPUS: Final = Path(__file__).parent / "corpus"
SHRINK_S: Final = 20.0
REPORT_S: Final = 10.0


class Input:
    """One input that reached something; `target` is what it was run against."""

    __slots__ = ("data", "target")

    def __init__(self, target: str, data: bytes) -> None:
        self.target = target
        self.data = data

    def __repr__(self) -> str:
        return f"<Input {self.target} {len(self.data)} bytes>"


def seeds() -> list[Input]:
    found = [Input(SESSION, session) for session in SESSIONS]
    found += [Input(HANDSHAKE, handshake) for handshake in HANDSHAKES]
    return found + [Input(DECODER, session) for session in (*SESSIONS, *(one[8:] for one in HANDSHAKES))]


def saved() -> list[tuple[Path, Input]]:
    """The files of fuzz/corpus; the first word of a file's name is its target."""
    return [
        (path, Input(path.name.partition("-")[0], path.read_bytes()))
        for path in sorted(CORPUS.glob("*.bin"))
        if path.name.partition("-")[0] in TARGETS
    ]


class Engine:
    def __init__(self, targets: tuple[str, ...], seed: int, say: Callable[[str], None]) -> None:
        self.chance = random.Random(seed)
        self.coverage = Coverage()
        self.corpus: list[Input] = []
        self.findings: dict[str, tuple[Finding, Path]] = {}
        self.executions = 0
        self.slowest_s = 0.0
        self._targets = targets
        self._say = say

    def run_for(self, seconds: float) -> None:
        start = time.monotonic()
        reported = start
        for one in seeds() + [one for _, one in saved()]:
            if one.target in self._targets:
                self.try_one(one, always=True)
        while (now := time.monotonic()) - start < seconds:
            self.try_one(self._next())
            if now - reported > REPORT_S:
                reported = now
                self._say(self.summary(now - start))
        self._say(self.summary(time.monotonic() - start))

    def summary(self, seconds: float) -> str:
        return (
            f"{seconds:5.0f} s  {self.executions} executions ({self.executions / seconds:.0f}/s)  "
            f"corpus {len(self.corpus)}  edges {len(self.coverage.taken)}  slowest {self.slowest_s * 1000:.0f} ms  "
            f"findings {len(self.findings)}"
        )

    def _next(self) -> Input:
        chance = self.chance
        # New inputs are near the edge of what is known: half of the tries go to the last tenth.
        recent = self.corpus[-max(len(self.corpus) // 10, 1) :]
        parent = chance.choice(recent if chance.random() < 0.5 else self.corpus)
        data = mutate(chance, parent.data, chance.choice(self.corpus).data)
        target = parent.target
        if chance.random() < 0.02 and target == SESSION and HANDSHAKE in self._targets:
            target, data = HANDSHAKE, (LOGIN + data)[:INPUT_BYTES_MAX]
        return Input(target, data)

    def try_one(self, one: Input, always: bool = False) -> None:
        known = len(self.coverage.taken)
        start = time.monotonic()
        found: Finding | None = None
        try:
            run(one.target, one.data, self.coverage)
        except Finding as finding:
            found = finding
        self.executions += 1
        self.slowest_s = max(self.slowest_s, time.monotonic() - start)
        if found is not None:
            self._found(one, found)
        elif always or len(self.coverage.taken) > known:
            self.corpus.append(one)

    def _found(self, one: Input, finding: Finding) -> None:
        place = _place(finding)
        if place in self.findings:
            return
        self.findings[place] = (finding, Path())  # so that shrinking does not find it again
        small = shrink(one, place)
        name = f"{one.target}-{re.sub(r'[^a-z]+', '-', finding.kind)}-{hashlib.sha256(small.data).hexdigest()[:8]}.bin"
        path = CORPUS / name
        path.write_bytes(small.data)
        self.findings[place] = (finding, path)
        self._say(f"FOUND {finding}\n      {len(small.data)} bytes in {path.relative_to(CORPUS.parents[1])}")


def _place(finding: Finding) -> str:
    """What makes two findings the same one: all but the numbers and the values in them."""
    return re.sub(r"\d+|'[^']*'|b\"[^\"]*\"", "", str(finding))[:120]


def shrink(one: Input, place: str) -> Input:
    """The same finding with less: frames first, then stretches of bytes."""
    deadline = time.monotonic() + SHRINK_S

    def shows(data: bytes) -> bool:
        try:
            run(one.target, data)
        except Finding as finding:
            return _place(finding) == place
        return False

    data = one.data
    step = max(len(cut(data)[1]) // 2, 1)
    while step and time.monotonic() < deadline:
        head, frames, tail = cut(data)
        for at in range(0, len(frames), step):
            fewer = joined(head, frames[:at] + frames[at + step :], tail)
            if time.monotonic() < deadline and len(fewer) < len(data) and shows(fewer):
                data = fewer
                break
        else:
            step //= 2
    step = len(data) // 2
    while step and time.monotonic() < deadline:
        at = 0
        while at < len(data) and time.monotonic() < deadline:
            fewer = data[:at] + data[at + step :]
            if shows(fewer):
                data = fewer
            else:
                at += step
        step //= 2
    return Input(one.target, data)
