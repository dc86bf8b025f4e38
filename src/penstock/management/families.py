"""Families: every metric of /metrics by name, type and meaning, and where its number comes from.

RabbitMQ's names where RabbitMQ has a metric (those of its plugin rabbitmq_prometheus, 3.10), `penstock_` for what it
has none for. docs/metrics.md lists them all, and a test holds it to this table.
Place: metrics.py gathers the numbers and writes them down in this order. Not here: how they look (exposition.py).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock.management.exposition import COUNTER, GAUGE, HISTOGRAM, Family


class Plain(NamedTuple):
    """A family with one number, found by section and key in what was gathered."""

    family: Family
    section: str
    key: str
    scale: float = 1  # what it is multiplied with


class PerObject(NamedTuple):
    """A family with a number for each object, found by its column."""

    family: Family
    column: str


def _counter(name: str, section: str, key: str, text: str, scale: float = 1) -> Plain:
    return Plain(Family(name, COUNTER, text), section, key, scale)


def _gauge(name: str, section: str, key: str, text: str, scale: float = 1) -> Plain:
    return Plain(Family(name, GAUGE, text), section, key, scale)


BUILD: Final = Family("rabbitmq_build_info", GAUGE, "Versions of the broker; the value is 1")
IDENTITY: Final = Family("rabbitmq_identity_info", GAUGE, "Name of the node and of its cluster; the value is 1")

# Sections: of the overview (message_stats, churn_rates, queue_totals, object_totals), the node, its store, of
# flow_totals (flow, events), of this process (process).
PLAIN: Final = (
    _gauge("rabbitmq_connections", "object_totals", "connections", "Connections that are open"),
    _gauge("rabbitmq_channels", "object_totals", "channels", "Channels that are open"),
    _gauge("rabbitmq_consumers", "object_totals", "consumers", "Consumers"),
    _gauge("rabbitmq_queues", "object_totals", "queues", "Queues and streams"),
    _gauge("penstock_exchanges", "object_totals", "exchanges", "Exchanges"),
    _gauge("rabbitmq_queue_consumers", "object_totals", "consumers", "Consumers of all queues"),
    _gauge("rabbitmq_queue_messages_ready", "queue_totals", "messages_ready", "Messages ready to be delivered"),
    _gauge(
        "rabbitmq_queue_messages_unacked",
        "queue_totals",
        "messages_unacknowledged",
        "Messages delivered and not yet acknowledged",
    ),
    _gauge("rabbitmq_queue_messages", "queue_totals", "messages", "Messages in all queues, ready and unacknowledged"),
    _counter("rabbitmq_queue_messages_published_total", "message_stats", "publish", "Messages published"),
    _counter("rabbitmq_queue_disk_reads_total", "message_stats", "disk_reads", "Messages read back from disk"),
    _counter("rabbitmq_queue_disk_writes_total", "message_stats", "disk_writes", "Messages written to disk"),
    _counter("rabbitmq_channel_messages_published_total", "message_stats", "publish", "Messages published"),
    _counter("rabbitmq_channel_messages_confirmed_total", "message_stats", "confirm", "Messages confirmed"),
    _counter(
        "rabbitmq_channel_messages_unroutable_returned_total",
        "message_stats",
        "return_unroutable",
        "Mandatory messages returned because no queue takes them",
    ),
    _counter(
        "rabbitmq_channel_messages_unroutable_dropped_total",
        "message_stats",
        "drop_unroutable",
        "Messages dropped because no queue takes them",
    ),
    _counter(
        "rabbitmq_channel_messages_delivered_ack_total",
        "message_stats",
        "deliver",
        "Messages delivered to consumers that acknowledge",
    ),
    _counter(
        "rabbitmq_channel_messages_delivered_total",
        "message_stats",
        "deliver_no_ack",
        "Messages delivered to consumers that do not acknowledge",
    ),
    _counter("rabbitmq_channel_messages_redelivered_total", "message_stats", "redeliver", "Messages delivered again"),
    _counter("rabbitmq_channel_messages_acked_total", "message_stats", "ack", "Messages acknowledged"),
    _counter("rabbitmq_channel_get_ack_total", "message_stats", "get", "Messages got by basic.get, with ack"),
    _counter(
        "rabbitmq_channel_get_total",
        "message_stats",
        "get_no_ack",
        "Messages got by basic.get, without ack",
    ),
    _counter("rabbitmq_channel_get_empty_total", "message_stats", "get_empty", "basic.get that found nothing"),
    _counter("rabbitmq_connections_opened_total", "churn_rates", "connection_created", "Connections opened"),
    _counter("rabbitmq_connections_closed_total", "churn_rates", "connection_closed", "Connections closed"),
    _counter("rabbitmq_channels_opened_total", "churn_rates", "channel_created", "Channels opened"),
    _counter("rabbitmq_channels_closed_total", "churn_rates", "channel_closed", "Channels closed"),
    _counter("rabbitmq_queues_declared_total", "churn_rates", "queue_declared", "Queues declared, new or not"),
    _counter("rabbitmq_queues_created_total", "churn_rates", "queue_created", "Queues created"),
    _counter("rabbitmq_queues_deleted_total", "churn_rates", "queue_deleted", "Queues deleted"),
    _gauge("rabbitmq_process_open_fds", "node", "fd_used", "File descriptors that are open"),
    _gauge("rabbitmq_process_max_fds", "node", "fd_total", "File descriptors that may be open"),
    _gauge("rabbitmq_process_open_tcp_sockets", "node", "sockets_used", "Client sockets that are open"),
    _gauge("rabbitmq_process_max_tcp_sockets", "node", "sockets_total", "Client sockets that may be open"),
    _gauge("rabbitmq_process_resident_memory_bytes", "node", "mem_used", "Memory that the broker uses, in bytes"),
    _gauge("rabbitmq_resident_memory_limit_bytes", "node", "mem_limit", "Memory at which the alarm begins, in bytes"),
    _gauge("rabbitmq_disk_space_available_bytes", "node", "disk_free", "Free space of the data directory, in bytes"),
    _gauge(
        "rabbitmq_disk_space_available_limit_bytes",
        "node",
        "disk_free_limit",
        "Free space at which the alarm begins, in bytes",
    ),
    _gauge("rabbitmq_erlang_uptime_seconds", "node", "uptime", "Seconds since the broker started", 0.001),
    _gauge("rabbitmq_alarms_memory_used_watermark", "node", "mem_alarm", "1 while the memory alarm is on"),
    _gauge("rabbitmq_alarms_free_disk_space_watermark", "node", "disk_free_alarm", "1 while the disk alarm is on"),
    _counter("rabbitmq_io_sync_ops_total", "store", "syncs", "Syncs of the store's files"),
    _counter("rabbitmq_io_sync_time_seconds_total", "store", "sync_seconds", "Seconds spent in syncs"),
    _counter("rabbitmq_io_write_bytes_total", "store", "written_bytes", "Bytes written by the store"),
    _gauge("penstock_store_pending_messages", "store", "pending_messages", "Messages that wait for the disk"),
    _gauge("penstock_store_pending_bytes", "store", "pending_bytes", "Bytes of messages that wait for the disk"),
    _gauge("penstock_store_sync_longest_seconds", "store", "sync_max_s", "The longest sync so far, in seconds"),
    _gauge("penstock_parked_bytes", "flow", "parked_bytes", "Bytes of publishes parked in connections"),
    _gauge("penstock_held_confirms", "flow", "held_confirms", "Confirms held back by saturated queues"),
    _gauge("penstock_saturated_queues", "flow", "saturated_queues", "Queues above their stop watermark"),
    _counter("penstock_events_written_total", "events", "written", "Events written to the stream penstock.events"),
    _counter("penstock_events_dropped_total", "events", "dropped", "Events dropped because there were too many"),
    _gauge("penstock_event_loop_lag_seconds", "process", "lag_s", "How late the last timer of the event loop was"),
    _gauge(
        "penstock_event_loop_lag_longest_seconds", "process", "lag_worst_s", "The latest timer of the event loop so far"
    ),
    _counter("process_cpu_seconds_total", "process", "cpu_s", "CPU time of the broker's process, in seconds"),
    _gauge("process_start_time_seconds", "process", "started_s", "When the process started, in seconds since 1970"),
)

# RabbitMQ has these with the label protocol.
GLOBAL: Final = (
    _counter("rabbitmq_global_messages_received_total", "message_stats", "publish", "Messages received"),
    _counter("rabbitmq_global_messages_confirmed_total", "message_stats", "confirm", "Messages confirmed"),
    _counter("rabbitmq_global_messages_delivered_total", "message_stats", "deliver_get", "Messages delivered or got"),
    _counter(
        "rabbitmq_global_messages_delivered_consume_manual_ack_total",
        "message_stats",
        "deliver",
        "Messages delivered to consumers that acknowledge",
    ),
    _counter(
        "rabbitmq_global_messages_delivered_consume_auto_ack_total",
        "message_stats",
        "deliver_no_ack",
        "Messages delivered to consumers that do not acknowledge",
    ),
    _counter(
        "rabbitmq_global_messages_delivered_get_manual_ack_total",
        "message_stats",
        "get",
        "Messages got by basic.get, with ack",
    ),
    _counter(
        "rabbitmq_global_messages_delivered_get_auto_ack_total",
        "message_stats",
        "get_no_ack",
        "Messages got by basic.get, without ack",
    ),
    _counter("rabbitmq_global_messages_get_empty_total", "message_stats", "get_empty", "basic.get that found nothing"),
    _counter("rabbitmq_global_messages_redelivered_total", "message_stats", "redeliver", "Messages delivered again"),
    _counter("rabbitmq_global_messages_acknowledged_total", "message_stats", "ack", "Messages acknowledged"),
    _counter(
        "rabbitmq_global_messages_unroutable_returned_total",
        "message_stats",
        "return_unroutable",
        "Mandatory messages returned because no queue takes them",
    ),
    _counter(
        "rabbitmq_global_messages_unroutable_dropped_total",
        "message_stats",
        "drop_unroutable",
        "Messages dropped because no queue takes them",
    ),
    _gauge("rabbitmq_global_consumers", "object_totals", "consumers", "Consumers"),
)

# By the label stage: connection, channel, queue, stream, store.
STAGES: Final = (
    (Family("penstock_stages_blocked", GAUGE, "Stages that are blocked now, by kind of stage"), "blocked"),
    (
        Family("penstock_stage_blocks_total", COUNTER, "How often stages were blocked, by kind of stage"),
        "blocks",
    ),
    (
        Family("penstock_stage_blocked_seconds_total", COUNTER, "Seconds stages were blocked, by kind of stage"),
        "blocked_s",
    ),
)
MAILBOX: Final = Family("penstock_mailbox_messages", GAUGE, "Messages that wait in mailboxes, by kind of stage")

# A stage's mailbox holds what is in flight to it: kind of stage, and the hop that leads there.
MAILBOXES: Final = (("channel", "reader_channel"), ("queue", "channel_queue"), ("store", "queue_store"))

# By the label hop: reader_channel, channel_queue, queue_store.
HOPS: Final = (
    (Family("penstock_hop_links", GAUGE, "Links of this hop"), "links"),
    (Family("penstock_hop_links_blocking", GAUGE, "Links of this hop that block their upstream stage"), "blocking"),
    (Family("penstock_hop_credit_messages", GAUGE, "Credit left on all links of this hop, in messages"), "credit"),
    (Family("penstock_hop_in_flight_messages", GAUGE, "Messages in flight on this hop"), "in_flight"),
    (Family("penstock_hop_in_flight_bytes", GAUGE, "Bytes in flight on this hop"), "in_flight_bytes"),
    (Family("penstock_hop_deferred_messages", GAUGE, "Grants that blocked stages keep back, in messages"), "deferred"),
)

ALARM: Final = Family("penstock_alarm", GAUGE, "1 while the alarm of this source is on")
SOURCES: Final = ("memory", "disk", "store")
SYNC: Final = Family("penstock_store_sync_seconds", HISTOGRAM, "How long the store's syncs took, in seconds")
VERSION: Final = Family("penstock_build_info", GAUGE, "Version of Penstock; the value is 1")


def _each(name: str, kind: str, column: str, text: str) -> PerObject:
    return PerObject(Family(name, kind, text), column)


# Only in /metrics/per-object.
QUEUE: Final = (
    _each("rabbitmq_queue_messages_ready", GAUGE, "messages_ready", "Messages ready to be delivered"),
    _each("rabbitmq_queue_messages_unacked", GAUGE, "messages_unacknowledged", "Messages not yet acknowledged"),
    _each("rabbitmq_queue_messages", GAUGE, "messages", "Messages, ready and unacknowledged"),
    _each("rabbitmq_queue_consumers", GAUGE, "consumers", "Consumers"),
    _each("rabbitmq_queue_messages_ram", GAUGE, "messages_ram", "Messages in memory"),
    _each("rabbitmq_queue_messages_paged_out", GAUGE, "messages_paged_out", "Messages on disk only"),
    _each("rabbitmq_queue_messages_bytes", GAUGE, "message_bytes", "Bytes of messages"),
    _each("rabbitmq_queue_messages_published_total", COUNTER, "message_stats.publish", "Messages published"),
    _each("penstock_queue_messages_delivered_total", COUNTER, "message_stats.deliver_get", "Messages delivered or got"),
    _each("penstock_queue_messages_acked_total", COUNTER, "message_stats.ack", "Messages acknowledged"),
    _each("penstock_queue_messages_redelivered_total", COUNTER, "message_stats.redeliver", "Messages delivered again"),
    _each("penstock_queue_blocked", GAUGE, "blocked", "1 while the queue is blocked"),
    _each("penstock_queue_blocks_total", COUNTER, "blocks", "How often the queue was blocked"),
    _each("penstock_queue_blocked_seconds_total", COUNTER, "blocked_seconds", "Seconds the queue was blocked"),
    _each("penstock_queue_saturated", GAUGE, "saturation.saturated", "1 while the queue is above its stop watermark"),
    _each("penstock_queue_held_confirms", GAUGE, "saturation.held", "Confirms that the queue holds back"),
)
CHANNEL: Final = (
    _each("rabbitmq_channel_consumers", GAUGE, "consumer_count", "Consumers"),
    _each("rabbitmq_channel_messages_unacked", GAUGE, "messages_unacknowledged", "Messages not yet acknowledged"),
    _each("rabbitmq_channel_messages_unconfirmed", GAUGE, "messages_unconfirmed", "Messages not yet confirmed"),
    _each("rabbitmq_channel_messages_uncommitted", GAUGE, "messages_uncommitted", "Messages of a transaction"),
    _each("rabbitmq_channel_acks_uncommitted", GAUGE, "acks_uncommitted", "Acknowledgements of a transaction"),
    _each("rabbitmq_channel_prefetch", GAUGE, "global_prefetch_count", "Prefetch of the whole channel"),
    _each("rabbitmq_channel_messages_published_total", COUNTER, "message_stats.publish", "Messages published"),
    _each("rabbitmq_channel_messages_confirmed_total", COUNTER, "message_stats.confirm", "Messages confirmed"),
    _each("rabbitmq_channel_messages_acked_total", COUNTER, "message_stats.ack", "Messages acknowledged"),
    _each("penstock_channel_blocked", GAUGE, "blocked", "1 while the channel is blocked"),
    _each("penstock_channel_blocks_total", COUNTER, "blocks", "How often the channel was blocked"),
    _each("penstock_channel_blocked_seconds_total", COUNTER, "blocked_seconds", "Seconds the channel was blocked"),
)
CONNECTION: Final = (
    _each("rabbitmq_connection_incoming_bytes_total", COUNTER, "recv_oct", "Bytes received"),
    _each("rabbitmq_connection_outgoing_bytes_total", COUNTER, "send_oct", "Bytes sent"),
    _each("rabbitmq_connection_incoming_packets_total", COUNTER, "recv_cnt", "Reads from the socket"),
    _each("rabbitmq_connection_outgoing_packets_total", COUNTER, "send_cnt", "Writes to the socket"),
    _each("rabbitmq_connection_channels", GAUGE, "channels", "Channels"),
    _each("penstock_connection_blocked", GAUGE, "blocked", "1 while the connection is blocked"),
    _each("penstock_connection_blocks_total", COUNTER, "blocks", "How often the connection was blocked"),
    _each("penstock_connection_blocked_seconds_total", COUNTER, "blocked_seconds", "Seconds it was blocked"),
    _each("penstock_connection_parked_bytes", GAUGE, "parked_bytes", "Bytes of publishes that are parked"),
)
# Of links that matter: as many as the flow snapshot has.
LINK: Final = (
    _each("penstock_link_credit_messages", GAUGE, "credit", "Credit left on this link, in messages"),
    _each("penstock_link_in_flight_messages", GAUGE, "in_flight", "Messages in flight on this link"),
    _each("penstock_link_deferred_messages", GAUGE, "deferred", "Grants that downstream keeps back, in messages"),
)
