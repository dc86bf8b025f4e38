"""The Celery application of test_celery.py, for the worker and for the test. PENSTOCK_TEST_URI names the broker."""

from __future__ import annotations

import os
import time
from typing import Any

from celery import Celery

app = Celery("wire", broker=os.environ.get("PENSTOCK_TEST_URI", ""), backend="rpc://")
app.conf.update(
    task_serializer="json",
    result_serializer="json",
    accept_content=["json"],
    task_track_started=True,
    task_acks_late=True,
    worker_prefetch_multiplier=1,
    worker_hijack_root_logger=False,
    broker_connection_retry_on_startup=True,
    broker_connection_timeout=30,
    worker_cancel_long_running_tasks_on_connection_loss=True,
    task_default_queue="wire",
    worker_send_task_events=True,
)


@app.task
def add(x: int, y: int) -> int:
    return x + y


@app.task
def echo(value: Any) -> Any:
    return value


@app.task
def fail() -> None:
    raise ValueError("on purpose")


@app.task(bind=True, max_retries=3)
def third_time(self: Any) -> int:
    """Fails twice, then says how often it was tried."""
    if self.request.retries < 2:
        raise self.retry(countdown=0.05)
    return self.request.retries


@app.task
def now() -> float:
    return time.time()


@app.task
def run_for_ever() -> None:
    """Only a revoke ends it; a limit, so that no test leaves it behind."""
    time.sleep(200)
