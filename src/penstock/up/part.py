"""Part: one process of `penstock up`: the broker, the pipeline, the demo.

Upstream: crew.py starts and stops it.  Downstream: the process, on its leash (leash.py), in our process group.
What happens to it goes into the crew's list of happenings, from threads that do nothing else: one for each of its two
pipes, one that waits for its end. An end is told when what it said was read and what it left behind is gone.
Not here: what follows from a happening (crew.py).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from typing import IO, Final

from penstock.up import descent

LINE_BYTES_MAX: Final = 65_536  # a longer line is shown as several
LAST_WORDS_S: Final = 2.0  # how long a dead part's pipes are read: who it has left behind may hold them open
STRAYS_GRACE_S: Final = 5.0  # a JVM that was told to stop removes its files first

# A terminal sends these to all of its process group. The parts are to be stopped in order, so only `penstock up` hears
# them; SIGTERM reaches everybody.
OURS: Final = (signal.SIGINT, signal.SIGHUP)
STOPS: Final = (signal.SIGTERM, *OURS)


@dataclass(frozen=True, slots=True)
class Line:
    """A part has written a line."""

    part: Part
    descriptor: int
    text: str


@dataclass(frozen=True, slots=True)
class Ended:
    """A part's process is gone, and all that came from it."""

    part: Part
    code: int  # as subprocess has it: negative is a signal


@dataclass(frozen=True, slots=True)
class Stop:
    """Somebody wants all of us to stop."""

    number: int


Happenings = SimpleQueue[Line | Ended | Stop]


class Family:
    """The processes that are known, and how patient we are with others."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.clearing = threading.Lock()  # one ended part at a time looks for what was left behind
        self.pids: set[int] = set()
        self.grace_s = STRAYS_GRACE_S

    def known(self) -> set[int]:
        with self.lock:
            return set(self.pids)


class Part:
    def __init__(self, name: str, happenings: Happenings, family: Family) -> None:
        self.name = name
        self.is_ready = False
        self.process: subprocess.Popen[bytes] | None = None
        self._happenings = happenings
        self._family = family

    def __repr__(self) -> str:
        return f"<Part {self.name} pid={self.process.pid if self.process else None} ready={self.is_ready}>"

    def start(self, words: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        """`python -m WORDS`, on a leash."""
        assert self.process is None
        # Blocked signals are inherited. That way there is no moment in which one of these could hit a part.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, OURS)
        try:
            with self._family.lock:  # a process that is not among the known ones yet must not be taken for a stray
                self.process = subprocess.Popen(
                    [sys.executable, "-m", "penstock.up.leash", *words],
                    stdin=subprocess.PIPE,  # the leash: never written to
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    env={**os.environ, **(environment or {})},
                )
                self._family.pids.add(self.process.pid)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        self.is_ready = False
        threading.Thread(target=self._follow, args=(self.process,), name=self.name, daemon=True).start()

    def send(self, number: int) -> None:
        """Send it a signal; nothing happens if it has ended."""
        if self.process is not None:
            self.process.send_signal(number)

    def _follow(self, process: subprocess.Popen[bytes]) -> None:
        """A thread's work: from the start of this process to its end."""
        signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)  # for the main thread only, which waits for them
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        readers = [
            threading.Thread(target=self._read, args=(stream, descriptor), name=self.name, daemon=True)
            for stream, descriptor in ((process.stdout, 1), (process.stderr, 2))
        ]
        for reader in readers:
            reader.start()
        code = process.wait()
        with self._family.lock:
            self._family.pids.discard(process.pid)
        process.stdin.close()
        for reader in readers:
            reader.join(LAST_WORDS_S)
        descent.clear(self._family.known, lambda: self._family.grace_s, self._family.clearing)
        self._happenings.put(Ended(self, code))

    def _read(self, stream: IO[bytes], descriptor: int) -> None:
        with stream:
            while line := stream.readline(LINE_BYTES_MAX):
                self._happenings.put(Line(self, descriptor, line.decode("utf-8", "replace").rstrip("\r\n")))
