"""With atheris: the same targets under libFuzzer's engine, for those who have it.

    python -m fuzz.with_atheris session 60

libFuzzer sees comparisons too and is quicker per input; ours knows frames, so three quarters of the changes are
mutation.py's. Optional: nothing depends on it (`pip install atheris`). What it finds goes to fuzz/corpus as ours does,
and ends the run.
"""

from __future__ import annotations

import hashlib
import importlib
import random
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

OWN_SHARE: Final = 0.75  # of the changes
INSTRUMENTED: Final = ["penstock.amqp", "penstock.net", "penstock.broker"]


def main() -> int:
    """Does not return when time is up: libFuzzer ends the process itself."""
    if len(sys.argv) != 3:
        print("usage: python -m fuzz.with_atheris decoder|handshake|session seconds", file=sys.stderr)
        return 2
    target, seconds = sys.argv[1], int(sys.argv[2])
    try:
        atheris: Any = importlib.import_module("atheris")
    except ImportError:
        print("fuzz: atheris is not installed: pip install atheris", file=sys.stderr)
        return 2
    with atheris.instrument_imports(include=INSTRUMENTED):  # what is imported before is not seen
        from fuzz.engine import CORPUS, saved, seeds
        from fuzz.mutation import INPUT_BYTES_MAX, mutate
        from fuzz.target import Finding, run

    inputs = [one.data for one in seeds() + [one for _, one in saved()] if one.target == target]

    def try_one(data: bytes) -> None:
        try:
            run(target, data)
        except Finding as finding:
            path = CORPUS / f"{target}-{finding.kind.replace(' ', '-')}-{hashlib.sha256(data).hexdigest()[:8]}.bin"
            path.write_bytes(data)
            print(f"FOUND {finding}\n      {path.relative_to(CORPUS.parents[1])}", flush=True)
            raise

    def change(data: bytes, size_max: int, seed: int) -> bytes:
        chance = random.Random(seed)
        if chance.random() > OWN_SHARE:
            return bytes(atheris.Mutate(data, size_max))
        return mutate(chance, data, chance.choice(inputs))[:size_max]

    with tempfile.TemporaryDirectory(prefix="penstock-fuzz-") as folder:
        for at, data in enumerate(inputs):
            (Path(folder) / str(at)).write_bytes(data)
        words = [sys.argv[0], f"-max_total_time={seconds}", f"-max_len={INPUT_BYTES_MAX}", "-handle_alrm=0", folder]
        atheris.Setup(words, try_one, custom_mutator=change)
        atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())
