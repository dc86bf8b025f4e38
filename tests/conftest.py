"""All tests: which of them share a process when several run (`make test` has three, by pytest-xdist).

A file's tests stay together, because they share brokers and recordings; Spark's stay together, those of the pipeline
and the others, because a session is a JVM of its own, and the first query in it costs seconds.

Hypothesis draws the same examples every time, so that what passed once passes again on a machine that only has to say
whether a change is sound; PENSTOCK_RANDOM=1 (`make random`) lets it look for new ones.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings
from pika.connection import Parameters
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

# A busy machine draws slowly; that says nothing about a test.
SLOW = [HealthCheck.too_slow]
settings.register_profile(
    "same", derandomize=True, database=None, deadline=None, print_blob=True, suppress_health_check=SLOW
)
settings.register_profile("random", deadline=None, print_blob=True, suppress_health_check=SLOW)
settings.load_profile("random" if os.environ.get("PENSTOCK_RANDOM") else "same")

# A busy machine connects slowly, too: pika gives up after 10 and 15 s by itself.
Parameters.DEFAULT_SOCKET_TIMEOUT = 60.0
Parameters.DEFAULT_STACK_TIMEOUT = 60.0

# Two halves of Spark's, of about the same length: some of the pipeline's go with the others.
PIPELINE, SOURCE = "tests/spark/pipeline/", "tests/spark/"
MOVED = ("test_up", "test_cluster", "test_advise", "test_truth_unaided")
TO_SOURCE = tuple(f"{PIPELINE}{name}.py" for name in MOVED)


class ByFile(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    def _split_scope(self, nodeid: str) -> str:
        """Tests of the same answer go to the same process."""
        if nodeid.startswith(SOURCE):
            return PIPELINE if nodeid.startswith(PIPELINE) and not nodeid.startswith(TO_SOURCE) else SOURCE
        return nodeid.partition("::")[0]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByFile:
    return ByFile(config, log)
