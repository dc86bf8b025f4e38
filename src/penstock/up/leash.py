"""Leash: `python -m penstock.up.leash MODULE WORDS…` runs a module as `python -m` would, but not beyond `penstock up`.

Place: how crew.py starts every part. Standard input is a pipe whose other end only `penstock up` holds: the kernel
closes it when that process ends, however it ends. Then the part is told to stop as SIGTERM tells it; if it does
not within GRACE_S it ends at once, with all that it has started. A pipe works on every system, and does not depend on
which thread started whom, as Linux's own signal for a parent's death does.
Not here: what a part leaves behind while `penstock up` lives (descent.py).
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import threading
import time
from typing import Final

from penstock.up.descent import descendants

GRACE_S: Final = 30.0  # for a Spark session to stop in the middle of a batch


def hold(descriptor: int = 0) -> None:
    """From now on this process ends when the other end of this pipe is closed."""
    threading.Thread(target=_wait_for_end, args=(descriptor,), name="leash", daemon=True).start()


def _wait_for_end(descriptor: int) -> None:
    while os.read(descriptor, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE_S)
    for pid in descendants(os.getpid()):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    os._exit(1)


def main() -> None:
    module = sys.argv[1]
    hold()
    # It is blocked here (part.py), but a JVM would let it through again, unless it is ignored.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    del sys.argv[0]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
