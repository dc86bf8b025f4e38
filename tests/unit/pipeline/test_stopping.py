"""A job on Spark that is told to stop: first in its own time, then without its JVM."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from penstock.pipeline.stopping import AGAIN_S, SIGNALS, Cut, Stopping, Told

WAIT_S = 60


@pytest.fixture
def jvm() -> Iterator[subprocess.Popen[bytes]]:
    """What stands for Spark's: it ends when it is told to."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as process:
        yield process
        process.kill()


@pytest.fixture
def stopping() -> Iterator[Stopping]:
    before = [(number, signal.getsignal(number)) for number in SIGNALS]
    yield Stopping()
    for number, handler in before:
        signal.signal(number, handler)


def test_the_first_signal_tells_the_job_and_a_later_one_ends_its_jvm(
    jvm: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    told = Told()
    cut = Cut(told, jvm)
    assert not told.is_set()
    cut.hear(signal.SIGINT, None)
    now[0] += AGAIN_S / 2
    cut.hear(signal.SIGTERM, None)  # the same wish: a shell sends to the process and to its group
    assert told.is_set()
    assert jvm.poll() is None
    now[0] += AGAIN_S
    cut.hear(signal.SIGINT, None)
    monkeypatch.undo()
    assert jvm.wait(WAIT_S) == -signal.SIGTERM


def test_a_job_that_does_not_stop_loses_its_jvm(jvm: subprocess.Popen[bytes]) -> None:
    Cut(Told(), jvm, after_s=0.01).hear(signal.SIGTERM, None)
    assert jvm.wait(WAIT_S) == -signal.SIGTERM


@pytest.mark.timeout(WAIT_S)
def test_a_signal_that_comes_while_the_job_is_about_to_wait_does_not_hang_it(stopping: Stopping) -> None:
    with vars(stopping.event)["_cond"]:  # as the main thread has it for a moment in each `wait`
        signal.raise_signal(signal.SIGTERM)
        assert stopping.event.is_set()
    assert stopping.event.wait(WAIT_S), "whoever waits is woken"


@pytest.mark.timeout(WAIT_S)
def test_a_job_that_is_about_to_wait_loses_its_jvm_all_the_same(jvm: subprocess.Popen[bytes]) -> None:
    told = Told()
    with vars(told)["_cond"]:
        Cut(told, jvm, after_s=0.01).hear(signal.SIGTERM, None)
        assert jvm.wait(WAIT_S) == -signal.SIGTERM
    assert told.wait(WAIT_S)


def test_a_signal_wakes_all_who_wait(stopping: Stopping) -> None:
    woken: list[bool] = []
    waiting = [threading.Thread(target=lambda: woken.append(stopping.event.wait(WAIT_S))) for _ in range(2)]
    for one in waiting:
        one.start()
    for number in SIGNALS:
        signal.raise_signal(number)
    for one in waiting:
        one.join(WAIT_S)
    assert woken == [True, True]
