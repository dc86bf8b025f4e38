"""Celery on an ordinary day: real workers, with results over rpc://, through lost workers and lost brokers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import kombu.pools
import pytest
from celery import Celery, chain, chord, group

from tests.everyday.cable import Cable
from tests.everyday.conftest import Outage, SomebodyElse
from tests.everyday.targets import Target
from tests.everyday.tasks import connect
from tests.wire.live import ROOT, serve_environment
from tests.wire.waiting import LIMIT_S, wait_until

RESULT_S = 60.0  # how long a result may take before it counts as lost
START_S = 120.0


class Worker:
    def __init__(self, uri: str, directory: Path, name: str, queues: str, *arguments: str) -> None:
        self.name = f"{name}@everyday"
        self._log = directory / f"{name}.log"
        command = [sys.executable, "-m", "celery", "-A", "tests.everyday.tasks", "worker", "-l", "info"]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [*command, "-n", self.name, "-Q", queues, "--without-mingle", *arguments],
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
                start_new_session=True,  # a group of its own: the pool's processes go with it
                env=serve_environment(
                    {"EVERYDAY_URI": uri, "EVERYDAY_NOTES": str(directory / "notes"), "C_FORCE_ROOT": "1"}
                ),
            )

    @property
    def log(self) -> str:
        return self._log.read_text("utf-8", "replace")

    def wait_ready(self) -> Worker:
        def ready() -> bool:
            assert self.process.poll() is None, self.log
            return f"{self.name} ready" in self.log

        wait_until(ready, START_S, f"{self.name} to be ready")
        return self

    def kill(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(LIMIT_S)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory, session_target: Target) -> Path:
    return tmp_path_factory.mktemp(f"celery-{session_target.name}")


@pytest.fixture(scope="module")
def wire(session_target: Target) -> Iterator[Cable]:
    """The workers' cable; it lives as long as they do."""
    session_target.start()
    with Cable(session_target.port) as cable:
        yield cable


@pytest.fixture(scope="module")
def workers(wire: Cable, directory: Path) -> Iterator[dict[str, Worker]]:
    """Two workers for all tests here: starting them is what takes time."""
    started = {
        "main": Worker(wire.uri, directory, "main", "everyday.main,everyday.all", "-c", "2", "-E"),
        "solo": Worker(wire.uri, directory, "solo", "everyday.solo,everyday.all", "--pool", "solo"),
    }
    try:
        for worker in started.values():
            worker.wait_ready()
        yield started
    finally:
        for worker in started.values():
            worker.kill()


@contextmanager
def client(uri: str) -> Iterator[Celery]:
    """An application with connections of its own. kombu's pools are global: they go too, or the next one gets ours."""
    app = connect(uri)
    try:
        yield app
    finally:
        if app.backend.result_consumer._connection is not None:
            app.backend.result_consumer.stop()
        app.close()
        kombu.pools.reset()


@pytest.fixture
def app(target: Target, uri: str, workers: dict[str, Worker]) -> Iterator[Celery]:
    with client(uri) as connected:
        yield connected


@pytest.fixture
def notes(directory: Path) -> Callable[[], list[str]]:
    """What tasks have written since the test began."""
    path = directory / "notes"
    path.write_text("")
    return lambda: path.read_text("utf-8").splitlines()


def task(app: Celery, name: str, *arguments: Any) -> Any:
    return app.signature(f"everyday.{name}", args=arguments)


def test_results_come_back_over_an_exclusive_reply_queue(app: Celery, workers: dict[str, Worker]) -> None:
    results = [task(app, "add", number, 1).apply_async() for number in range(20)]
    assert [result.get(RESULT_S) for result in results] == list(range(1, 21))


def test_chains_and_groups_work_and_a_chord_is_refused_by_rpc(app: Celery) -> None:
    assert chain(task(app, "add", 1, 2), task(app, "add", 10), app=app).apply_async().get(RESULT_S) == 13
    several = group([task(app, "add", number, 1) for number in range(5)], app=app)
    assert several.apply_async().get(RESULT_S) == [1, 2, 3, 4, 5]
    with pytest.raises(NotImplementedError, match="chord"):
        chord(several, app=app)(task(app, "total"))


def test_countdown_and_eta_hold_a_task_back(app: Celery) -> None:
    due = time.time() + 1
    by_countdown = task(app, "now").apply_async(countdown=1)
    by_eta = task(app, "now").apply_async(eta=datetime.now(UTC) + timedelta(seconds=1))
    for result in (by_countdown, by_eta):
        assert result.get(RESULT_S) >= due - 0.05


def test_a_task_is_retried_until_it_works(app: Celery) -> None:
    assert task(app, "third_time").apply_async().get(RESULT_S) == 2


def test_an_expired_task_is_not_done(app: Celery, notes: Callable[[], list[str]], q: str) -> None:
    late = task(app, "note", "late").apply_async(expires=0.01, countdown=0.1)
    wait_until(lambda: late.state == "REVOKED", RESULT_S)
    assert notes() == []


def test_a_broadcast_reaches_every_worker(app: Celery, notes: Callable[[], list[str]]) -> None:
    task(app, "shout", "hello").apply_async()
    wait_until(lambda: len(notes()) == 2, RESULT_S)
    assert sorted(notes()) == ["hello at main@everyday", "hello at solo@everyday"]


def test_remote_control_reaches_every_worker_over_the_pidbox(app: Celery) -> None:
    replies = app.control.ping(timeout=LIMIT_S, limit=2)
    assert {name for reply in replies for name in reply} == {"main@everyday", "solo@everyday"}
    stats = app.control.inspect(destination=["main@everyday"], timeout=LIMIT_S, limit=1).stats()
    assert stats["main@everyday"]["broker"]["transport"] == "amqp"


def test_urgent_tasks_overtake_in_a_queue_with_priorities(app: Celery, notes: Callable[[], list[str]]) -> None:
    with app.connection_for_write() as connection:
        app.amqp.queues["everyday.urgent"](connection.default_channel).declare()
    for priority in (0, 5, 9):
        task(app, "note", str(priority)).apply_async(queue="everyday.urgent", priority=priority)
    app.control.add_consumer("everyday.urgent", destination=["solo@everyday"], reply=True, timeout=LIMIT_S, limit=1)
    wait_until(lambda: len(notes()) == 3, RESULT_S)
    assert notes() == ["9", "5", "0"]
    app.control.cancel_consumer("everyday.urgent", destination=["solo@everyday"], reply=True, timeout=LIMIT_S, limit=1)


def test_events_of_a_task_arrive(app: Celery) -> None:
    seen: set[tuple[str, str]] = set()
    with app.connection_for_read() as connection:
        receiver = app.events.Receiver(
            connection, handlers={"*": lambda event: seen.add((event["type"], event.get("uuid", "")))}
        )
        with receiver.consumer_context(wakeup=False) as (own_connection, _, _):
            uuid = task(app, "add", 1, 1).apply_async().id

            def finished() -> bool:
                try:
                    own_connection.drain_events(timeout=0.1)
                except TimeoutError:
                    pass  # nothing came; wait_until decides how long is too long
                return {("task-received", uuid), ("task-started", uuid), ("task-succeeded", uuid)} <= seen

            wait_until(finished, RESULT_S, f"the events of {uuid}, not only {seen}")


def test_a_task_whose_process_was_killed_is_done_again(app: Celery) -> None:
    assert task(app, "fatal").apply_async().get(RESULT_S) == "done at the second attempt"


def test_a_task_of_a_killed_worker_is_done_by_another(
    app: Celery, wire: Cable, directory: Path, notes: Callable[[], list[str]]
) -> None:
    victim = Worker(wire.uri, directory, "victim", "everyday.victim", "--pool", "solo", "--without-gossip")
    try:
        victim.wait_ready()
        task(app, "stuck").apply_async(queue="everyday.victim")
        wait_until(lambda: notes() == ["stuck"], RESULT_S)
    finally:
        victim.kill()
    app.control.add_consumer("everyday.victim", destination=["solo@everyday"], reply=True, timeout=LIMIT_S, limit=1)
    wait_until(lambda: notes() == ["stuck", "done by another"], RESULT_S)


# Last: it takes the connections of all of the above away.
@pytest.mark.parametrize("how", ["cut", "killed", "stopped"])
def test_workers_go_on_after_the_broker_was_away(
    target: Target, wire: Cable, uri: str, workers: dict[str, Worker], other: SomebodyElse, how: str
) -> None:
    before = {name: worker.log.count("Connected to amqp") for name, worker in workers.items()}
    outage = Outage(how, target, wire)
    outage.begin()
    outage.end()
    for name, worker in workers.items():

        def reconnected(name: str = name, worker: Worker = worker) -> bool:
            return worker.log.count("Connected to amqp") > before[name]

        wait_until(reconnected, START_S, f"{name} to reconnect")
    wait_until(lambda: other.consumers("everyday.main") == 1, START_S, "the consumer of main")
    wait_until(lambda: other.consumers("everyday.solo") == 1, START_S, "the consumer of solo")
    with client(uri) as app:
        assert task(app, "add", 1, 2).apply_async().get(RESULT_S) == 3
        assert task(app, "add", 3, 4).apply_async(queue="everyday.solo").get(RESULT_S) == 7
    assert all(worker.process.poll() is None for worker in workers.values())
