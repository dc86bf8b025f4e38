"""Stream: offsets in order, nothing seen before it is synced, every reader at its own place."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.amqp.method import BasicAck, BasicCancel, BasicNack, BasicQos, ConfirmSelect, QueueDeclare, QueueDelete
from penstock.amqp.properties import Properties, encode_properties
from penstock.amqp.table import Table, Value
from penstock.broker import cursor, stream
from penstock.broker.ledger import Json
from penstock.broker.policy import Policy
from penstock.broker.stream import Stream
from tests.unit.fakes import FakePeer, StoreHouse

STREAM: Table = {"x-queue-type": "stream"}


@pytest.fixture
def house(tmp_path: Path) -> Iterator[StoreHouse]:
    with StoreHouse(tmp_path) as house:
        yield house


@pytest.fixture
def peer(house: StoreHouse) -> FakePeer:
    return open_peer(house)


def open_peer(house: StoreHouse, name: str = "peer") -> FakePeer:
    peer = house.peer(name)
    peer.open(1)
    peer.ask(1, ConfirmSelect())
    peer.ask(1, QueueDeclare("s", durable=True, arguments=STREAM))
    peer.ask(1, BasicQos(prefetch_count=1000))
    return peer


def the_stream(house: StoreHouse) -> Stream:
    found = house.vhost.queues["s"]
    assert isinstance(found, Stream)
    return found


def read(peer: FakePeer, offset: Value, tag: str = "c", **arguments: Value) -> None:
    named = {f"x-stream-{key.replace('_', '-')}": value for key, value in arguments.items()}
    peer.consume(1, "s", tag, arguments={"x-stream-offset": offset, **named})


def bodies(house: StoreHouse, peer: FakePeer, count: int) -> list[bytes]:
    """So many deliveries, wherever they come from, and a look whether there is one more."""
    got: list[bytes] = []

    def enough() -> bool:
        house.run_turns()
        got.extend(peer.bodies())
        return len(got) >= count

    while not enough():
        house.posts.wait()
    house.run_until_idle()
    return got + peer.bodies()


def ended(house: StoreHouse, peer: FakePeer) -> list[bytes]:
    """All deliveries until the broker ends the consumer."""
    got: list[bytes] = []
    while True:
        house.run_turns()
        said = peer.said()
        got += [one.body for one in said if one.body is not None]
        if any(isinstance(one.method, BasicCancel) for one in said):
            return got
        house.posts.wait()


def numbers(first: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, end)]


def test_messages_are_confirmed_and_seen_only_when_they_are_synced(house: StoreHouse, peer: FakePeer) -> None:
    read(peer, "first")
    peer.said()
    house.disk.stop("sync", "stream")
    peer.publish(1, "s", *numbers(0, 3))
    house.run_turns()
    assert peer.outbox.frames == []
    assert the_stream(house).count() == 0
    house.disk.go_on()
    house.run_until_idle()
    said = peer.said()
    assert [one.body for one in said if one.body is not None] == numbers(0, 3)
    assert any(isinstance(one.method, BasicAck) for one in said)
    assert the_stream(house).count() == 3


def test_a_reader_goes_from_disk_to_what_comes_without_a_gap(
    house: StoreHouse, peer: FakePeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cursor, "READ_BYTES", 200)
    monkeypatch.setattr(cursor, "READ_AHEAD_BYTES", 400)
    monkeypatch.setattr(stream, "RECENT_BYTES_MAX", 300)
    monkeypatch.setattr(stream, "CHUNK_BYTES", 100)
    for number in range(50):
        peer.publish(1, "s", b"%d" % number)
        house.run_until_idle()
    peer.said()
    read(peer, 10)
    for number in range(50, 80):
        peer.publish(1, "s", b"%d" % number)
        house.run_turns()
    assert bodies(house, peer, 70) == numbers(10, 80)


def test_a_reader_with_a_stop_is_ended_and_the_others_go_on(house: StoreHouse, peer: FakePeer) -> None:
    peer.publish(1, "s", *numbers(0, 20))
    house.run_until_idle()
    other = open_peer(house, "other")
    read(other, "first")
    assert bodies(house, other, 20) == numbers(0, 20)
    peer.said()
    read(peer, 5, stop_offset=12)
    assert ended(house, peer) == numbers(5, 12)
    peer.publish(1, "s", b"20")
    assert bodies(house, other, 1) == [b"20"]
    assert peer.bodies() == []
    assert len(the_stream(house).subscribers) == 1


def test_a_nack_gives_room_and_nothing_comes_again(house: StoreHouse, peer: FakePeer) -> None:
    peer.ask(1, BasicQos(prefetch_count=2))
    peer.publish(1, "s", *numbers(0, 5))
    house.run_until_idle()
    peer.said()
    read(peer, "first")
    assert bodies(house, peer, 2) == numbers(0, 2)
    peer.nack(1, 2, multiple=True)
    assert bodies(house, peer, 2) == numbers(2, 4)


def test_after_a_failed_sync_publishers_are_nacked_once_and_offsets_have_no_hole(
    house: StoreHouse, peer: FakePeer
) -> None:
    read(peer, "first")
    house.disk.fail("sync", "stream")
    peer.publish(1, "s", b"a")
    house.run_until_idle()
    peer.publish(1, "s", b"b")
    house.run_until_idle()
    log = the_stream(house).log
    while log.synced < 2:
        house.posts.wait()
        house.run_turns()
    assert log.end == 2
    said = peer.said()
    assert [one.body for one in said if one.body is not None] == [b"a", b"b"]
    assert sum(isinstance(one.method, BasicNack) for one in said) == 1


def test_a_damaged_message_costs_itself_only(tmp_path: Path) -> None:
    with StoreHouse(tmp_path) as house:
        peer = open_peer(house)
        peer.publish(1, "s", b"first", b"victim", b"third")
        house.run_until_idle()
        peer.publish(1, "s", b"fourth")  # with it the stream says that all before is synced
        house.run_until_idle()
        house.kill()
        (segment,) = tmp_path.rglob("*.seg")
        content = segment.read_bytes()
        assert content.count(b"victim") == 1
        segment.write_bytes(content.replace(b"victim", b"viktim"))
        with house.next_life() as again:
            other = open_peer(again)
            read(other, "first")
            assert bodies(again, other, 3) == [b"first", b"third", b"fourth"]
            assert the_stream(again).log.synced == 4


def test_what_a_producer_sends_again_is_dropped_also_after_a_restart(tmp_path: Path) -> None:
    def send(peer: FakePeer, *ids: int) -> None:
        for id_ in ids:
            headers: Table = {"x-penstock-producer": "p", "x-penstock-publishing-id": id_}
            peer.publish(1, "s", b"%d" % id_, properties=encode_properties(Properties(headers=headers)))

    with StoreHouse(tmp_path) as house:
        peer = open_peer(house)
        send(peer, 0, 1, 2, 1, 2, 3)
        house.run_until_idle()
        assert the_stream(house).count() == 4
        assert sum(isinstance(method, BasicAck) for method in peer.methods()) >= 1
        house.kill()
        with house.next_life() as again:
            other = open_peer(again)
            send(other, 2, 3, 4)
            again.run_until_idle()
            read(other, "first")
            assert bodies(again, other, 5) == numbers(0, 5)


def test_a_policy_bounds_a_stream_that_is_there(house: StoreHouse, peer: FakePeer) -> None:
    definition: dict[str, Json] = {"max-length-bytes": 1000, "max-age": "1h", "stream-max-segment-size-bytes": 500}
    house.vhost.put_policy(Policy("short", "^s$", definition, "streams"))
    log = the_stream(house).log
    assert (log.max_bytes, log.max_age_ms, log.segment_bytes) == (1000, 3_600_000, 500)
    house.vhost.drop_policy("short")
    assert (log.max_bytes, log.max_age_ms) == (-1, -1)


def test_a_policy_for_all_queues_does_not_make_a_stream_expire(house: StoreHouse, peer: FakePeer) -> None:
    house.vhost.put_policy(Policy("short", ".*", {"expires": 1000, "message-ttl": 1000, "max-length": 1}))
    peer.publish(1, "s", *numbers(0, 3))
    house.run_until_idle()
    house.clock.advance(10)
    house.run_until_idle()
    assert the_stream(house).count() == 3
    house.vhost.drop_policy("short")
    house.vhost.put_policy(Policy("short", ".*", {"expires": 1000}))
    peer.ask(1, QueueDelete("s"))
    peer.ask(1, QueueDeclare("s", durable=True, arguments=STREAM))
    house.clock.advance(10)
    house.run_until_idle()
    assert not the_stream(house).deleted


def test_a_reader_whose_file_is_gone_asks_again_after_a_while_and_not_at_once(
    house: StoreHouse, peer: FakePeer, tmp_path: Path
) -> None:
    peer.publish(1, "s", *numbers(0, 3))
    house.run_until_idle()
    (segment,) = tmp_path.rglob("*.seg")
    segment.rename(tmp_path / "elsewhere")
    read(peer, "first")
    house.run_turns()
    (place,) = the_stream(house)._cursors.values()
    while place._read is not None:
        house.posts.wait()
        house.run_turns()
    assert the_stream(house)._retry is not None
    (tmp_path / "elsewhere").rename(segment)
    house.clock.advance(stream.RETRY_S)
    assert bodies(house, peer, 3) == numbers(0, 3)


def test_a_deleted_stream_leaves_no_file_and_a_new_one_begins_at_0(
    house: StoreHouse, peer: FakePeer, tmp_path: Path
) -> None:
    peer.publish(1, "s", *numbers(0, 5))
    house.run_until_idle()
    peer.ask(1, QueueDelete("s"))
    house.run_until_idle()
    peer.ask(1, QueueDeclare("s", durable=True, arguments=STREAM))
    peer.publish(1, "s", b"new")
    house.run_until_idle()
    assert the_stream(house).log.synced == 1
    # The reading thread removes files; the next read is answered behind that.
    read(peer, "first")
    assert bodies(house, peer, 1) == [b"new"]
    assert len(list(tmp_path.rglob("*.seg"))) == 1
