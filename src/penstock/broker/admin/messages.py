"""Messages: publish and get for an operator, in RabbitMQ's JSON.

Place: behind Admin; errand.py takes the messages there and back. Not here: HTTP (management/).
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from struct import error as StructError
from typing import Final

from penstock.amqp import content
from penstock.amqp.properties import Properties, decode_properties, encode_properties
from penstock.broker.admin.errand import Errand, Fetching, Got, Posting
from penstock.broker.admin.error import AdminError
from penstock.broker.broker import Broker
from penstock.broker.ledger import Json
from penstock.broker.plain import plain_table, table_of
from penstock.broker.vhost import VHost

ACK_MODES: Final = ("ack_requeue_true", "ack_requeue_false", "reject_requeue_true", "reject_requeue_false")
ENCODINGS: Final = ("auto", "base64")
TEXTS: Final = (
    "content_type",
    "content_encoding",
    "correlation_id",
    "reply_to",
    "expiration",
    "message_id",
    "type",
    "user_id",
    "app_id",
    "cluster_id",
)
NUMBERS: Final = {"delivery_mode": 255, "priority": 255, "timestamp": (1 << 64) - 1}  # and the most they can be


def publish(
    broker: Broker,
    vhost: VHost,
    user: str,
    exchange: str,
    key: str,
    properties: Mapping[str, Json],
    body: bytes,
    done: Callable[[bool], None],
) -> None:
    if broker.alarms:
        raise AdminError(f"publishers are blocked: {broker.alarms.text()}")
    encoded = _encoded(properties)
    _check_name("exchange", exchange)
    _check_name("routing_key", key)
    Posting(Errand(broker, vhost, user), done).publish(exchange, key, encoded, body)


def _check_name(what: str, text: str) -> None:
    if len(text.encode("utf-8", "surrogateescape")) > 255:
        raise AdminError(f"'{what}' is longer than 255 bytes")


def _encoded(properties: Mapping[str, Json]) -> bytes:
    found = Properties()
    for name, value in properties.items():
        if value is None:
            continue
        if name in TEXTS:
            if not isinstance(value, str):
                raise AdminError(f"property '{name}' is not a string")
            setattr(found, name, value)
        elif name in NUMBERS:
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= NUMBERS[name]:
                raise AdminError(f"property '{name}' is not an integer from 0 to {NUMBERS[name]}")
            setattr(found, name, value)
        elif name == "headers":
            if not isinstance(value, dict):
                raise AdminError("property 'headers' is not an object")
            try:
                found.headers = table_of(value)
            except ValueError as error:
                raise AdminError(f"property 'headers': {error}") from None
        # Others are left out, as in RabbitMQ.
    try:
        return encode_properties(found)
    except (ValueError, StructError, OverflowError) as error:
        raise AdminError(f"properties: {error}") from None


def get(
    broker: Broker,
    vhost: VHost,
    user: str,
    queue: str,
    count: int,
    ackmode: str,
    encoding: str,
    truncate: int | None,
    done: Callable[[list[dict[str, Json]]], None],
) -> Callable[[], None]:
    """To be called when nobody waits for `done` any more: then nothing is lost."""
    if ackmode not in ACK_MODES:
        raise AdminError(f"'ackmode' is none of {', '.join(ACK_MODES)}")
    if encoding not in ENCODINGS:
        raise AdminError(f"'encoding' is none of {', '.join(ENCODINGS)}")
    if count < 1:
        done([])
        return _nothing

    def got(messages: list[Got], fetching: Fetching) -> None:
        if ackmode == "ack_requeue_false":
            fetching.ack()
        else:
            fetching.reject(requeue=ackmode != "reject_requeue_false")
        done([_view(method_content, encoding, truncate) for method_content in messages])

    fetching = Fetching(Errand(broker, vhost, user), queue, count, got)
    fetching.begin()
    return fetching.abandon


def _nothing() -> None:
    """There is nothing to abandon."""


def _view(got: Got, encoding: str, truncate: int | None) -> dict[str, Json]:
    method, wire = got
    body = content.body(wire) if len(wire) > content.properties_end(wire) + 1 else b""
    properties = decode_properties(wire, content.FLAGS_OFFSET, content.properties_end(wire))
    payload, used = _payload(body if truncate is None else body[: max(0, truncate)], encoding)
    return {
        "payload_bytes": len(body),
        "redelivered": method.redelivered,
        "exchange": method.exchange,
        "routing_key": method.routing_key,
        "message_count": method.message_count,
        "properties": properties_view(properties),
        "payload": payload,
        "payload_encoding": used,
    }


def _payload(body: bytes, encoding: str) -> tuple[str, str]:
    if encoding == "auto":
        try:
            return body.decode("utf-8"), "string"
        except UnicodeDecodeError:
            pass  # then as the other one
    return base64.b64encode(body).decode(), "base64"


def properties_view(properties: Properties) -> dict[str, Json]:
    """Those that are there."""
    view: dict[str, Json] = {}
    for name in (*TEXTS, *NUMBERS):
        value = getattr(properties, name)
        if value is not None:
            view[name] = value
    if properties.headers is not None:
        view["headers"] = plain_table(properties.headers)
    return view
