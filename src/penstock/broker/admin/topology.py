"""Topology: an operator declares, deletes, purges and binds, with the checks and the words that a client would get.

Place: behind Admin. A user is checked as on a channel: configure, write, read and topics; without one nothing is.
Not here: messages (errand.py), what is recorded and when (vhost.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from urllib.parse import unquote_plus

from penstock.amqp.close import PRECONDITION_FAILED, CloseChannel, CloseConnection
from penstock.amqp.method import ExchangeDeclare, QueueDeclare
from penstock.amqp.table import Table
from penstock.broker.access import EXCHANGE, QUEUE, Access
from penstock.broker.admin.errand import Errand
from penstock.broker.admin.error import AdminError, from_close
from penstock.broker.broker import Broker
from penstock.broker.exchange import TOPIC, Exchange, check_type
from penstock.broker.ledger import Json
from penstock.broker.plain import table_of
from penstock.broker.queue import Queue
from penstock.broker.snapshot.exchanges import Bound, bindings_of, properties_key
from penstock.broker.stream import Stream
from penstock.broker.vhost import RESERVED_PREFIX, VHost


class Topology:
    """What one user, or an operator without one, may do in a vhost."""

    __slots__ = ("_access", "_peer", "_vhost")

    def __init__(self, broker: Broker, vhost: VHost, user: str | None) -> None:
        self._vhost = vhost
        self._access = Access(broker.users, user, vhost.name) if user is not None else None
        self._peer = Errand(broker, vhost, user)

    # Queues.

    def declare_queue(
        self, name: str, durable: bool, auto_delete: bool, arguments: Mapping[str, Json], kind: str = ""
    ) -> bool:
        """True if it is new. `kind` is the type, if the arguments do not say it."""
        table = _table(arguments)
        if kind:
            table.setdefault("x-queue-type", kind)
        if not name:
            raise AdminError("a queue needs a name")
        with _told():
            self._check_declare(QUEUE, name, "x-dead-letter-exchange", table)
            is_new = name not in self._vhost.queues
            method = QueueDeclare(name, durable=durable, auto_delete=auto_delete, arguments=table)
            self._vhost.declare_queue(method, self._peer)
        return is_new

    def _check_declare(self, kind: str, name: str, beyond: str, arguments: Table) -> None:
        """As command.py has it for clients."""
        access, vhost = self._access, self._vhost
        if access is None or name.startswith(RESERVED_PREFIX):  # that is refused by the vhost, to anybody
            return
        access.configure(kind, name)
        exists = name in (vhost.queues if kind == QUEUE else vhost.exchanges)
        target = arguments.get(beyond)
        if not exists and isinstance(target, str):
            access.read(kind, name)
            access.write(EXCHANGE, target)

    def delete_queue(self, name: str, if_empty: bool = False, if_unused: bool = False) -> int:
        """How many messages were in it."""
        queue = self._queue(name)
        with _told():
            if self._access is not None:
                self._access.configure(QUEUE, name)
            self._vhost.check_unprotected(name)
            self._vhost.queue(name, self._peer)
            where = f"queue '{name}' in vhost '{self._vhost.name}'"
            if if_unused and queue.subscribers.count:
                raise CloseChannel(PRECONDITION_FAILED, f"{where} in use")
            if if_empty and queue.count():
                raise CloseChannel(PRECONDITION_FAILED, f"{where} not empty")
        messages = queue.count()
        queue.delete()
        return messages

    def purge_queue(self, name: str) -> int:
        """How many messages there were."""
        queue = self._queue(name)
        with _told():
            if self._access is not None:
                self._access.read(QUEUE, name)
            self._vhost.check_unprotected(name)
            self._vhost.queue(name, self._peer)
            if isinstance(queue, Stream):
                raise queue.refusal("queue.purge")
        return queue.purge()

    def _queue(self, name: str) -> Queue:
        queue = self._vhost.queues.get(name)
        if queue is None:
            raise AdminError(f"there is no queue '{name}' in vhost '{self._vhost.name}'", missing=True)
        return queue

    # Exchanges.

    def declare_exchange(
        self, name: str, kind: str, durable: bool, auto_delete: bool, internal: bool, arguments: Mapping[str, Json]
    ) -> bool:
        """True if it is new."""
        table = _table(arguments)
        with _told():
            check_type(kind)
            if name:
                self._check_declare(EXCHANGE, name, "alternate-exchange", table)
            is_new = name not in self._vhost.exchanges
            self._vhost.declare_exchange(
                ExchangeDeclare(
                    name, kind, durable=durable, auto_delete=auto_delete, internal=internal, arguments=table
                )
            )
        return is_new

    def delete_exchange(self, name: str, if_unused: bool = False) -> None:
        self._exchange(name)
        with _told():
            if self._access is not None and name and not name.startswith(RESERVED_PREFIX):
                self._access.configure(EXCHANGE, name)
            self._vhost.delete_exchange(name, if_unused)

    def _exchange(self, name: str) -> Exchange:
        exchange = self._vhost.exchanges.get(name)
        if exchange is None:
            raise AdminError(f"there is no exchange '{name}' in vhost '{self._vhost.name}'", missing=True)
        return exchange

    # Bindings.

    def bind(self, source: str, destination: str, kind: str, key: str, arguments: Mapping[str, Json]) -> str:
        """Its properties_key. As often as one likes."""
        table = _table(arguments)
        with _told():
            self._check_bind(source, destination, kind, key)
            exchange = self._vhost.exchange(source)
            self._vhost.bind(exchange, self._destination(kind, destination), key, table)
        for bound in bindings_of(self._vhost, source, kind, destination):
            if bound.binding is not None and bound.key() == key and bound.binding.arguments == table:
                return properties_key(key, bound.binding)
        return properties_key(key, None)

    def unbind(self, source: str, destination: str, kind: str, props_key: str) -> None:
        """The one with this properties_key, as RabbitMQ's API names it."""
        bound = self.binding(source, destination, kind, props_key)
        with _told():
            self._check_bind(source, destination, kind, bound.key())
            arguments = bound.binding.arguments if bound.binding is not None else {}
            self._vhost.unbind(source, self._destination(kind, destination), bound.key(), arguments)

    def binding(self, source: str, destination: str, kind: str, props_key: str) -> Bound:
        there = {
            properties_key(one.key(), one.binding): one for one in bindings_of(self._vhost, source, kind, destination)
        }
        if props_key in there:
            return there[props_key]
        for told, bound in there.items():  # put into a path as it was told, it is unquoted; RabbitMQ takes that too
            if unquote_plus(told) == props_key:
                return bound
        raise AdminError(
            f"there is no binding '{props_key}' from '{source}' to {kind} '{destination}' in vhost "
            f"'{self._vhost.name}'",
            missing=True,
        )

    def _destination(self, kind: str, name: str) -> Queue | Exchange:
        if kind == QUEUE:
            return self._vhost.queue(name, self._peer)
        return self._vhost.exchange(name)

    def _check_bind(self, source: str, destination: str, kind: str, key: str) -> None:
        access, vhost = self._access, self._vhost
        if access is not None:
            access.write(kind, destination)
        if kind == EXCHANGE:
            vhost.check_not_default(destination)
        else:
            vhost.check_unprotected(destination)
        vhost.check_not_default(source)
        if access is None:
            return
        access.read(EXCHANGE, source)
        exchange = vhost.exchanges.get(source)
        if exchange is not None and exchange.kind == TOPIC:
            access.read_topic(source, key)


def _table(arguments: Mapping[str, Json]) -> Table:
    try:
        return table_of(dict(arguments))
    except ValueError as error:
        raise AdminError(f"arguments: {error}") from None


@contextmanager
def _told() -> Iterator[None]:
    """What would close a client's channel is the operator's mistake."""
    try:
        yield
    except (CloseChannel, CloseConnection) as error:
        raise from_close(error) from None
