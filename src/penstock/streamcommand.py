"""`penstock stream`: declare, look at and delete streams of a running broker, over AMQP.

A partitioned stream is N streams NAME-0 … NAME-(N-1) behind a hash exchange NAME: a message's routing key decides which
of them it goes to, so what has one key stays in order. RabbitMQ names its super streams the same way.
A user's mistake is one line on stderr and a non-zero exit.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.table import Table as Picture

from penstock.amqp.method import (
    ExchangeDeclare,
    ExchangeDeclareOk,
    ExchangeDelete,
    ExchangeDeleteOk,
    QueueBind,
    QueueBindOk,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueDeleteOk,
)
from penstock.amqp.table import Table
from penstock.client.connection import Connection
from penstock.client.error import ClientError
from penstock.client.stream import offsets, partitions
from penstock.client.uri import UriError, parse_uri

PARTITIONS_MAX = 1000  # a mistyped number must not make a million files
HASH_EXCHANGE = "x-consistent-hash"
DEFAULT_URI = "amqp://localhost"

stream = typer.Typer(help="Streams of a running broker: declare, show, delete.", no_args_is_help=True)

UriOption = Annotated[str, typer.Option(help="The broker: amqp://user:password@host:port/vhost.")]
NameArgument = Annotated[str, typer.Argument(help="The stream's name.")]


@stream.command()
def declare(
    name: NameArgument,
    uri: UriOption = DEFAULT_URI,
    partition_count: Annotated[
        int, typer.Option("--partitions", help="So many streams behind a hash exchange; 0: one stream, no exchange.")
    ] = 0,
    max_bytes: Annotated[int | None, typer.Option(help="Keep about so many bytes (of each partition).")] = None,
    max_age: Annotated[str | None, typer.Option(help="Keep what is younger: 7D, 12h, 30m, 45s.")] = None,
    segment_bytes: Annotated[int | None, typer.Option(help="Size of a file; whole files are dropped.")] = None,
) -> None:
    """Declare a stream, or a partitioned one. It may be there already, if it is the same."""
    if not 0 <= partition_count <= PARTITIONS_MAX:
        _fail(f"--partitions is 0 to {PARTITIONS_MAX}, not {partition_count}")
    arguments: Table = {"x-queue-type": "stream"}
    for key, value in (
        ("x-max-length-bytes", max_bytes),
        ("x-max-age", max_age),
        ("x-stream-max-segment-size-bytes", segment_bytes),
    ):
        if value is not None:
            arguments[key] = value
    with _connected(uri) as connection:
        channel = connection.open_channel()
        if not partition_count:
            channel.call(QueueDeclare(name, durable=True, arguments=arguments), QueueDeclareOk)
            print(f"declared: stream {name}")
            return
        channel.call(ExchangeDeclare(name, HASH_EXCHANGE, durable=True), ExchangeDeclareOk)
        for number in range(partition_count):
            partition = f"{name}-{number}"
            channel.call(QueueDeclare(partition, durable=True, arguments=arguments), QueueDeclareOk)
            channel.call(QueueBind(partition, name, "1"), QueueBindOk)  # the key is the weight: all the same
        print(f"declared: exchange {name} and streams {name}-0 to {name}-{partition_count - 1}")


@stream.command()
def show(name: NameArgument, uri: UriOption = DEFAULT_URI) -> None:
    """The offsets a stream has, or each of its partitions."""
    with _connected(uri) as connection:
        picture = Picture("stream", "first offset", "next offset", "messages")
        for partition in _partitions(connection, name):
            found = offsets(connection.open_channel(), partition)
            picture.add_row(partition, str(found.first), str(found.next), f"{found.next - found.first:,}")
    Console().print(picture)


@stream.command()
def delete(name: NameArgument, uri: UriOption = DEFAULT_URI) -> None:
    """Delete a stream with all its messages; of a partitioned one, all partitions and the exchange."""
    with _connected(uri) as connection:
        found = _partitions(connection, name)
        channel = connection.open_channel()
        if found != [name]:
            channel.call(ExchangeDelete(name), ExchangeDeleteOk)
        for partition in found:
            channel.call(QueueDelete(partition), QueueDeleteOk)
    print(f"deleted: {', '.join(found)}")


def _partitions(connection: Connection, name: str) -> list[str]:
    found = partitions(connection, name)
    if not found:
        _fail(f"there is no stream {name!r}, nor {name}-0, at {connection.uri}")
    return found


@contextmanager
def _connected(uri: str) -> Iterator[Connection]:
    """Whatever goes wrong is one line."""
    try:
        connection = Connection.connect(parse_uri(uri), name="penstock stream")
        try:
            yield connection
        finally:
            connection.socket.close()
    except (ClientError, UriError) as error:
        _fail(str(error))


def _fail(text: str) -> NoReturn:
    print(f"penstock stream: {text}", file=sys.stderr)
    raise typer.Exit(1)
