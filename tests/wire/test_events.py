"""The stream penstock.events of a real broker, read with pika: under real overloads, over kill -9, and guarded."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from penstock.amqp.method import ConfirmSelect, ConfirmSelectOk, QueueDeclare, QueueDeclareOk
from penstock.amqp.properties import Properties
from penstock.broker.eventstream import RESOURCES_NS
from penstock.broker.policy import Policy
from tests.events import check_event, documented
from tests.wire.live import LiveBroker, ServeProcess
from tests.wire.raw import RawClient, publish_bytes
from tests.wire.test_management import Http
from tests.wire.waiting import LIMIT_S, wait_until

STREAM = "penstock.events"
PERSISTENT = pika.BasicProperties(delivery_mode=2)

Event = dict[str, Any]


@contextmanager
def connected(port: int, password: str = "guest") -> Iterator[BlockingChannel]:
    credentials = pika.PlainCredentials("guest", password)
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port, credentials=credentials))
    try:
        yield connection.channel()
    finally:
        if connection.is_open:
            connection.close()


def read_until(port: int, enough: Callable[[list[Event]], object]) -> dict[int, Event]:
    """Events by offset, from the first on, until these are enough; each is what docs/events.md says."""
    found: dict[int, Event] = {}
    with connected(port) as channel:
        channel.basic_qos(prefetch_count=500)
        messages = channel.consume(STREAM, arguments={"x-stream-offset": "first"}, inactivity_timeout=LIMIT_S)
        for method, properties, body in messages:
            assert method is not None, f"no more events, but there are not enough: {sorted(kinds(found.values()))}"
            event = json.loads(body)
            check_event(event)
            assert (properties.type, properties.content_type) == (event["type"], "application/json")
            found[properties.headers["x-stream-offset"]] = event
            channel.basic_ack(method.delivery_tag)
            if enough(list(found.values())):
                return found
    raise AssertionError("the stream has ended")


def kinds(events: Any) -> set[str]:
    return {event["type"] for event in events}


def of(events: list[Event], type_: str, **fields: object) -> list[Event]:
    return [
        event
        for event in events
        if event["type"] == type_ and all(event[name] == value for name, value in fields.items())
    ]


@contextmanager
def publishing(broker: LiveBroker, count: int) -> Iterator[None]:
    """A client that has sent so many persistent messages to the queue `orders`, and stays."""
    with connected(broker.port) as channel:
        channel.queue_declare("orders", durable=True)
        for _ in range(count):
            channel.basic_publish("", "orders", b"x" * 100, PERSISTENT)
        yield


@contextmanager
def publishing_on_and_on(port: int) -> Iterator[None]:
    """A client that sends persistent messages to the queue `orders` as fast as they are taken, until the end."""
    burst = publish_bytes("orders", b"x" * 100, properties=Properties(delivery_mode=2)) * 500
    is_over = threading.Event()

    def publish(client: RawClient) -> None:
        while not is_over.is_set():
            client.send_bytes(burst)

    with RawClient(port) as client:
        client.handshake().open().ask(QueueDeclare("orders", durable=True), QueueDeclareOk)
        publisher = threading.Thread(target=publish, args=(client,))
        publisher.start()
        try:
            yield
        finally:
            is_over.set()
            publisher.join()


def test_a_slow_disk_is_told_from_the_queue_to_the_connection_and_that_it_is_over(tmp_path: Path) -> None:
    settings = {
        "faults.store_sync_delay_ms": "300",
        "credit.queue_store": "100,50",
        "credit.channel_queue": "100,50",
        "credit.reader_channel": "100,50",
    }
    # On and on: only the first few blocks of a second are events of their own, and short ones may be first.
    with LiveBroker(settings, data=tmp_path) as broker, publishing_on_and_on(broker.port):

        def whole(events: list[Event]) -> bool:
            held = any(event["chain"][-1] == "store" for event in of(events, "blocked", kind="connection"))
            slow = any(event["longest_us"] >= 300_000 for event in of(events, "sync"))
            sampled = {event["kind"] for event in of(events, "sample")} == {"connection", "channel", "queue", "store"}
            return held and slow and sampled and bool(of(events, "unblocked", kind="connection"))

        events = list(read_until(broker.port, whole).values())
    assert of(events, "blocked", stage="queue orders", cause="store")
    assert all(sum(event["histogram"].values()) == event["count"] for event in of(events, "sync"))
    store = of(events, "sample", stage="store")[-1]
    assert store["busy_us"] >= 300_000 * store["turns"] > 0, "a store is as busy as its disk"
    (chain,) = {tuple(event["chain"]) for event in of(events, "blocked", kind="connection") if len(event["chain"]) == 4}
    assert chain[2:] == ("queue orders", "store")
    assert {event["stage"] for event in of(events, "sample")} >= {chain[0], "queue orders", "store"}
    assert not any(STREAM in json.dumps(event) for event in events), "its own work makes no events"


def test_a_slow_queue_is_the_end_of_the_chain(tmp_path: Path) -> None:
    settings = {"faults.queue_delay_us": "1000", "credit.channel_queue": "20,10", "credit.reader_channel": "20,10"}
    with LiveBroker(settings, data=tmp_path) as broker, RawClient(broker.port) as client:
        client.handshake().open().ask(QueueDeclare("orders", durable=True), QueueDeclareOk)
        client.send_bytes(publish_bytes("orders", b"x" * 100) * 1000)  # at once: no machine is too slow to outrun it

        def whole(events: list[Event]) -> bool:
            return any(event["chain"][2:] == ["queue orders"] for event in of(events, "blocked", kind="connection"))

        read_until(broker.port, whole)


def test_a_thousand_blocks_a_second_are_few_events_that_add_up_to_all_of_them(tmp_path: Path) -> None:
    settings = {"credit.reader_channel": "1,1", "credit.reader_channel_bytes": "0,0"}
    with LiveBroker(settings, data=tmp_path) as broker, publishing(broker, 3000):
        wait_until(lambda: broker.count("orders") == 3000)
        blocks = broker.call(lambda: broker.inside.activity.totals["connection"].blocks)
        assert blocks > 500

        def whole(events: list[Event]) -> bool:
            ends = of(events, "blocked", kind="connection"), of(events, "unblocked", kind="connection")
            return all(sum(event["count"] for event in end) >= blocks for end in ends)

        events = list(read_until(broker.port, whole).values())
    blocked, unblocked = of(events, "blocked", kind="connection"), of(events, "unblocked", kind="connection")
    assert sum(event["count"] for event in blocked) == sum(event["count"] for event in unblocked) == blocks
    assert len(blocked) < blocks / 5


def test_alarms_saturation_paging_logins_and_the_start_are_told(tmp_path: Path) -> None:
    with LiveBroker({}, data=tmp_path) as broker:
        with pytest.raises(pika.exceptions.ProbableAuthenticationError), connected(broker.port, "wrong"):
            pass
        http = Http(f"http://127.0.0.1:{broker.manage()}/")
        assert http.ask("GET", "overview", user="mallory", password="wrong")[0] == 401
        alarms = broker.inside.alarms
        broker.call(lambda: alarms.raise_alarm("store", "message store: a rehearsal"))
        broker.call(lambda: alarms.clear("store"))
        with connected(broker.port) as channel:
            channel.queue_declare("marked", arguments={"x-flow-stop-count": 5, "x-flow-resume-count": 1})
            channel.queue_declare("paged", durable=True, arguments={"x-queue-mode": "lazy"})
            for _ in range(10):
                channel.basic_publish("", "marked", b"x")
            wait_until(lambda: broker.count("marked") == 10)
            channel.queue_purge("marked")
            channel.confirm_delivery()  # so what came before is on disk when a lazy queue looks at it
            for _ in range(3):
                channel.basic_publish("", "paged", b"x", PERSISTENT)
        expected = {"recovery", "login_failed", "alarm", "alarm_over", "saturated", "released", "paging"}
        events = list(read_until(broker.port, lambda found: kinds(found) >= expected).values())
    assert events[0]["type"] == "recovery"
    assert events[0]["clean"]
    over_amqp, over_http = of(events, "login_failed")
    assert (over_amqp["user"], over_http["user"]) == ("guest", "mallory")
    assert over_http["peer"].startswith("http 127.0.0.1")
    assert "mallory" in over_http["reason"]
    assert "wrong" not in json.dumps([over_amqp, over_http])
    assert of(events, "alarm", source="store", reason="message store: a rehearsal")
    assert all(event["messages"] > 5 for event in of(events, "saturated", stage="queue marked"))
    assert of(events, "released", stage="queue marked", messages=0)
    assert sum(event["out"] for event in of(events, "paging", stage="queue paged")) > 0


def test_who_waits_for_confirms_is_sampled_by_name_although_it_does_nothing(tmp_path: Path) -> None:
    with LiveBroker({}, data=tmp_path) as broker, RawClient(broker.port).handshake(name="orders-api").open() as client:
        client.send(QueueDeclare("orders", arguments={"x-flow-stop-count": 5}))
        client.expect(QueueDeclareOk)
        client.send(ConfirmSelect())
        client.expect(ConfirmSelectOk)
        client.send_bytes(publish_bytes("orders", b"x") * 10)

        def whole(events: list[Event]) -> bool:
            """Several seconds of silence: all that is sampled is sampled because it waits."""
            held = [event for event in of(events, "sample", stage="queue orders") if "held_from" in event]
            return len(held) > 3 and len({event["received"] for event in held[-3:]}) == 1

        events = list(read_until(broker.port, whole).values())
    sampled_us = [event["at_us"] for event in of(events, "sample", stage="queue orders")]
    apart_us = [later - earlier for earlier, later in pairwise(sampled_us)]
    assert 900_000 < median(apart_us) < 2_000_000, "one a second, by the clock; a busy machine makes single ones late"
    held = [event for event in of(events, "sample", stage="queue orders") if "held_from" in event][-1]
    assert (held["saturated"], held["held"], held["limit"]) == (True, 5, 5)
    (channel,) = held["held_from"]
    connection = of(events, "sample", stage=channel)[-1]["connection"]
    last = of(events, "sample", stage=connection)[-1]
    assert (last["client"], last["user"], last["vhost"]) == ("orders-api", "guest", "/")
    assert last["turns"] > 0


def test_what_the_broker_uses_is_told_whether_anything_happens_or_not(tmp_path: Path) -> None:
    with LiveBroker({"alarms.memory_bytes_high": "9000000000"}, data=tmp_path) as broker:
        read_until(broker.port, lambda found: bool(of(found, "resources")))  # of the second in which it was started
        stream = broker.server.event_stream
        assert stream is not None
        broker.call(lambda: stream.second([], time.monotonic_ns() + RESOURCES_NS))  # a minute of silence is over
        events = list(read_until(broker.port, lambda found: len(of(found, "resources")) >= 2).values())
    for event in of(events, "resources"):
        assert 0 < event["memory_used_bytes"] < event["memory_limit_bytes"] == 9_000_000_000
        assert event["disk_free_bytes"] > event["disk_limit_bytes"] > 0
        assert event["cpu_us"] > 0


def test_what_is_dropped_is_counted_in_the_stream(tmp_path: Path) -> None:
    with LiveBroker({"events.per_second": "10"}, data=tmp_path) as broker, connected(broker.port) as channel:
        for number in range(50):
            channel.queue_declare(f"q{number}")
        for number in range(50):
            channel.basic_publish("", f"q{number}", b"x")
        events = list(read_until(broker.port, lambda found: bool(of(found, "dropped"))).values())
        assert of(events, "dropped")[0]["counts"]["sample"] > 0
        assert of(events, "dropped")[0]["total"] <= broker.call(lambda: broker.server.event_stream.events.dropped)  # type: ignore[union-attr]


def test_a_disk_that_has_not_synced_is_not_waited_for_and_memory_stays_bounded(tmp_path: Path) -> None:
    with LiveBroker({"events.per_second": "100"}, data=tmp_path) as broker:
        stream = broker.server.event_stream
        assert stream is not None

        def flood() -> tuple[int, int]:
            """Five seconds with many events in one call, so no sync can be heard of meanwhile."""
            for _ in range(5):
                for _ in range(100):
                    stream.events.put("alarm", 0, {"source": "memory", "reason": "a rehearsal"})
                stream.second([], 0)
            return len(stream.events), stream.events.dropped

        waiting, dropped = broker.call(flood)
        assert waiting <= 20
        assert 400 <= dropped < 500
        told = read_until(broker.port, lambda found: sum(event["total"] for event in of(found, "dropped")) == dropped)
        assert len(of(list(told.values()), "alarm")) + dropped == 500


def test_settings_of_retention_count_from_the_next_start_on(tmp_path: Path) -> None:
    for max_bytes, max_age_s in ((2_000_000, 60), (1_048_576, 0)):
        settings = {"events.max_bytes": str(max_bytes), "events.max_age_s": str(max_age_s)}
        with LiveBroker(settings, data=tmp_path) as broker:
            options = broker.call(lambda: broker.queue(STREAM).options)
            assert options.max_length_bytes == max_bytes
            assert options.max_age_ms == (max_age_s * 1000 or -1)
            assert options.segment_bytes == max_bytes // 8


REFUSED: list[tuple[str, Callable[[BlockingChannel], object]]] = [
    ("publishes to it", lambda channel: _publish(channel)),
    ("purges it", lambda channel: channel.queue_purge(STREAM)),
    ("deletes it", lambda channel: channel.queue_delete(STREAM)),
    ("binds it", lambda channel: channel.queue_bind(STREAM, "amq.fanout")),
]


def _publish(channel: BlockingChannel) -> None:
    channel.confirm_delivery()
    channel.basic_publish("", STREAM, b"mine")


def test_nobody_but_the_broker_writes_to_it_purges_or_deletes_it(tmp_path: Path) -> None:
    with LiveBroker({}, data=tmp_path) as broker:
        for what, act in REFUSED:
            with connected(broker.port) as channel:
                with pytest.raises(pika.exceptions.ChannelClosedByBroker) as told:
                    act(channel)
                assert told.value.reply_code == 403, what
                assert "ACCESS_REFUSED" in told.value.reply_text
                assert "the broker's own" in told.value.reply_text


def test_no_policy_shortens_it(tmp_path: Path) -> None:
    policy = Policy("all", ".*", {"max-length-bytes": 1}, "all", 0, False)
    with LiveBroker({}, data=tmp_path) as broker:
        kept = broker.call(lambda: broker.queue(STREAM).options.max_length_bytes)
        broker.call(lambda: broker.inside.vhosts["/"].put_policy(policy))
        assert broker.call(lambda: broker.queue(STREAM).options.max_length_bytes) == kept
    with LiveBroker({}, data=tmp_path) as broker:
        assert broker.call(lambda: broker.queue(STREAM).options.max_length_bytes) == kept


def test_messages_do_not_get_there_by_other_ways(tmp_path: Path) -> None:
    with LiveBroker({}, data=tmp_path) as broker, connected(broker.port) as channel:
        channel.queue_declare("dying", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": STREAM})
        channel.queue_declare("other")
        channel.basic_publish("", "dying", b"mine", pika.BasicProperties(expiration="0"))
        channel.basic_publish("", "other", b"mine", pika.BasicProperties(headers={"CC": [STREAM]}))
        wait_until(lambda: broker.count("other") == 1 and broker.count("dying") == 0)
        events = read_until(broker.port, lambda found: len(of(found, "sample")) > 3)
    assert kinds(events.values()) <= documented().keys()


def test_it_is_in_no_definitions_and_counts_for_no_limit(tmp_path: Path) -> None:
    from penstock.broker.admin import Admin

    with LiveBroker({}, data=tmp_path) as broker:
        admin = Admin(broker.inside)
        assert broker.call(lambda: admin.export()["queues"]) == []
        broker.call(lambda: admin.set_vhost_limit("/", "max-queues", 1))
        with connected(broker.port) as channel:
            channel.queue_declare("the only one", durable=True)
    with LiveBroker({}, data=tmp_path) as broker, connected(broker.port) as channel:
        channel.queue_declare("the only one", passive=True)
        channel.queue_declare(STREAM, passive=True)
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="queue limit"):
            channel.queue_declare("one too many")


def test_there_is_none_without_a_data_directory_or_if_the_settings_say_so(tmp_path: Path) -> None:
    for settings, data in (({}, None), ({"events.enabled": "false"}, tmp_path)):
        with LiveBroker(settings, data=data) as broker, connected(broker.port) as channel:
            with pytest.raises(pika.exceptions.ChannelClosedByBroker) as told:
                channel.queue_declare(STREAM, passive=True)
            assert told.value.reply_code == 404


def test_offsets_mean_the_same_after_kill_9_and_the_next_start_says_what_it_found(tmp_path: Path) -> None:
    process = ServeProcess(tmp_path)
    try:
        with connected(process.port) as channel:
            channel.queue_declare("orders", durable=True)
            channel.confirm_delivery()
            for _ in range(10):
                channel.basic_publish("", "orders", b"x", PERSISTENT)
            before = read_until(process.port, lambda found: bool(of(found, "sample", stage="queue orders")))
    finally:
        process.kill()
    process = ServeProcess(tmp_path)
    try:
        after = read_until(process.port, lambda found: len(of(found, "recovery")) == 2)
    finally:
        process.kill()
    assert {offset: after[offset] for offset in before} == before
    assert list(after) == list(range(len(after)))
    recovery = of(list(after.values()), "recovery")[-1]
    assert (recovery["clean"], recovery["queues"], recovery["messages"]) == (False, 1, 10)
