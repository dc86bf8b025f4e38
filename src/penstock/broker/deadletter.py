"""Dead letter: where a message goes that a queue gives up, and what is written into it.

Place in the chain: a queue hands over what expired, was rejected, was one too many or was delivered too often; this
routes it through the dead-letter exchange to other queues. There the first queue is the upstream stage: it spends
credit on a link, so that a slow dead-letter queue holds back whoever publishes into the first. Only where dead letters
go in a circle is there no link, since two stages that wait for each other would wait for ever.
Not here: when a message dies (queue.py).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from penstock.amqp import content
from penstock.amqp.decoder import Message, Publish
from penstock.amqp.frame import HEAD_BYTES
from penstock.amqp.method import BasicPublish, encode_method
from penstock.amqp.properties import Properties, decode_properties
from penstock.amqp.rewrite import rewrite
from penstock.amqp.table import Table, Timestamp, Value, encode_table
from penstock.broker.casts import Arrival, Burial
from penstock.broker.rules import header_keys
from penstock.credit import Hop, Link, Stage

if TYPE_CHECKING:
    from penstock.broker.queue import Queue
    from penstock.broker.vhost import VHost

EXPIRED: Final = "expired"
REJECTED: Final = "rejected"
MAXLEN: Final = "maxlen"
DELIVERY_LIMIT: Final = "delivery_limit"

PUBLISHES_MAX: Final = 1024  # decoded publish methods kept for dead letters; then forgotten all at once


class DeadLetters:
    """The way of dead letters in one vhost."""

    __slots__ = ("_hop", "_publishes", "_vhost")

    def __init__(self, vhost: VHost, hop: Hop) -> None:
        self._vhost = vhost
        self._hop = hop
        self._publishes: dict[tuple[int, str, str], Publish] = {}

    def bury(self, queue: Queue, messages: list[Message], reason: str, burial: Burial) -> None:
        """These messages of the queue died of this reason: send them on, if it has a dead-letter exchange. The burial
        is told by every queue that takes them."""
        options = queue.options
        exchange = self._vhost.exchanges.get(options.dead_letter_exchange or "")
        if options.dead_letter_exchange is None or exchange is None:
            return
        arrivals: dict[Queue, Arrival] = {}
        now_s = int(time.time())
        for message in messages:
            publish, wire = message
            properties = _properties(wire)
            headers = properties.headers or {}
            key = publish.routing_key if options.dead_letter_key is None else options.dead_letter_key
            more_keys: tuple[str, ...] = ()
            if options.dead_letter_key is None:
                more_keys = (*header_keys(headers), *publish.bcc)
            letter = self._publish(publish, exchange.name, key), _with_death(queue, message, properties, reason, now_s)
            route = self._vhost.route(exchange, key, None, more_keys)
            if route.by_headers:  # by what it says now, x-death and all
                route = self._vhost.route(exchange, key, _properties(letter[1]), more_keys)
            for target in route.queues:
                if not _is_cycle(target.queue_name, headers, queue.queue_name, reason):
                    arrival = arrivals.get(target)
                    if arrival is None:
                        arrival = arrivals[target] = Arrival(None, self._link(queue, target), [], 0, [])
                    arrival.add(letter)
        for target, arrival in arrivals.items():
            if arrival.link is not None:
                arrival.link.spend(len(arrival.messages), arrival.bytes)
            arrival.burial = burial
            burial.waiting += 1
            target.cast(arrival)

    def _publish(self, original: Publish, exchange: str, key: str) -> Publish:
        identity = (original.channel, exchange, key)
        publish = self._publishes.get(identity)
        if publish is None:
            frame = encode_method(BasicPublish(exchange, key), original.channel)
            publish = Publish(original.channel, frame[HEAD_BYTES:-1])
            if len(self._publishes) >= PUBLISHES_MAX:
                self._publishes.clear()
            self._publishes[identity] = publish
        return publish

    def _link(self, queue: Queue, target: Queue) -> Link | None:
        link = queue.outgoing.get(target)
        if link is None and not _leads_to(target, queue):
            link = Link(self._hop, queue, target)
        return link


def _properties(wire: bytes) -> Properties:
    return decode_properties(wire, content.FLAGS_OFFSET, content.properties_end(wire))


def _leads_to(start: Stage, goal: Stage) -> bool:
    """Whether dead letters go from one stage to the other already."""
    seen = {start}
    waiting = [start]
    while waiting:
        stage = waiting.pop()
        if stage is goal:
            return True
        for further in stage.outgoing:
            if further not in seen:
                seen.add(further)
                waiting.append(further)
    return False


def _with_death(queue: Queue, message: Message, properties: Properties, reason: str, now_s: int) -> bytes:
    """The content with this death in its `x-death` header, counted if it is not the first of its kind."""
    publish, wire = message
    headers = properties.headers or {}
    keys: list[Value] = [_raw(key) for key in (publish.routing_key, *header_keys(headers))]
    death: Table = {
        "reason": reason,
        "queue": queue.queue_name,
        "time": Timestamp(now_s),
        "exchange": _raw(publish.exchange),
        "routing-keys": keys,
    }
    if properties.expiration is not None:
        death["original-expiration"] = properties.expiration
    known = headers.get("x-death")
    others: list[bytes] = []
    first = b""
    for table in known if isinstance(known, list) else ():
        if not isinstance(table, dict):
            continue
        if not first and table.get("queue") == queue.queue_name and table.get("reason") == reason:
            count = table.get("count")
            again = count + 1 if isinstance(count, int) else 2
            first = _death_bytes(again, {name: table[name] for name in sorted(table)})
        else:
            count = table.get("count")
            others.append(_death_bytes(count if isinstance(count, int) else 1, table))
    deaths = b"".join((first or _death_bytes(1, death), *others))
    changed = {"x-death": b"A" + len(deaths).to_bytes(4, "big") + deaths}
    if "x-death" not in headers:
        changed["x-first-death-reason"] = _long_string(reason)
        changed["x-first-death-queue"] = _long_string(queue.queue_name)
        changed["x-first-death-exchange"] = _long_string(publish.exchange)
    drop = () if queue.options.dead_letter_key is None else ("CC",)
    return rewrite(wire, drop_headers=drop, set_headers=changed, drop_expiration=True)


def _death_bytes(count: int, death: Table) -> bytes:
    """A table as a value, with `count` as a 64 bit integer, as RabbitMQ has it."""
    rest = encode_table({name: value for name, value in death.items() if name != "count"})[4:]
    table = b"\x05countl" + count.to_bytes(8, "big", signed=True) + rest
    return b"F" + len(table).to_bytes(4, "big") + table


def _raw(text: str) -> bytes:
    """Names are bytes to RabbitMQ, and as a long string they stay so."""
    return text.encode("utf-8", "surrogateescape")


def _long_string(text: str) -> bytes:
    raw = _raw(text)
    return b"S" + len(raw).to_bytes(4, "big") + raw


def _is_cycle(target: str, headers: Table, queue: str, reason: str) -> bool:
    """Whether the message would come back to a queue it died in, with nobody having rejected it on the way."""
    deaths = headers.get("x-death")
    way = [(queue, reason)]
    for table in deaths if isinstance(deaths, list) else ():
        if isinstance(table, dict) and (table.get("queue"), table.get("reason")) != (queue, reason):
            way.append((str(table.get("queue")), str(table.get("reason"))))
    for at, (name, _) in enumerate(way):
        if name == target:
            return all(why != REJECTED for _, why in way[: at + 1])
    return False
