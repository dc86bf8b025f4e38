"""Peer: a client's connection, as the broker sees it. net/connection.py is the real one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from penstock.amqp.close import CloseConnection
from penstock.amqp.decoder import Publishes
from penstock.broker.ledger import Json
from penstock.credit import Stage

if TYPE_CHECKING:
    from penstock.broker.access import Access
    from penstock.broker.channel import Channel
    from penstock.broker.outbox import Outbox
    from penstock.broker.queue import Queue
    from penstock.broker.vhost import VHost


class Peer(Protocol):
    name: str  # for people: address and port
    user: str
    vhost: VHost
    access: Access  # what the user may do in the vhost
    outbox: Outbox
    frame_max: int
    is_client: bool  # False: an errand of an operator, behind which there is no socket
    notify_cancel: bool  # the client understands a basic.cancel from the server
    numbers: bool  # its publishes may be numbered, to be told from their copies; others only pass such headers on
    exclusive_queues: dict[Queue, None]

    @property
    def reader(self) -> Stage | None:
        """Its first stage; None as long as it has none."""
        ...

    def fail(self, error: CloseConnection) -> None:
        """Close the connection with this error."""
        ...

    def channel_gone(self, channel: Channel) -> None:
        """The channel has terminated; its number is free again."""
        ...

    def unpark(self, channel: Channel, behind: int) -> list[Publishes]:
        """The channel's publishes that wait for credit and came before the method at hand; they wait no more."""
        ...

    def flow_state(self) -> str:
        """As people see it: `starting`, `running`, `flow`, `blocking`, `blocked` or `closing`."""
        ...

    def blocked_by(self) -> list[Json]:
        """What its reader waits for, in words."""
        ...

    def parked_bytes(self) -> int:
        """Of publishes that its reader keeps back."""
        ...

    def client_name(self) -> str:
        """What the client calls itself (connection_name), or empty."""
        ...

    def channel_count(self) -> int:
        """How many channels are open."""
        ...

    def octets(self) -> tuple[int, int, int, int]:
        """Bytes received and sent so far, and by how many reads and writes."""
        ...

    def work(self) -> tuple[int, int, int, int]:
        """Turns of its reader so far and the nanoseconds they took, about; the same of its writes."""
        ...

    def portrait(self) -> dict[str, Json]:
        """What only its socket and its client know, in RabbitMQ's JSON: addresses, limits, TLS, client properties."""
        ...
