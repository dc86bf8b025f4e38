"""Record: play every case to a live RabbitMQ and write down what it says, in recorded/.

`python -m tests.differential.record [area…]`. Each case is played three times; one that does not say the same each time
or whose script waits in vain, is named, is not written, and makes the exit code 1: a case must not depend on luck.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Final

from tests.differential.player import Area, play_all
from tests.differential.rabbit import running_target
from tests.differential.recording import areas, write_recorded
from tests.differential.script import FAILURES, Target
from tests.differential.transcript import Transcript

TIMES: Final = 3


def record(target: Target, area: Area) -> list[str]:
    """Write the area's file; the names of the cases that differ from play to play or fail."""
    first, *others = (play_all(target, area.cases.values()) for _ in range(TIMES))
    unsteady = [name for name in first if any(told[name] != first[name] for told in others)]
    for name in unsteady:
        print(f"{name}: differs from play to play", first[name], *(told[name] for told in others), sep="\n  ")
    broken = [name for name, transcript in first.items() if is_broken(transcript)]
    for name in broken:
        print(f"{name}: its script did not come to its end", first[name], sep="\n  ")
    bad = {*unsteady, *broken}
    write_recorded(area, {name: transcript for name, transcript in first.items() if name not in bad})
    return [*unsteady, *broken]


def is_broken(transcript: Transcript) -> bool:
    """A script that waited in vain, or failed, says nothing about RabbitMQ."""
    return any(line.startswith(FAILURES) for lines in transcript.values() for line in lines)


def main(names: Sequence[str]) -> int:
    chosen = [area for area in areas() if not names or area.name in names]
    unsteady = []
    with running_target() as target:
        for area in chosen:
            started = time.monotonic()
            unsteady += record(target, area)
            print(f"{area.name}: {len(area.cases)} cases, {time.monotonic() - started:.1f} s for {TIMES} plays")
    return 1 if unsteady else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
