"""Broker: what all connections share: vhosts, users, the hops' credit settings, the scheduler, and who is busy now.

Not here: sockets (net/), the order in which things are started and stopped (server.py).
"""

from __future__ import annotations

from typing import Final

from penstock.amqp.close import NOT_ALLOWED, CloseConnection
from penstock.broker.access import Access
from penstock.broker.acktimeout import AckTimeout
from penstock.broker.activity import Activity
from penstock.broker.alarms import Alarms
from penstock.broker.ledger import NO_LEDGER, Json, Ledger
from penstock.broker.parameters import drop_records
from penstock.broker.peer import Peer
from penstock.broker.peers import Peers
from penstock.broker.records import GLOBAL_PARAMETER, VHOST
from penstock.broker.tally import Past
from penstock.broker.users import Users
from penstock.broker.vault import Vault
from penstock.broker.vhost import VHost
from penstock.credit import Hop
from penstock.runtime import Scheduler

DEFAULT_VHOST: Final = "/"


class Broker:
    __slots__ = (
        "ack_timeout",
        "activity",
        "alarms",
        "channel_delay_us",
        "channel_queue",
        "global_parameters",
        "ledger",
        "past",
        "peers",
        "queue_delay_us",
        "reader_channel",
        "scheduler",
        "started_ns",
        "users",
        "vault",
        "vhosts",
    )

    def __init__(
        self,
        scheduler: Scheduler,
        reader_channel: Hop,
        channel_queue: Hop,
        channel_delay_us: int = 0,
        queue_delay_us: int = 0,
        ack_timeout_ms: int = 0,
    ) -> None:
        self.scheduler = scheduler
        self.reader_channel = reader_channel
        self.channel_queue = channel_queue
        self.channel_delay_us = channel_delay_us
        self.queue_delay_us = queue_delay_us
        self.activity = Activity(scheduler.clock)
        self.activity.watch(reader_channel)
        self.activity.watch(channel_queue)
        self.ack_timeout = AckTimeout(scheduler, ack_timeout_ms)
        self.alarms = Alarms()
        self.past = Past()  # what all channels counted that are gone
        self.started_ns = scheduler.clock.now_ns()
        self.alarms.noted = self.activity.alarmed
        self.users = Users()
        self.users.changed.append(self._permissions_changed)
        self.users.deleted.append(self._user_deleted)
        self.peers = Peers(self.users)
        self.ledger: Ledger = NO_LEDGER
        self.vault: Vault | None = None  # None: messages are in memory only
        self.global_parameters: dict[str, Json] = {}  # by name; of plugins, kept for them
        self.vhosts: dict[str, VHost] = {}
        self.add_vhost(DEFAULT_VHOST, {"description": "Default virtual host", "tags": []})

    def add_vhost(self, name: str, metadata: dict[str, Json] | None = None) -> VHost:
        """The vhost of this name, made if it is not there; described anew if `metadata` is given."""
        vhost = self.vhosts.get(name)
        if vhost is None:
            vhost = self.vhosts[name] = VHost(
                name, self.scheduler, self.activity, self.channel_queue, self.queue_delay_us
            )
            vhost.ledger = self.ledger
            vhost.vault = self.vault
            vhost.past = Past(self.past)
        elif metadata is None:
            return vhost
        vhost.metadata = dict(metadata) if metadata is not None else vhost.metadata
        self.ledger.put(VHOST, (name,), vhost.body())
        return vhost

    def delete_vhost(self, name: str) -> None:
        """With its queues, and with what anybody may do there; its connections are closed."""
        vhost = self.vhosts.pop(name)
        self.peers.close_vhost(name, f"vhost '{name}' is deleted")
        for queue in list(vhost.queues.values()):
            queue.delete()
        drop_records(vhost)
        self.users.forget_vhost(name)
        self.ledger.drop(VHOST, (name,))

    def put_global_parameter(self, name: str, value: Json) -> None:
        self.global_parameters[name] = value
        self.ledger.put(GLOBAL_PARAMETER, (name,), {"name": name, "value": value})

    def drop_global_parameter(self, name: str) -> bool:
        """False if there is none of this name."""
        if name not in self.global_parameters:
            return False
        del self.global_parameters[name]
        self.ledger.drop(GLOBAL_PARAMETER, (name,))
        return True

    def keep_in(self, ledger: Ledger) -> None:
        """Record all changes there from now on; what is there already, definitions.py:restore brings together."""
        self.ledger = ledger
        self.users.ledger = ledger
        for vhost in self.vhosts.values():
            vhost.ledger = ledger

    def keep_messages(self, vault: Vault) -> None:
        """Queues that are made from now on keep their messages there."""
        self.vault = vault
        self.activity.watch(vault.store.hop)
        for vhost in self.vhosts.values():
            vhost.vault = vault

    # Connections.

    def enter(self, peer: Peer, name: str) -> None:
        """connection.open: the peer is in this vhost from now on, or 530. Checks in RabbitMQ's order."""
        vhost = self.vhosts.get(name)
        if vhost is None:
            raise CloseConnection(NOT_ALLOWED, f"vhost {name} not found", 10, 40)
        self.peers.check_connection(peer.user, vhost)
        if self.users.permission(peer.user, name) is None:
            raise CloseConnection(NOT_ALLOWED, f"access to vhost '{name}' refused for user '{peer.user}'", 10, 40)
        peer.vhost = vhost
        peer.access = Access(self.users, peer.user, name)
        self.peers.add(peer)

    def _permissions_changed(self, name: str) -> None:
        """Routes are cached with the permission to use them, so they must be found anew."""
        vhost = self.vhosts.get(name)
        if vhost is not None:
            vhost.version += 1

    def _user_deleted(self, name: str) -> None:
        self.peers.close_user(name, f"user '{name}' is deleted")

    def __repr__(self) -> str:
        return f"<Broker vhosts={len(self.vhosts)}>"
