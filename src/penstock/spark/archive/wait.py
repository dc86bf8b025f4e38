"""Archive wait: a broker that is away is waited for, with a line; what it refuses is an error at once.

Whoever was never there is not waited for: then the address is probably mistyped.
Used by job.py and replay/job.py, before Spark starts, which takes seconds, and again when a job failed.
Not here: the outages that source and sink bridge by themselves (patience.py).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from penstock.amqp.bounds import NAME_BYTES_MAX
from penstock.amqp.close import PRECONDITION_FAILED
from penstock.amqp.method import ExchangeDeclare, ExchangeDeclareOk, QueueDeclare, QueueDeclareOk
from penstock.amqp.table import Table
from penstock.client.connection import Connection
from penstock.client.consumer import Consumer
from penstock.client.error import ClientError, Closed
from penstock.client.stream import partitions
from penstock.client.uri import Uri
from penstock.spark.complaint import Complaint
from penstock.spark.fault import missing_stream
from penstock.spark.patience import is_passing

WAIT_S: Final = 1.0

Say = Callable[[str], None]


def check_name(option: str, name: str | None) -> None:
    """Complaint for one that does not fit into a question to the broker."""
    size = len(name.encode("utf-8", "surrogateescape")) if name is not None else 0
    if size > NAME_BYTES_MAX:
        raise Complaint(f"{option}: a name has {NAME_BYTES_MAX} bytes at most, not {size}")


def await_broker(
    uri: Uri, look: Callable[[Connection], None], stop: threading.Event, say: Say, most_s: float | None = None
) -> bool:
    """Wait until the broker answers, and `look` at it. False: the job is to stop. `most_s`: then it is a Complaint."""
    told = False
    began = time.monotonic()
    while not stop.is_set():
        try:
            with Connection.connect(uri, name="penstock pipeline") as connection:
                look(connection)
        except ClientError as error:
            if not is_passing(error):
                raise Complaint(f"{error} (uri {uri})") from None
            if most_s is not None and time.monotonic() - began >= most_s:
                waited = f"; waited {most_s:.0f} s for the broker" if told else ""
                raise Complaint(f"{error}{waited} (uri {uri})") from None
            if not told:
                say(f"{error}; waiting for the broker")
                told = True
            stop.wait(WAIT_S)
            continue
        if told:
            say(f"{uri.address} is there")
        return True
    return False


def is_away(uri: Uri) -> bool:
    """Whether no broker answers now."""
    try:
        Connection.connect(uri, name="penstock pipeline").abort()
    except ClientError as error:
        return is_passing(error)
    return False


def look_for_stream(connection: Connection, stream: str) -> None:
    names = partitions(connection, stream)
    if not names:
        raise Complaint(str(missing_stream(stream, connection.uri)))
    queue = next((name for name in names if not _is_stream(connection.uri, name)), None)
    if queue is not None:
        raise Complaint(f"{queue} at {connection.uri} is a queue, not a stream: say --queue")


def look_for_queue(connection: Connection, queue: str) -> None:
    connection.open_channel().call(QueueDeclare(queue, passive=True), QueueDeclareOk)
    if _is_stream(connection.uri, queue):
        raise Complaint(f"{queue} at {connection.uri} is a stream, not a queue: say --stream")


def _is_stream(uri: Uri, name: str) -> bool:
    """Asked by a consumer that only a stream can have: at its end, so that it takes nothing.

    A broker that passes over arguments it does not know would let a queue have it too; so then by what a queue lets
    every consumer do and a stream none: to have no prefetch. What it was sent until it is gone is delivered again."""
    return _may_consume(uri, name, 1, {"x-stream-offset": "next"}) and not _may_consume(uri, name, 0, {})


def _may_consume(uri: Uri, name: str, prefetch: int, arguments: Table) -> bool:
    # A connection of its own: nothing else may be asked where a consumer is.
    with Connection.connect(uri, name="penstock pipeline") as connection:
        try:
            Consumer(connection.open_channel(), name, prefetch, arguments=arguments)
        except Closed as error:
            if error.code != PRECONDITION_FAILED:
                raise
            return False
    return True


def look_for_exchange(connection: Connection, exchange: str) -> None:
    """The default exchange, whose name is empty, is always there."""
    if exchange:
        connection.open_channel().call(ExchangeDeclare(exchange, passive=True), ExchangeDeclareOk)
