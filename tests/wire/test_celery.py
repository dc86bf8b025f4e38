"""A real Celery worker: tasks, results over rpc://, retries, ETA, revoke, remote control, and a clean stop."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import Celery, chain, group
from celery.exceptions import TaskRevokedError

from tests.wire import celery_app
from tests.wire.live import ROOT, LiveBroker, serve_environment
from tests.wire.waiting import LIMIT_S, wait_until

APP = "tests.wire.celery_app"
RESULT_S = 60.0  # how long a result may take before it counts as lost
PING_S = 2.0  # a worker that has just connected may not listen yet: it is asked again


class Worker:
    def __init__(self, broker: LiveBroker, directory: Path, name: str, *arguments: str) -> None:
        self.name = f"{name}@test"
        self._log = directory / f"{name}.log"
        command = [sys.executable, "-m", "celery", "-A", APP, "worker", "-l", "info", "-n", self.name]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [*command, *arguments],
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
                # A group of its own: the pool's processes go with it.
                start_new_session=True,
                env=serve_environment({"PENSTOCK_TEST_URI": broker.uri, "C_FORCE_ROOT": "1"}),
            )

    @property
    def log(self) -> str:
        return self._log.read_text("utf-8", "replace")

    def wait_ready(self) -> Worker:
        def ready() -> bool:
            assert self.process.poll() is None, self.log
            return f"{self.name} ready" in self.log

        wait_until(ready, 2 * LIMIT_S, f"{self.name} to be ready")
        return self

    def stop(self) -> int:
        """A warm shutdown; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(LIMIT_S)

    def kill(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(LIMIT_S)


@pytest.fixture(scope="module")
def celery_broker() -> Iterator[LiveBroker]:
    with LiveBroker() as live:
        yield live


@pytest.fixture(scope="module")
def app(celery_broker: LiveBroker) -> Iterator[Any]:
    celery_app.app.conf.broker_url = celery_broker.uri
    celery_app.app.conf.broker_read_url = celery_app.app.conf.broker_write_url = celery_broker.uri
    yield celery_app.app
    celery_app.app.close()


@pytest.fixture(scope="module")
def worker(celery_broker: LiveBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    """One prefork worker with two processes for all tests here: starting it is what takes time."""
    started = Worker(celery_broker, tmp_path_factory.mktemp("celery"), "prefork", "-c", "2", "-E")
    try:
        yield started.wait_ready()
    finally:
        started.kill()


@pytest.fixture
def inspect(app: Any, worker: Worker) -> Callable[..., Any]:
    return lambda: app.control.inspect(destination=[worker.name], timeout=LIMIT_S, limit=1)


def test_tasks_are_done_and_their_results_come_back(app: Any, worker: Worker) -> None:
    assert celery_app.add.delay(2, 3).get(RESULT_S) == 5
    results = [celery_app.add.delay(number, number) for number in range(50)]
    assert [result.get(RESULT_S) for result in results] == [2 * number for number in range(50)]


def test_arguments_and_results_of_many_kinds_and_sizes_come_back_unchanged(app: Any, worker: Worker) -> None:
    for value in ("größe", None, {"list": [1, 2.5, "three"]}, "x" * 1_000_000):
        assert celery_app.echo.delay(value).get(RESULT_S) == value


def test_a_failed_task_fails_here_too(app: Any, worker: Worker) -> None:
    with pytest.raises(ValueError, match="on purpose"):
        celery_app.fail.delay().get(RESULT_S)


def test_a_task_is_retried_until_it_works(app: Any, worker: Worker) -> None:
    assert celery_app.third_time.delay().get(RESULT_S) == 2


def test_groups_and_chains_work(app: Any, worker: Worker) -> None:
    assert chain(celery_app.add.s(1, 2), celery_app.add.s(10)).apply_async().get(RESULT_S) == 13
    assert group(celery_app.add.s(number, 1) for number in range(5)).apply_async().get(RESULT_S) == [1, 2, 3, 4, 5]


def test_a_task_with_a_countdown_waits_for_its_time(app: Any, worker: Worker) -> None:
    due = time.time() + 1
    assert celery_app.now.apply_async(countdown=1).get(RESULT_S) >= due - 0.01


def test_a_waiting_task_is_revoked(app: Any, worker: Worker, inspect: Callable[..., Any]) -> None:
    result = celery_app.add.apply_async((1, 1), countdown=10)  # time enough to see it wait
    wait_until(lambda: result.id in str(inspect().scheduled()), what="the task to be scheduled")
    result.revoke()
    wait_until(lambda: result.id in str(inspect().revoked()), what="the revoke to arrive")
    with pytest.raises(TaskRevokedError):
        result.get(RESULT_S)


def test_a_running_task_is_revoked_and_terminated(app: Any, worker: Worker, inspect: Callable[..., Any]) -> None:
    result = celery_app.run_for_ever.delay()
    wait_until(lambda: result.id in str(inspect().active()), what="the task to run")
    result.revoke(terminate=True)
    with pytest.raises(TaskRevokedError):
        result.get(RESULT_S)
    wait_until(lambda: result.id not in str(inspect().active()), what="the task to end")
    assert celery_app.add.delay(2, 2).get(RESULT_S) == 4


def test_remote_control_reaches_the_worker(app: Any, worker: Worker, inspect: Callable[..., Any]) -> None:
    assert app.control.ping(timeout=LIMIT_S, limit=1) == [{worker.name: {"ok": "pong"}}]
    assert "tests.wire.celery_app.add" in inspect().registered()[worker.name]
    assert [queue["name"] for queue in inspect().active_queues()[worker.name]] == ["wire"]
    assert inspect().stats()[worker.name]["pool"]["max-concurrency"] == 2
    app.control.add_consumer("more", destination=[worker.name], reply=True, timeout=LIMIT_S, limit=1)
    assert celery_app.add.apply_async((3, 4), queue="more").get(RESULT_S) == 7
    app.control.cancel_consumer("more", destination=[worker.name], reply=True, timeout=LIMIT_S, limit=1)


def test_events_of_the_worker_arrive(app: Any, worker: Worker) -> None:
    seen: list[tuple[str, str]] = []
    with app.connection_for_read() as connection:
        note = {"*": lambda event: seen.append((event["type"], event.get("uuid", "")))}
        receiver = app.events.Receiver(connection, handlers=note)
        with receiver.consumer_context(wakeup=False) as (own_connection, _, _):
            task = celery_app.add.delay(1, 1).id  # the worker may still send events of earlier tasks

            def finished() -> bool:
                try:
                    own_connection.drain_events(timeout=0.1)
                except TimeoutError:
                    pass  # nothing came; wait_until decides how long is too long
                return {("task-received", task), ("task-started", task), ("task-succeeded", task)} <= set(seen)

            wait_until(finished, what=f"the events of task {task}")


def test_a_worker_survives_a_lost_connection_and_stops_cleanly(broker: LiveBroker, tmp_path: Path) -> None:
    solo = Worker(broker, tmp_path, "solo", "--pool", "solo", "--without-gossip", "--without-mingle")
    try:
        solo.wait_ready()
        broker.cut_all()
        wait_until(lambda: solo.log.count("Connected to amqp") >= 2, what="the worker to reconnect")
        with Celery(broker=broker.uri) as remote, remote.connection_for_write() as connection:
            reply = wait_until(lambda: remote.control.ping(connection=connection, timeout=PING_S, limit=1))
            assert reply == [{solo.name: {"ok": "pong"}}]
        assert solo.stop() == 0, solo.log
    finally:
        solo.kill()
    wait_until(lambda: broker.count(f"{solo.name}.celery.pidbox") == -1)
    assert broker.count("wire") == 0
