"""A job on Spark that is told to stop: first in its own time, then without its JVM."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from penstock.pipeline import stopping
from penstock.pipeline.stopping import AGAIN_S, Cut

WAIT_S = 60


@pytest.fixture
def jvm() -> Iterator[subprocess.Popen[bytes]]:
    """What stands for Spark's: it ends when it is told to."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as process:
        yield process
        process.kill()


def test_the_first_signal_tells_the_job_and_a_later_one_ends_its_jvm(
    jvm: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    told: list[str] = []
    cut = Cut(lambda: told.append("stop"), jvm)
    cut.hear(signal.SIGINT, None)
    now[0] += AGAIN_S / 2
    cut.hear(signal.SIGTERM, None)  # the same wish: a shell sends to the process and to its group
    assert told == ["stop"]
    assert jvm.poll() is None
    now[0] += AGAIN_S
    cut.hear(signal.SIGINT, None)
    monkeypatch.undo()
    assert jvm.wait(WAIT_S) == -signal.SIGTERM
    assert told == ["stop"]


def test_a_job_that_does_not_stop_loses_its_jvm(jvm: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopping, "CUT_S", 0.01)
    Cut(lambda: None, jvm).hear(signal.SIGTERM, None)
    assert jvm.wait(WAIT_S) == -signal.SIGTERM
