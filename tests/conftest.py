"""All tests: which of them share a process when several run (`make test` has two, by pytest-xdist).

A file's tests stay together, because they share brokers and recordings; all of Spark's stay together, because a session
is a JVM of its own, and the first query in it costs seconds.
"""

from __future__ import annotations

from pathlib import Path

import pytest

SPARK = Path(__file__).parent / "spark"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        group = "spark" if SPARK in item.path.parents else str(item.path)
        item.add_marker(pytest.mark.xdist_group(group))
