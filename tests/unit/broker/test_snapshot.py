"""Snapshot: what an operator sees of queues, exchanges, connections, channels and consumers, and how it is listed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.amqp.method import BasicQos, ConfirmSelect, QueueDeclare, QueueDelete, TxSelect
from penstock.broker.admin import Admin, AdminError
from penstock.broker.snapshot import BINDINGS, CHANNELS, CONNECTIONS, CONSUMERS, EXCHANGES, QUEUES, Listing
from penstock.broker.snapshot.listing import UNSEEN, value_in
from penstock.broker.snapshot.overview import FILES_NS
from penstock.store.journal import SYNC_BOUNDS_S
from tests.unit.fakes import FakePeer, House, StoreHouse

KINDS = (QUEUES, EXCHANGES, BINDINGS, CONNECTIONS, CHANNELS, CONSUMERS)


class Vitals:
    def memory_used_bytes(self) -> int:
        return 1_000

    def memory_bytes(self) -> int:
        return 10_000

    def disk_free_bytes(self) -> int | None:
        return 5_000

    def core_wait(self) -> tuple[int, int]:
        return 0, 0

    def give_back(self) -> None:
        return


def connected(house: House, name: str = "peer") -> FakePeer:
    """A client that is known as a connection, with a channel open."""
    peer = house.peer(name)
    house.broker.peers.add(peer)
    peer.open()
    return peer


def views(listing: Listing) -> list[Any]:
    return [listing.view(at) for at in range(len(listing))]


def test_a_saturated_queue_says_so_with_since_when_how_often_and_how_many_are_held() -> None:
    house = House()
    peer = house.peer()
    peer.open(1)
    queue = house.queue("q", arguments={"x-flow-stop-count": 2, "x-flow-resume-count": 1})
    peer.ask(1, ConfirmSelect())
    peer.publish_singly(1, "q", 4)
    house.run_until_idle()
    house.clock.advance(3)
    (shown,) = Admin(house.broker).queues("/")
    assert shown["messages_ready"] == queue.count() == 4
    assert shown["saturation"] == {"saturated": True, "saturated_for_s": 3.0, "times": 1, "held": 2}
    (channel,) = Admin(house.broker).channels()
    assert (channel["confirm"], channel["messages_unconfirmed"]) == (True, 2)


def test_queues_of_a_vhost_that_is_not_there_are_a_mistake() -> None:
    with pytest.raises(AdminError, match="there is no vhost 'nowhere'"):
        Admin(House().broker).queues("nowhere")


def test_every_kind_is_listed_with_names_vhosts_and_views_that_are_json() -> None:
    house = House()
    peer = connected(house)
    house.queue("q")
    house.vhost.bind(house.vhost.exchanges["amq.topic"], house.vhost.queues["q"], "k", {})
    peer.consume(1)
    peer.said()
    admin = Admin(house.broker)
    for kind in KINDS:
        listing = admin.listing(kind)
        assert len(listing) > 0
        for at in range(len(listing)):
            view = listing.view(at)
            assert view is not None
            assert json.loads(json.dumps(view)) == view
            assert listing.vhost(at) == "/"
            assert isinstance(listing.name(at), str)
            assert len(listing.counters(at)) == len(listing.COUNTERS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_column_that_costs_no_view_says_what_the_view_says(kind: str) -> None:
    house = House()
    peer = connected(house)
    house.queue("q", arguments={"x-flow-stop-count": 5, "x-flow-resume-count": 1})
    house.vhost.bind(house.vhost.exchanges["amq.topic"], house.vhost.queues["q"], "k", {})
    peer.publish(1, "q", b"a", b"b")
    peer.publish(1, "k", b"c", exchange="amq.topic")
    peer.consume(1)
    peer.said()
    peer.ack(1, 1)
    peer.said()
    listing: Any = Admin(house.broker).listing(kind)
    assert listing.columns(), "there are some"
    for at in range(len(listing)):
        view = listing.view(at)
        for column in listing.columns():
            known = value_in(view, column)
            if known is not None:
                assert listing.value(at, column) == known, column
        plain = [column for column in listing.columns() if "." not in column and column not in UNSEEN]
        brief = listing.brief(plain)(at)
        assert brief == {column: view[column] for column in plain}
        assert list(brief) == plain
    for costly in (["name", "no such column"], ["name", "message_stats.publish"], list(UNSEEN)):
        assert listing.brief(costly) is None


def test_a_column_is_found_by_a_dotted_name_and_is_none_where_there_is_none() -> None:
    view: dict[str, Any] = {"a": {"b": 1, "c": None}, "a.b": 2}
    assert value_in(view, "a.b") == 2, "as it is, first"
    assert value_in({"a": {"b": 1}}, "a.b") == 1
    assert value_in(view, "a.c.d") is None
    assert value_in(view, "x") is None
    assert value_in(None, "a") is None


def test_what_is_gone_since_the_listing_was_made_has_no_view_and_no_counters() -> None:
    house = House()
    peer = connected(house)
    peer.ask(1, QueueDeclare("q"))
    house.vhost.bind(house.vhost.exchanges["amq.topic"], house.vhost.queues["q"], "k", {})
    peer.consume(1)
    peer.said()
    admin = Admin(house.broker)
    listings = {kind: admin.listing(kind) for kind in (QUEUES, BINDINGS, CONNECTIONS, CHANNELS, CONSUMERS)}
    peer.ask(1, QueueDelete("q"))
    peer.reader.shut_down()
    house.broker.peers.remove(peer)
    house.run_until_idle()
    for listing in listings.values():
        assert len(listing) > 0
        assert views(listing) == [None] * len(listing)
        assert listing.counters(0) == ()
        assert listing.name(0) is not None, "which it was can still be said"


def test_only_what_may_be_seen_is_listed() -> None:
    house = House()
    house.broker.add_vhost("secret").add_queue("hidden", False, False, {})
    house.queue("q")
    peer, other = connected(house, "mine"), connected(house, "theirs")
    other.user = "bob"
    admin = Admin(house.broker)
    assert len(admin.listing(QUEUES)) == 2
    assert [one["name"] for one in views(admin.listing(QUEUES, among={"/"}))] == ["q"]
    assert len(admin.listing(QUEUES, "secret", among={"/"})) == 0
    assert [one["vhost"] for one in views(admin.listing(EXCHANGES, among={"secret"}))] == ["secret"] * 6
    assert [one["name"] for one in views(admin.listing(CONNECTIONS, user="bob"))] == ["theirs"]
    assert [one["name"] for one in views(admin.listing(CHANNELS, user=peer.user))] == ["mine (1)"]
    assert len(admin.listing(CHANNELS, among={"secret"})) == 0


def test_a_queue_shows_its_policies_and_what_comes_of_them() -> None:
    house = House()
    house.queue("q", arguments={"x-max-length": 1000})
    admin = Admin(house.broker)
    assert admin.queue("/", "q")["policy"] is None
    admin.set_policy("/", "pol", "^q$", {"max-length": 500}, "queues")
    admin.set_policy("/", "op", "^q$", {"max-length": 400}, "queues", operator=True)
    shown = admin.queue("/", "q")
    assert (shown["policy"], shown["operator_policy"]) == ("pol", "op")
    assert shown["effective_policy_definition"] == {"max-length": 400}


def test_a_queue_shows_its_consumers_who_is_active_and_whether_one_wants_to_be_alone() -> None:
    house = House()
    house.queue("shared", arguments={"x-single-active-consumer": True})
    house.queue("alone")
    peer = connected(house)
    peer.consume(1, "shared", "first")
    peer.consume(1, "shared", "second")
    peer.consume(1, "alone", "only", exclusive=True)
    peer.said()
    admin = Admin(house.broker)
    shared: Any = admin.queue("/", "shared")
    assert (shared["consumers"], shared["single_active_consumer_tag"]) == (2, "first")
    assert [(one["consumer_tag"], one["active"], one["activity_status"]) for one in shared["consumer_details"]] == [
        ("first", True, "up"),
        ("second", False, "waiting"),
    ]
    assert admin.queue("/", "alone")["exclusive_consumer_tag"] == "only"


def test_an_exclusive_queue_shows_whose_it_is() -> None:
    house = House()
    peer = connected(house, "owner")
    peer.ask(1, QueueDeclare("mine", exclusive=True))
    owner: Any = Admin(house.broker).queue("/", "mine")["owner_pid_details"]
    assert owner["name"] == "owner"


def test_a_queue_shows_the_bytes_that_wait_and_the_timestamp_of_the_next_message() -> None:
    house = House()
    house.queue("q")
    peer = connected(house)
    admin = Admin(house.broker)
    assert admin.queue("/", "q")["head_message_timestamp"] is None
    peer.publish(1, "q", b"x" * 1000, properties=b"\x00\x40" + (1234).to_bytes(8, "big"))
    peer.said()
    shown: Any = admin.queue("/", "q")
    assert shown["head_message_timestamp"] == 1234
    assert 1000 < shown["message_bytes"] < 1100
    assert shown["memory"] > shown["message_bytes"]


def test_a_channel_shows_its_prefetch_its_transaction_and_its_connection() -> None:
    house = House()
    house.queue("q")
    peer = connected(house)
    peer.ask(1, BasicQos(prefetch_count=7))
    peer.ask(1, BasicQos(prefetch_count=9, global_=True))
    peer.publish(1, "q", b"a", b"b")
    peer.consume(1)
    peer.said()
    peer.ask(1, TxSelect())
    peer.publish(1, "q", b"c")
    peer.ack(1, 1)
    peer.said()
    shown: Any = Admin(house.broker).channel("peer (1)")
    assert (shown["prefetch_count"], shown["global_prefetch_count"]) == (7, 9)
    assert (shown["messages_uncommitted"], shown["acks_uncommitted"], shown["transactional"]) == (1, 1, True)
    assert shown["messages_unacknowledged"] == 1
    assert shown["connection_details"]["name"] == "peer"
    assert [one["prefetch_count"] for one in shown["consumer_details"]] == [7]
    with pytest.raises(AdminError) as missing:
        Admin(house.broker).channel("nobody (1)")
    assert missing.value.missing


def test_what_is_not_there_is_missing() -> None:
    admin = Admin(House().broker)
    for ask in (
        lambda: admin.queue("/", "none"),
        lambda: admin.exchange("/", "none"),
        lambda: admin.connection("none"),
        lambda: admin.vhost("none"),
        lambda: admin.listing(QUEUES, "none"),
    ):
        with pytest.raises(AdminError) as missing:
            ask()
        assert missing.value.missing


def test_the_overview_counts_objects_messages_and_what_came_and_went() -> None:
    house = House()
    peer = connected(house)
    peer.ask(1, QueueDeclare("q"))
    peer.ask(1, QueueDeclare("q"))
    peer.publish(1, "q", b"a", b"b")
    peer.ask(1, BasicQos(prefetch_count=1))
    peer.consume(1)
    peer.said()
    shown: Any = Admin(house.broker, listeners=lambda: [("amqp", "127.0.0.1", 5672), ("http", "::1", 15672)]).overview()
    assert shown["object_totals"] == {"connections": 1, "channels": 1, "exchanges": 6, "queues": 1, "consumers": 1}
    assert shown["queue_totals"] == {"messages": 2, "messages_ready": 1, "messages_unacknowledged": 1}
    assert shown["message_stats"]["publish"] == 2
    churn = shown["churn_rates"]
    assert (churn["queue_declared"], churn["queue_created"], churn["queue_deleted"]) == (2, 1, 0)
    assert (churn["connection_created"], churn["connection_closed"]) == (1, 0)
    assert [(one["protocol"], one["port"]) for one in shown["listeners"]] == [("amqp", 5672), ("http", 15672)]
    assert [one["port"] for one in shown["contexts"]] == ["15672"]
    house.broker.peers.remove(peer)
    churn = Admin(house.broker).overview()["churn_rates"]
    assert isinstance(churn, dict)
    assert (churn["connection_created"], churn["connection_closed"]) == (1, 1)


def test_a_large_vhost_shows_the_messages_of_the_last_sweep() -> None:
    house = House()
    peer = connected(house)
    for at in range(2001):
        house.vhost.add_queue(f"q{at}", False, False, {})
    peer.publish(1, "q7", b"a")
    peer.said()
    admin = Admin(house.broker)
    assert admin.vhost("/")["messages"] == 0
    while not admin.sweep():
        pass
    assert admin.vhost("/")["messages"] == 1
    totals = admin.overview()["queue_totals"]
    assert isinstance(totals, dict)
    assert totals["messages"] == 1


def test_the_node_shows_memory_disk_and_alarms(monkeypatch: pytest.MonkeyPatch) -> None:
    house = House()
    house.broker.alarms.raise_alarm("disk", "low on disk")
    house.clock.advance(2.5)
    admin = Admin(house.broker, vitals=Vitals())
    shown = admin.node()
    assert (shown["mem_used"], shown["mem_limit"], shown["mem_alarm"]) == (1_000, 6_000, False)
    assert (shown["disk_free"], shown["disk_free_limit"], shown["disk_free_alarm"]) == (5_000, 50_000_000, True)
    assert (shown["uptime"], shown["running"], shown["store"]) == (2500, True, None)
    files = shown["fd_used"]
    monkeypatch.setattr("penstock.broker.snapshot.overview.FILES", "/nowhere")
    assert admin.node()["fd_used"] == files, "read seldom"
    house.clock.advance(FILES_NS / 1e9)
    assert admin.node()["fd_used"] == 0, "it cannot be told"


def test_the_node_shows_what_the_store_does(tmp_path: Path) -> None:
    with StoreHouse(tmp_path) as house:
        peer = connected(house)
        peer.ask(1, QueueDeclare("q", durable=True))
        peer.ask(1, ConfirmSelect())
        peer.publish(1, "q", b"a", properties=b"\x10\x00\x02")
        peer.said()
        shown: Any = Admin(house.broker).node()
        store = shown["store"]
        assert store["syncs"] == sum(store["sync_counts"]) == shown["io_sync_count"] > 0
        assert store["sync_bounds_s"] == list(SYNC_BOUNDS_S)
        assert (store["pending_messages"], store["trouble"]) == (0, "")
        assert shown["msg_store_write_count"] == 1
        stats: Any = Admin(house.broker).overview()["message_stats"]
        assert (stats["disk_writes"], stats["disk_reads"], stats["confirm"]) == (1, 0, 1)


def test_a_stream_shows_its_offsets_and_counts(tmp_path: Path) -> None:
    with StoreHouse(tmp_path) as house:
        peer = connected(house)
        peer.ask(1, QueueDeclare("s", durable=True, arguments={"x-queue-type": "stream"}))
        peer.ask(1, BasicQos(prefetch_count=10))
        peer.publish(1, "s", b"a", b"b")
        peer.said()
        peer.consume(1, "s", arguments={"x-stream-offset": "first"})
        peer.said()
        peer.ack(1, 1)
        peer.said()
        shown: Any = Admin(house.broker).queue("/", "s")
        assert (shown["type"], shown["messages"], shown["stream"]["next_offset"]) == ("stream", 2, 2)
        stats = shown["message_stats"]
        assert (stats["publish"], stats["deliver"], stats["ack"]) == (2, 2, 1)


def test_an_export_in_steps_is_the_same_document() -> None:
    house = House()
    for at in range(450):
        house.vhost.bind(house.vhost.exchanges["amq.topic"], house.queue(f"q{at}"), "k", {})
    admin = Admin(house.broker)
    export = admin.exporting()
    steps = 1
    while not export.step():
        steps += 1
    assert steps > 4
    assert export.document() == admin.export()
    with pytest.raises(AdminError) as missing:
        admin.exporting("nowhere")
    assert missing.value.missing
