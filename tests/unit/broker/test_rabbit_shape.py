"""Views have RabbitMQ's keys: those of 3.10.8 with its management plugin, written down from a running one.

`*_details` with rates are left out of the lists: management/rates.py adds them. What RabbitMQ has and we have not is in
LEFT_OUT, each with the reason.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.amqp.method import BasicQos, QueueDeclare
from penstock.broker.admin import Admin, Json
from tests.unit.fakes import FakePeer, StoreHouse

ERLANG = "of Erlang's processes"
LEFT_OUT: dict[str, str] = {
    "release_series_support_status": "RabbitMQ's support",
    "garbage_collection": ERLANG,
    "reductions": ERLANG,
    "gc_num": ERLANG,
    "gc_bytes_reclaimed": ERLANG,
    "context_switches": ERLANG,
    "metrics_gc_queue_length": ERLANG,
    "mnesia_disk_tx_count": "of Mnesia",
    "mnesia_ram_tx_count": "of Mnesia",
    "ra_open_file_metrics": "of quorum queues",
    "pending_raft_commands": "of quorum queues",
    "recoverable_slaves": "of mirrored queues",
    "backing_queue_status": "how RabbitMQ keeps messages inside",
    "queue_index_read_count": "how RabbitMQ keeps messages inside",
    "queue_index_write_count": "how RabbitMQ keeps messages inside",
    "io_read_avg_time": "not measured: reads are served by the kernel's cache",
    "io_read_bytes": "not measured: reads are served by the kernel's cache",
    "io_read_count": "not measured: reads are served by the kernel's cache",
    "io_reopen_count": "files stay open",
    "io_seek_avg_time": "there are no seeks",
    "io_seek_count": "there are no seeks",
    "io_write_avg_time": "not measured; store.sync_* say what writing costs",
    "io_write_count": "not measured; store.sync_* say what writing costs",
    "config_files": "paths of the machine are nobody's business over HTTP",
    "db_dir": "paths of the machine are nobody's business over HTTP",
    "log_files": "the log goes to the terminal",
    "message_bytes_persistent": "would have to be counted for each message",
    "message_bytes_unacknowledged": "would have to be counted for each message",
    "idle_since": "would need the time of each batch",
}

RABBITMQ: dict[str, str] = {
    "overview": """churn_rates cluster_name contexts disable_stats enable_queue_totals erlang_full_version
        erlang_version exchange_types listeners management_version message_stats node object_totals product_name
        product_version queue_totals rabbitmq_version rates_mode release_series_support_status sample_retention_policies
        statistics_db_event_queue""",
    "overview.message_stats": """ack confirm deliver deliver_get deliver_no_ack disk_reads disk_writes drop_unroutable
        get get_empty get_no_ack publish redeliver return_unroutable""",
    "overview.object_totals": "channels connections consumers exchanges queues",
    "overview.queue_totals": "messages messages_ready messages_unacknowledged",
    "overview.churn_rates": """channel_closed channel_created connection_closed connection_created queue_created
        queue_declared queue_deleted""",
    "node": """applications auth_mechanisms channel_closed channel_created cluster_links config_files connection_closed
        connection_created context_switches contexts db_dir disk_free disk_free_alarm disk_free_limit enabled_plugins
        exchange_types fd_total fd_used gc_bytes_reclaimed gc_num io_read_avg_time io_read_bytes io_read_count
        io_reopen_count io_seek_avg_time io_seek_count io_sync_avg_time io_sync_count io_write_avg_time io_write_bytes
        io_write_count log_files mem_alarm mem_calculation_strategy mem_limit mem_used metrics_gc_queue_length
        mnesia_disk_tx_count mnesia_ram_tx_count msg_store_read_count msg_store_write_count name net_ticktime os_pid
        partitions proc_total proc_used processors queue_created queue_declared queue_deleted queue_index_read_count
        queue_index_write_count ra_open_file_metrics rates_mode run_queue running sockets_total sockets_used type
        uptime""",
    "queue": """arguments auto_delete backing_queue_status consumer_capacity consumer_details consumer_utilisation
        consumers deliveries durable effective_policy_definition exclusive exclusive_consumer_tag garbage_collection
        head_message_timestamp idle_since incoming memory message_bytes message_bytes_paged_out
        message_bytes_persistent message_bytes_ram message_bytes_ready message_bytes_unacknowledged message_stats
        messages messages_paged_out messages_persistent messages_ram messages_ready messages_ready_ram
        messages_unacknowledged messages_unacknowledged_ram name node operator_policy owner_pid_details policy
        recoverable_slaves reductions single_active_consumer_tag state type vhost""",
    "queue.message_stats": """ack deliver deliver_get deliver_no_ack get get_empty get_no_ack publish redeliver""",
    "exchange": """arguments auto_delete durable incoming internal message_stats name outgoing policy type
        user_who_performed_action vhost""",
    "exchange.message_stats": "publish_in publish_out",
    "channel": """acks_uncommitted confirm connection_details consumer_count consumer_details deliveries
        garbage_collection global_prefetch_count idle_since message_stats messages_unacknowledged messages_uncommitted
        messages_unconfirmed name node number pending_raft_commands prefetch_count publishes reductions state
        transactional user user_who_performed_action vhost""",
    "channel.connection_details": "name peer_host peer_port",
    "channel.message_stats": """ack confirm deliver deliver_get deliver_no_ack drop_unroutable get get_empty get_no_ack
        publish redeliver return_unroutable""",
    "consumer": """ack_required active activity_status arguments channel_details consumer_tag exclusive prefetch_count
        queue""",
    "consumer.channel_details": "connection_name name node number peer_host peer_port user",
    "binding": "arguments destination destination_type properties_key routing_key source vhost",
    "vhost": """cluster_state default_queue_type description message_stats messages messages_ready
        messages_unacknowledged metadata name recv_oct send_oct tags tracing""",
}


class Scene:
    """A broker with a store, a client that publishes, consumes and gets, and what an operator sees of it."""

    def __init__(self, house: StoreHouse) -> None:
        self.house = house
        self.admin = Admin(house.broker)
        self.peer: FakePeer = house.peer()
        house.broker.peers.add(self.peer)
        self.peer.open()
        self.peer.ask(1, QueueDeclare("q", durable=True))
        self.peer.ask(1, BasicQos(prefetch_count=2))
        self.peer.publish(1, "q", b"a", b"b", b"c")
        self.peer.consume(1)
        self.peer.said()

    def view(self, what: str) -> Json:
        name = f"{self.peer.name} (1)"
        kind, _, part = what.partition(".")
        view: Json = {
            "overview": self.admin.overview,
            "node": self.admin.node,
            "queue": lambda: self.admin.queue("/", "q"),
            "exchange": lambda: self.admin.exchange("/", ""),
            "channel": lambda: self.admin.channel(name),
            "consumer": lambda: self.admin.listing("consumers").view(0),
            "binding": lambda: self.admin.listing("bindings").view(0),
            "vhost": lambda: self.admin.vhost("/"),
        }[kind]()
        assert isinstance(view, dict)
        return view[part] if part else view


@pytest.mark.parametrize("what", RABBITMQ)
def test_a_view_has_every_key_of_rabbitmq_s_or_a_reason_not_to(what: str, tmp_path: Path) -> None:
    with StoreHouse(tmp_path) as house:
        view = Scene(house).view(what)
        assert isinstance(view, dict)
        missing = set(RABBITMQ[what].split()) - set(view) - set(LEFT_OUT)
        assert not missing
        assert not set(view) & set(LEFT_OUT), "it is not left out any more"
        json.dumps(view)


def test_nothing_is_said_to_be_left_out_that_rabbitmq_has_not() -> None:
    assert set(LEFT_OUT) <= {key for keys in RABBITMQ.values() for key in keys.split()}
