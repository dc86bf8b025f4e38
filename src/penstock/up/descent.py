"""Descent: which processes a part has left behind, and their end.

Place: asked by part.py when a part has ended, and by leash.py. A pipeline that is killed leaves a JVM and Spark's
Python workers. They end by themselves when they notice, but until then they work on files that the next pipeline
wants: so the next one starts when they are gone.
On Linux `adopt` makes them children of this process when their parent ends, so that they are found and can be waited
for; elsewhere they are left to notice by themselves.
Not here: when a part is started again (crew.py).
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

PR_SET_CHILD_SUBREAPER: Final = 36
LOOK_S: Final = 0.05


def adopt() -> None:
    """From now on what our descendants leave behind becomes our child."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def parents() -> dict[int, int]:
    """Every process of the machine and its parent; empty where the system does not tell."""
    found = {}
    try:
        pids = [int(name) for name in os.listdir("/proc") if name.isdecimal()]
    except OSError:
        return {}
    for pid in pids:
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                # The name, in parentheses, may hold anything; behind it come the state and the parent.
                found[pid] = int(file.read().rpartition(b")")[2].split()[1])
        except (OSError, IndexError):
            continue  # it has ended meanwhile
    return found


def descendants(pid: int) -> list[int]:
    """All below this process, itself not among them."""
    above = parents()
    found = [pid]
    for parent in found:
        found += [child for child, its in above.items() if its == parent]
    return found[1:]


def clear(known: Callable[[], set[int]], grace_s: Callable[[], float], turn: threading.Lock) -> None:
    """Wait until this process has no children but the known ones; after the grace time the others are killed.

    Both are asked again and again: parts start and a stop may come to be in a hurry meanwhile. `turn` is had by one
    look at a time: several parts may end at once, and who asks whether a child lives may be the one who buries it."""
    began = time.monotonic()
    while True:
        with turn:
            above = parents()
            own = known()  # after the look: who was started before it is among them
            strays = [pid for pid, parent in above.items() if parent == os.getpid() and pid not in own]
            if not strays:
                return
            # Not even if none of them lives: the children of one that has died since the look are ours only now.
            alive = [pid for pid in strays if _is_there(pid)]
            if time.monotonic() - began >= grace_s():
                for pid in alive:
                    with suppress(ProcessLookupError):  # where SIGCHLD is ignored the system waits for it
                        os.kill(pid, signal.SIGKILL)
        time.sleep(LOOK_S)


def _is_there(pid: int) -> bool:
    """Whether this child lives; what is left of a dead one goes."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == 0
    except ChildProcessError:
        return False
