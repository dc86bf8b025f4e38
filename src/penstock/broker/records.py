"""Records: definitions as they are written down: which of them, under which key, with which body.

A body has the shape of the object in RabbitMQ's definitions, so that the ledger and an export speak the same language.
Place in the chain: vhost.py records what it changes; definitions.py exports with the same bodies.
Not here: users (users.py), policies (policy.py), how it gets to the disk (ledger.py).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from penstock.broker.exchange import Binding, Exchange
from penstock.broker.ledger import Json, Ledger
from penstock.broker.plain import plain_table

if TYPE_CHECKING:
    from penstock.broker.queue import Queue

VHOST: Final = "vhost"
USER: Final = "user"
PERMISSION: Final = "permission"
TOPIC_PERMISSION: Final = "topic_permission"
EXCHANGE: Final = "exchange"
QUEUE: Final = "queue"
BINDING: Final = "binding"
POLICY: Final = "policy"
OPERATOR_POLICY: Final = "operator_policy"
PARAMETER: Final = "parameter"
GLOBAL_PARAMETER: Final = "global_parameter"
VHOST_LIMIT: Final = "vhost_limit"
QUEUE_LOG: Final = "queue_log"  # under which number the store knows a queue, and what is reserved; in no document


def queue_is_kept(queue: Queue) -> bool:
    """Durable, and not gone with its connection anyway."""
    return queue.durable and not queue.exclusive


def binding_is_kept(binding: Binding) -> bool:
    end = binding.destination
    return binding.source.durable and (end.durable if isinstance(end, Exchange) else queue_is_kept(end))


def record_queue(ledger: Ledger, vhost: str, queue: Queue) -> None:
    if queue_is_kept(queue):
        ledger.put(QUEUE, (vhost, queue.queue_name), queue_body(vhost, queue))


def record_log(ledger: Ledger, vhost: str, queue_name: str, id_: int, reserved: int = 0) -> None:
    """Under which number the message store knows the queue; and how many of its positions no other message gets."""
    body: dict[str, Json] = {"id": id_}
    if reserved:
        body["reserved"] = reserved
    ledger.put(QUEUE_LOG, (vhost, queue_name), body)


def record_exchange(ledger: Ledger, vhost: str, exchange: Exchange) -> None:
    if exchange.durable:
        ledger.put(EXCHANGE, (vhost, exchange.name), exchange_body(vhost, exchange))


def record_binding(ledger: Ledger, vhost: str, binding: Binding) -> None:
    if binding_is_kept(binding):
        body = binding_body(vhost, binding)
        ledger.put(BINDING, binding_key(body), body)


def drop_queue(ledger: Ledger, vhost: str, queue: Queue) -> None:
    if queue_is_kept(queue):
        ledger.drop(QUEUE, (vhost, queue.queue_name))
        ledger.drop(QUEUE_LOG, (vhost, queue.queue_name))


def drop_exchange(ledger: Ledger, vhost: str, exchange: Exchange) -> None:
    if exchange.durable:
        ledger.drop(EXCHANGE, (vhost, exchange.name))


def drop_binding(ledger: Ledger, vhost: str, binding: Binding) -> None:
    if binding_is_kept(binding):
        ledger.drop(BINDING, binding_key(binding_body(vhost, binding)))


def queue_body(vhost: str, queue: Queue) -> dict[str, Json]:
    return {
        "name": queue.queue_name,
        "vhost": vhost,
        "durable": queue.durable,
        "auto_delete": queue.auto_delete,
        "arguments": plain_table(queue.arguments),
    }


def exchange_body(vhost: str, exchange: Exchange) -> dict[str, Json]:
    return {
        "name": exchange.name,
        "vhost": vhost,
        "type": exchange.kind,
        "durable": exchange.durable,
        "auto_delete": exchange.auto_delete,
        "internal": exchange.internal,
        "arguments": plain_table(exchange.arguments),
    }


def binding_body(vhost: str, binding: Binding) -> dict[str, Json]:
    end = binding.destination
    to_exchange = isinstance(end, Exchange)
    return {
        "source": binding.source.name,
        "vhost": vhost,
        "destination": end.name if isinstance(end, Exchange) else end.queue_name,
        "destination_type": "exchange" if to_exchange else "queue",
        "routing_key": binding.key,
        "arguments": plain_table(binding.arguments),
    }


def parameter_body(vhost: str, component: str, name: str, value: Json) -> dict[str, Json]:
    return {"vhost": vhost, "component": component, "name": name, "value": value}


def limits_body(vhost: str, limits: dict[str, int]) -> dict[str, Json]:
    """RabbitMQ has the limits of a vhost among its parameters."""
    return parameter_body(vhost, "vhost-limits", "limits", dict(limits))


def binding_key(body: dict[str, Json]) -> tuple[str, ...]:
    """The same for two bindings that are the same binding: the order of arguments does not count."""
    names = [str(body[name]) for name in ("vhost", "source", "destination_type", "destination", "routing_key")]
    arguments = body["arguments"]
    assert isinstance(arguments, dict)
    if not arguments:
        return (*names, "{}")  # most have none, and there are many
    return (*names, json.dumps(dict(sorted(arguments.items())), separators=(",", ":")))
