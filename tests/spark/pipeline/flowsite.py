"""What the tests of the flow job share: a stream of made-up events, tables as sorted rows, and who compares them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from penstock.amqp.method import QueueDeclare, QueueDeclareOk
from penstock.amqp.properties import PERSISTENT, Properties, encode_properties
from penstock.client.connection import Connection
from penstock.client.error import LoginRefused
from penstock.client.publisher import Publisher
from penstock.client.stream import offsets
from penstock.client.uri import parse_uri
from penstock.spark.ledger import Ledger
from penstock.spark.ledger.manifest import moment
from penstock.spark.tables.schema import DERIVED, schema
from penstock.spark.tables.windows import window_start

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STREAM: Final = "penstock.events"
# A broker with this leaves the stream to others.
SILENT: Final = ("--set", "events.enabled=false")
PLACES: Final = 6  # of a float that are compared: sums are made in another order


def declare_events(uri: str) -> None:
    with Connection.connect(parse_uri(uri)) as connection:
        arguments = {"x-queue-type": "stream"}
        channel = connection.open_channel()
        channel.call(QueueDeclare(STREAM, durable=True, arguments=dict(arguments)), QueueDeclareOk)


def publish_events(uri: str, bodies: Sequence[str]) -> None:
    """To the stream of a silent broker."""
    properties = encode_properties(Properties(delivery_mode=PERSISTENT, content_type="application/json"))
    with Connection.connect(parse_uri(uri)) as connection:
        publisher = Publisher(connection.open_channel(), 1000)
        for body in bodies:
            publisher.publish("", STREAM, properties, body.encode())
        publisher.flush()


def fail_login(uri: str, user: str) -> None:
    """What a broker tells in an event of its own."""
    with pytest.raises(LoginRefused):
        Connection.connect(parse_uri(uri).with_login(user, "wrong"))


def event_rows(events: Sequence[Mapping[str, Any]], window_s: int) -> pa.Table:
    """As the table `events` has them, without a Spark: those fields that have the same names there."""
    shape = to_arrow_schema(schema("events"), timezone="UTC")
    rows = []
    for offset, event in enumerate(events):
        at = moment(event["at_us"])
        window = window_start(at, window_s)
        fields = {name: list(value.items()) if isinstance(value, dict) else value for name, value in event.items()}
        place = {"window": window, "day": window.date(), "offset": offset, "at": at}
        rows.append({**fields, **place, "body": json.dumps(event), "late": False})
    return pa.Table.from_pylist([{name: row.get(name) for name in shape.names} for row in rows], shape)


def take_all(spark: SparkSession, uri: str, tables: Path, window_s: int) -> None:
    """What `penstock pipeline flow --once` does, in the session that is there."""
    from penstock.spark.flowjob import FlowJob, FlowSettings

    with Ledger(tables).writing() as ledger:
        FlowJob(spark, ledger, FlowSettings(uri, tables, window_s)).run(once=True)


def next_offset(uri: str) -> int:
    with Connection.connect(parse_uri(uri)) as connection:
        return offsets(connection.open_channel(), STREAM).next


def plain(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{PLACES}g}")
    return str(value) if value is not None and not isinstance(value, int | str | bool) else value


def rows_of(table: pa.Table) -> list[str]:
    """Every row as text, sorted."""
    return sorted(json.dumps({name: plain(value) for name, value in row.items()}) for row in table.to_pylist())


def derived_rows(root: Path) -> dict[str, list[str]]:
    ledger = Ledger(root)
    return {name: rows_of(ledger.arrow(name)) for name in DERIVED}


def differences(one: dict[str, list[str]], other: dict[str, list[str]]) -> str:
    """What is in one and not in the other, a few lines for each table; empty: they are the same."""
    lines = []
    for name in one:
        mine, theirs = set(one[name]), set(other[name])
        lines += [f"{name}: only the first has {row}" for row in sorted(mine - theirs)[:3]]
        lines += [f"{name}: only the second has {row}" for row in sorted(theirs - mine)[:3]]
        if not mine ^ theirs and len(one[name]) != len(other[name]):
            lines.append(f"{name}: {len(one[name])} rows, and {len(other[name])}")
    return "\n".join(lines)


def offsets_of(root: Path) -> list[int]:
    found = Ledger(root).arrow("events", columns=["offset"])
    return sorted(found["offset"].to_pylist()) if found.num_columns else []
