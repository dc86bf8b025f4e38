"""`python -m fuzz`: run the fuzzer for some seconds and tell what it found. Exit code 1 if it found something."""

from __future__ import annotations

import argparse
import random
import sys
from pathlib import Path

from fuzz.engine import Engine, Input, saved
from fuzz.target import TARGETS, Finding, run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long (default: 60)")
    parser.add_argument("--target", choices=TARGETS, action="append", help="only this one; as often as you like")
    parser.add_argument("--seed", type=int, help="of the random choices; printed when it is not given")
    parser.add_argument("--replay", type=Path, nargs="+", help="run these files once, with tracebacks, and stop")
    given = parser.parse_args()
    targets = tuple(given.target or TARGETS)
    if given.replay:
        return replay(given.replay)
    seed = random.SystemRandom().randrange(1 << 32) if given.seed is None else given.seed
    print(f"fuzz: {', '.join(targets)} for {given.seconds:.0f} s, seed {seed}, {len(saved())} saved inputs", flush=True)
    engine = Engine(targets, seed, lambda line: print(line, flush=True))
    engine.run_for(given.seconds)
    for finding, path in engine.findings.values():
        print(f"finding: {finding}\n    python -m fuzz --replay {path}")
    return 1 if engine.findings else 0


def replay(files: list[Path]) -> int:
    """Run saved inputs, with the traceback of what they find."""
    for path in files:
        one = Input(path.name.partition("-")[0], path.read_bytes())
        try:
            run(one.target, one.data)
        except Finding:
            print(f"{path}:", flush=True)
            raise
        print(f"{path}: nothing found")
    return 0


if __name__ == "__main__":
    sys.exit(main())
