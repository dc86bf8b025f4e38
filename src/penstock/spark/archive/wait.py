"""Archive wait: a broker that is away is waited for, with a line; what it refuses is an error at once.

Used by job.py and replay/job.py, before Spark starts, which takes seconds, and again when a job failed.
Not here: the outages that source and sink bridge by themselves (patience.py).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from penstock.amqp.method import ExchangeDeclare, ExchangeDeclareOk, QueueDeclare, QueueDeclareOk
from penstock.client.connection import Connection
from penstock.client.error import ClientError
from penstock.client.stream import partitions
from penstock.client.uri import Uri
from penstock.spark.complaint import Complaint
from penstock.spark.fault import missing_stream
from penstock.spark.patience import is_passing

WAIT_S: Final = 1.0

Say = Callable[[str], None]


def await_broker(uri: Uri, look: Callable[[Connection], None], stop: threading.Event, say: Say) -> bool:
    """Wait until the broker answers, and `look` at it. False: the job is to stop."""
    told = False
    while not stop.is_set():
        try:
            with Connection.connect(uri, name="penstock pipeline") as connection:
                look(connection)
        except ClientError as error:
            if not is_passing(error):
                raise Complaint(f"{error} (uri {uri})") from None
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
    if not partitions(connection, stream):
        raise Complaint(str(missing_stream(stream, connection.uri)))


def look_for_queue(connection: Connection, queue: str) -> None:
    connection.open_channel().call(QueueDeclare(queue, passive=True), QueueDeclareOk)


def look_for_exchange(connection: Connection, exchange: str) -> None:
    """The default exchange, whose name is empty, is always there."""
    if exchange:
        connection.open_channel().call(ExchangeDeclare(exchange, passive=True), ExchangeDeclareOk)
