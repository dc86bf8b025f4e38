"""Chance: the seed of tests that roll dice.

It is the same every time, so that a machine that only has to say whether a change is sound rolls what was rolled before
(when things happen, and in which order, it cannot repeat). CRASH_SEED=7 is another one, PENSTOCK_RANDOM=1 a new one for
each run; the test prints it.
"""

from __future__ import annotations

import os
import random
from typing import Final

USUAL: Final = 20261116


def seed_of(variable: str) -> int:
    """What this variable of the environment says."""
    if found := os.environ.get(variable):
        return int(found)
    return random.randrange(1 << 32) if os.environ.get("PENSTOCK_RANDOM") else USUAL
