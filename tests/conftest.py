"""All tests: which of them share a process when several run (`make test` has two, by pytest-xdist).

A file's tests stay together, because they share brokers and recordings; all of Spark's stay together, because a session
is a JVM of its own, and the first query in it costs seconds.

Hypothesis draws the same examples every time, so that what passed once passes again on a machine that only has to say
whether a change is sound; PENSTOCK_RANDOM=1 (`make random`) lets it look for new ones.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("same", derandomize=True, database=None, deadline=None, print_blob=True)
settings.register_profile("random", deadline=None, print_blob=True)
settings.load_profile("random" if os.environ.get("PENSTOCK_RANDOM") else "same")

SPARK = Path(__file__).parent / "spark"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        group = "spark" if SPARK in item.path.parents else str(item.path)
        item.add_marker(pytest.mark.xdist_group(group))
