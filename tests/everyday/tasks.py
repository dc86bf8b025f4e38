"""The Celery application of test_celery.py: `connect` for the test, `app` for the worker.

EVERYDAY_URI names the broker, EVERYDAY_NOTES a file into which tasks write what they did and in which order.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from celery import Celery
from kombu.common import Broadcast
from kombu.entity import Queue


def connect(uri: str) -> Celery:
    """An application without tasks: knows the queues, sends tasks by name."""
    made = Celery("everyday", broker=uri, backend="rpc://", set_as_current=False)
    made.conf.update(
        task_default_queue="everyday.main",
        # Broadcast: one queue per worker behind a fanout exchange.
        task_queues=[
            Queue("everyday.main"),
            Queue("everyday.solo"),
            Queue("everyday.victim"),
            Queue("everyday.urgent", max_priority=10),
            Broadcast("everyday.all"),
        ],
        task_routes={"everyday.shout": {"queue": "everyday.all", "exchange": "everyday.all"}},
        worker_prefetch_multiplier=1,
        worker_hijack_root_logger=False,
        worker_cancel_long_running_tasks_on_connection_loss=True,
        broker_connection_retry_on_startup=True,
        broker_connection_timeout=30,
        # None: the default of 100 attempts would do, but a slow restart of the broker must not end a worker.
        broker_connection_max_retries=None,
        task_publish_retry_policy={"max_retries": 100, "interval_start": 0.1, "interval_step": 0, "interval_max": 0.1},
        broker_transport_options={"confirm_publish": True},
    )
    return made


app = connect(os.environ.get("EVERYDAY_URI", ""))


def write(word: str) -> None:
    with Path(os.environ["EVERYDAY_NOTES"]).open("a", encoding="utf-8") as notes:
        notes.write(f"{word}\n")


@app.task(name="everyday.add")
def add(x: int, y: int) -> int:
    return x + y


@app.task(name="everyday.total")
def total(numbers: list[int]) -> int:
    return sum(numbers)


@app.task(name="everyday.now")
def now() -> float:
    return time.time()


@app.task(name="everyday.note")
def note(word: str) -> None:
    write(word)


@app.task(name="everyday.shout", bind=True)
def shout(self: Any, word: str) -> None:
    write(f"{word} at {self.request.hostname}")


@app.task(name="everyday.third_time", bind=True, autoretry_for=(ZeroDivisionError,), default_retry_delay=0.05)
def third_time(self: Any) -> int:
    """Fails twice, then says how often it was tried."""
    if self.request.retries < 2:
        raise ZeroDivisionError
    return int(self.request.retries)


@app.task(name="everyday.stuck", bind=True, acks_late=True)
def stuck(self: Any) -> None:
    """Does not end the first time; the second time, with another worker, it does."""
    if self.request.delivery_info["redelivered"]:
        write("done by another")
        return
    write("stuck")
    time.sleep(200)  # the test kills the worker


@app.task(name="everyday.fatal", bind=True, acks_late=True, reject_on_worker_lost=True)
def fatal(self: Any) -> str:
    """Takes its process with it the first time."""
    if self.request.delivery_info["redelivered"]:
        return "done at the second attempt"
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("unreachable")
