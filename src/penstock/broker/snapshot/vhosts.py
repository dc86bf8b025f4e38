"""Vhosts: each as an operator sees it, in RabbitMQ's JSON.

Place: admin hands these to management. Not here: the vhost's own description, as definitions have it (vhost.py).
"""

from __future__ import annotations

from penstock.broker.broker import Broker
from penstock.broker.ledger import Json
from penstock.broker.snapshot.common import message_stats, node_name
from penstock.broker.snapshot.totals import Sum
from penstock.broker.vhost import VHost


def vhost_view(broker: Broker, vhost: VHost, found: Sum) -> dict[str, Json]:
    octets = [peer.octets() for peer in broker.peers.of_vhost(vhost.name)]
    metadata = vhost.metadata
    return {
        **vhost.body(),
        "description": metadata.get("description", ""),
        "tags": metadata.get("tags", []),
        "tracing": False,
        "default_queue_type": "undefined",
        "cluster_state": {node_name(): "running"},
        "messages": found.ready + found.unacknowledged,
        "messages_ready": found.ready,
        "messages_unacknowledged": found.unacknowledged,
        "recv_oct": sum(one[0] for one in octets),
        "send_oct": sum(one[1] for one in octets),
        "message_stats": message_stats(found.counts),
    }
