"""What producers send again is dropped, confirmed, and never lost: in RAM, on disk, over crashes and checkpoints."""

from __future__ import annotations

from pathlib import Path
from weakref import WeakKeyDictionary

import pytest

from penstock.amqp.method import (
    BasicAck,
    BasicConsume,
    BasicNack,
    BasicPublish,
    ChannelClose,
    ConfirmSelect,
    TxCommit,
    TxCommitOk,
    TxSelect,
    encode_method,
)
from penstock.amqp.properties import Properties, encode_properties
from penstock.amqp.table import Table, Value
from penstock.broker import duplicates
from tests.unit.fakes import PERSISTENT, FakePeer, House, StoreHouse, make_wire, read_said

SETTLED: WeakKeyDictionary[FakePeer, set[int]] = WeakKeyDictionary()


def numbered(id_: Value, producer: Value = "p", mode: int | None = 2, **more: str) -> bytes:
    headers: Table = {"x-penstock-producer": producer, "x-penstock-publishing-id": id_}
    return encode_properties(Properties(headers=headers, delivery_mode=mode, **more))  # type: ignore[arg-type]


def send(peer: FakePeer, *ids: int, queue: str = "q", producer: str = "p", mode: int | None = 2) -> None:
    for id_ in ids:
        peer.publish(1, queue, b"%d" % id_, properties=numbered(id_, producer, mode))


def confirmer(house: House, name: str = "publisher") -> FakePeer:
    peer = house.peer(name)
    peer.open()
    peer.ask(1, ConfirmSelect())
    return peer


def outcomes(peer: FakePeer) -> tuple[set[int], set[int]]:
    """Numbers acked and nacked since the last look."""
    settled = SETTLED.setdefault(peer, set())
    acked: set[int] = set()
    nacked: set[int] = set()
    for method in peer.methods():
        if isinstance(method, (BasicAck, BasicNack)):
            numbers = range(1, method.delivery_tag + 1) if method.multiple else [method.delivery_tag]
            (acked if isinstance(method, BasicAck) else nacked).update(set(numbers) - settled)
            settled.update(numbers)
    return acked, nacked


def contents(house: House, queue: str = "q") -> list[bytes]:
    """All that waits in the queue; it goes back."""
    reader = house.peer("reader")
    reader.open()
    reader.consume(1, queue)
    bodies = reader.bodies()
    reader.ask(1, ChannelClose(200, "bye", 0, 0))
    return bodies


def test_what_comes_again_is_dropped_and_confirmed() -> None:
    house = House()
    queue = house.queue()
    peer = confirmer(house)
    send(peer, 0, 1, 2)
    send(peer, 1, 2, 3)
    assert outcomes(peer) == ({1, 2, 3, 4, 5, 6}, set())
    assert contents(house) == [b"0", b"1", b"2", b"3"]
    assert queue.published_count == 4


def test_producers_are_told_apart_and_so_are_queues() -> None:
    house = House()
    house.queue("q")
    house.queue("other")
    peer = confirmer(house)
    send(peer, 5)
    send(peer, 5, producer="another")
    send(peer, 5, queue="other")
    send(peer, 4)
    assert contents(house) == [b"5", b"5"]
    assert contents(house, "other") == [b"5"]


def test_messages_without_a_number_always_come() -> None:
    house = House()
    house.queue()
    peer = confirmer(house)
    send(peer, 9)
    peer.publish(1, "q", b"plain", b"plain")
    assert contents(house) == [b"9", b"plain", b"plain"]


def test_the_same_twice_in_one_read_comes_once() -> None:
    house = House()
    house.queue()
    peer = confirmer(house)
    peer.publish(1, "q", b"once", b"again", properties=numbered(1))
    assert outcomes(peer) == ({1, 2}, set())
    assert contents(house) == [b"once"]


def test_messages_of_one_read_with_other_keys_and_without_numbers_are_all_told_apart() -> None:
    house = House()
    house.queue("q")
    house.queue("other")
    peer = confirmer(house)
    sent = [("q", numbered(1)), ("other", numbered(2)), ("q", numbered(3)), ("q", PERSISTENT), ("q", numbered(3))]
    for _ in range(2):
        for part in (sent[:3], sent[3:4], sent[4:]):
            frames = [encode_method(BasicPublish("", key), 1) + make_wire(b"x", 1, raw) for key, raw in part]
            peer._receive(b"".join(frames))
    assert outcomes(peer) == (set(range(1, 11)), set())
    assert len(contents(house, "q")) == 4
    assert len(contents(house, "other")) == 1


def test_credit_is_handled_for_what_is_dropped_too() -> None:
    house = House("20,5")
    house.queue()
    peer = confirmer(house)
    for _ in range(5):
        send(peer, *range(20))
    house.run_until_idle()
    channel = peer.reader.lanes[1].channel
    (link,) = channel.outgoing.values()
    assert link.credit > 0
    assert not channel.blocked_by
    assert len(contents(house)) == 20


def test_a_transaction_moves_the_mark_when_it_is_committed() -> None:
    house = House()
    house.queue()
    peer = house.peer()
    peer.open()
    peer.ask(1, TxSelect())
    send(peer, 1, 2)
    assert contents(house) == []
    assert peer.ask(1, TxCommit()) == [TxCommitOk()]
    send(peer, 1, 2, 3)
    assert peer.ask(1, TxCommit()) == [TxCommitOk()]
    assert contents(house) == [b"1", b"2", b"3"]


@pytest.mark.parametrize(
    ("headers", "text"),
    [
        (
            {"x-penstock-producer": 5, "x-penstock-publishing-id": 1},
            "'x-penstock-producer' must be text, got signedint",
        ),
        ({"x-penstock-producer": "", "x-penstock-publishing-id": 1}, "'x-penstock-producer' must have 1 to 255 bytes"),
        (
            {"x-penstock-producer": "p" * 256, "x-penstock-publishing-id": 1},
            "'x-penstock-producer' must have 1 to 255 bytes, got 256",
        ),
        (
            {"x-penstock-producer": "p", "x-penstock-publishing-id": "1"},
            "'x-penstock-publishing-id' must be an integer, got longstr",
        ),
        (
            {"x-penstock-producer": "p", "x-penstock-publishing-id": True},
            "'x-penstock-publishing-id' must be an integer, got bool",
        ),
        (
            {"x-penstock-producer": "p", "x-penstock-publishing-id": -1},
            "'x-penstock-publishing-id' must not be negative, got -1",
        ),
        ({"x-penstock-producer": "p"}, "'x-penstock-producer' without 'x-penstock-publishing-id'"),
        ({"x-penstock-publishing-id": 1}, "'x-penstock-publishing-id' without 'x-penstock-producer'"),
    ],
)
def test_a_wrong_number_is_refused_and_the_header_is_named(headers: Table, text: str) -> None:
    house = House()
    house.queue()
    peer = house.peer()
    peer.open()
    peer.publish(1, "q", b"x", properties=encode_properties(Properties(headers=headers)))
    (close,) = peer.methods()
    assert isinstance(close, ChannelClose)
    assert close.reply_code == 406
    assert text in close.reply_text


def test_who_has_not_said_that_it_numbers_its_messages_only_passes_such_headers_on() -> None:
    """It may publish again what it consumed, headers and all: nothing is dropped for that, and nothing refused."""
    house = House()
    house.queue()
    send(confirmer(house), 5)
    other = house.peer("other", numbers=False)
    other.open()
    other.ask(1, ConfirmSelect())
    send(other, 5, 3)
    other.publish(1, "q", b"odd", properties=numbered("no number"))
    assert outcomes(other) == ({1, 2, 3}, set())
    assert contents(house) == [b"5", b"5", b"3", b"odd"]
    send(confirmer(house, "again"), 5)
    assert len(contents(house)) == 4


# Refusals.


def test_what_is_refused_may_come_again_and_nothing_behind_it_is_taken_before() -> None:
    house = House()
    house.queue(arguments={"x-max-length": 2, "x-overflow": "reject-publish"})
    peer = confirmer(house)
    send(peer, 1, 2, 3, 4)
    assert outcomes(peer) == ({1, 2}, {3, 4})
    reader = house.peer("reader")
    reader.open()
    reader.consume(1)
    assert reader.bodies() == [b"1", b"2"]
    send(peer, 5, 6)  # sent before the producer knew
    assert outcomes(peer) == (set(), {5, 6})
    send(peer, 3, 4, 5, 6)
    assert outcomes(peer) == ({7, 8, 9, 10}, set())
    assert reader.bodies() == [b"3", b"4", b"5", b"6"]


def test_a_small_one_behind_a_large_one_that_is_refused_is_refused_too() -> None:
    house = House()
    house.queue(arguments={"x-max-length-bytes": 10, "x-overflow": "reject-publish"})
    peer = confirmer(house)
    method = [(1, b"12345678"), (2, b"too large"), (3, b"s")]
    for id_, body in method:
        peer.publish(1, "q", body, properties=numbered(id_))
    assert outcomes(peer) == ({1}, {2, 3})
    send(peer, 1)
    assert outcomes(peer) == ({4}, set())
    assert contents(house) == [b"12345678"]


def test_a_gap_is_of_one_channel_and_goes_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duplicates, "GAPS_MAX", 3)
    house = House()
    queue = house.queue(arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    for at in range(10):
        peer = confirmer(house, f"publisher {at}")
        send(peer, 1, 2 + at)
        assert outcomes(peer) == ({1}, {2})
        peer.ask(1, ChannelClose(200, "bye", 0, 0))
    assert queue.duplicates is not None
    assert len(queue.duplicates._gaps) <= 4
    queue.purge()
    send(confirmer(house), 2)
    assert contents(house) == [b"2"]


def test_what_is_still_on_its_way_on_an_old_connection_makes_no_gap() -> None:
    house = House()
    queue = house.queue(arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    old, new = confirmer(house, "old"), confirmer(house, "new")
    send(old, 1, 2, 3)
    assert outcomes(old) == ({1}, {2, 3})
    queue.purge()
    send(new, 1, 2)
    assert outcomes(new) == ({1, 2}, set())
    queue.purge()
    send(old, 4)
    assert outcomes(old) == (set(), {4})
    send(new, 3)
    queue.purge()
    assert outcomes(new) == ({3}, set())


def test_a_publisher_without_confirms_is_not_held_up_by_a_refusal() -> None:
    house = House()
    queue = house.queue(arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    peer = house.peer()
    peer.open()
    send(peer, 1, 2)
    house.run_until_idle()
    queue.purge()
    send(peer, 3)
    assert contents(house) == [b"3"]


# Dead letters.


def test_a_dead_letter_is_never_a_duplicate() -> None:
    house = House()
    house.queue("q", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
    house.queue("dead")
    peer = confirmer(house)
    send(peer, 9, queue="dead")
    send(peer, 1, 2)
    reader = house.peer("reader")
    reader.open()
    reader.consume(1, "q")
    assert reader.bodies() == [b"1", b"2"]
    reader.nack(1, 2, multiple=True, requeue=False)
    assert contents(house, "dead") == [b"9", b"1", b"2"]
    send(peer, 9, queue="dead")
    assert len(contents(house, "dead")) == 3


# The disk.


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "messages"


def test_after_a_crash_what_comes_again_is_known(directory: Path) -> None:
    with StoreHouse(directory) as house:
        house.durable()
        send(confirmer(house), 0, 1, 2)
        house.flush()
        house.kill()
    with house.next_life() as again:
        peer = confirmer(again)
        send(peer, 1, 2, 3)
        assert outcomes(peer) == ({1, 2, 3}, set())
        assert contents(again) == [b"0", b"1", b"2", b"3"]


def test_a_transient_message_is_known_only_as_long_as_it_can_be_there(directory: Path) -> None:
    with StoreHouse(directory) as house:
        house.durable()
        peer = confirmer(house)
        send(peer, 1)
        send(peer, 2, mode=1)
        send(peer, 2, mode=1)
        assert contents(house) == [b"1", b"2"]
        house.flush()
        house.kill()
    with house.next_life() as again:
        send(confirmer(again), 1, 2, mode=1)
        assert contents(again) == [b"1", b"2"]


def test_a_second_copy_is_confirmed_only_when_the_first_is_on_disk(directory: Path) -> None:
    with StoreHouse(directory) as house:
        house.durable()
        first, second = confirmer(house, "first"), confirmer(house, "second")
        house.disk.stop("sync", "journal")
        send(first, 1)
        house.run_turns()
        send(second, 1)
        house.run_turns()
        assert not said_now(first)
        assert not said_now(second)
        house.disk.go_on()
        assert outcomes(first) == ({1}, set())
        assert outcomes(second) == ({1}, set())
        assert contents(house) == [b"1"]


def said_now(peer: FakePeer) -> list[object]:
    """What was sent to it so far, without waiting for the disk."""
    return [said.method for said in read_said(b"".join(peer.frames))]


def test_a_message_whose_sync_failed_is_not_taken_twice(directory: Path) -> None:
    with StoreHouse(directory) as house:
        house.durable()
        peer = confirmer(house)
        house.disk.fail("sync", "journal", times=1)
        send(peer, 1)
        house.run_turns()
        house.posts.run_until(lambda: house.troubles)
        send(peer, 1)
        house.posts.run_until(lambda: len(house.troubles) > 1)
        acked, nacked = outcomes(peer)
        assert (acked, nacked) == ({2}, {1})
        assert contents(house) == [b"1"]


def test_marks_survive_when_the_journal_is_gone_and_the_queue_is_empty(directory: Path) -> None:
    with StoreHouse(directory, journal_bytes=20_000) as house:
        house.durable()
        house.durable("filler")
        peer = confirmer(house)
        send(peer, *range(50))
        reader = house.peer("reader")
        reader.open()
        reader.tell(1, BasicConsume("q", "c", no_ack=True))
        assert len(reader.bodies()) == 50
        first = house.names("journal")
        plain = house.peer("plain")
        plain.open()
        while first[0] in house.names("journal") or not house.names("segment"):
            plain.publish(1, "filler", b"x" * 1000, properties=b"\x10\x00\x02")
            house.flush()
        house.kill()
    with house.next_life() as again:
        peer = confirmer(again)
        send(peer, *range(60))
        assert outcomes(peer)[1] == set()
        assert contents(again) == [b"%d" % id_ for id_ in range(50, 60)]


def test_marks_survive_a_stop_in_order(directory: Path) -> None:
    with StoreHouse(directory) as house:
        house.durable()
        send(confirmer(house), 1, 2)
        assert house.stop()
    with house.next_life() as again:
        assert not again.names("journal")[1:]
        send(confirmer(again), 1, 2, 3)
        assert contents(again) == [b"1", b"2", b"3"]
        assert again.stop()
    with again.next_life() as third:
        send(confirmer(third), 3)
        assert contents(third) == [b"1", b"2", b"3"]


def test_a_queue_that_is_deleted_and_declared_again_knows_nobody(directory: Path) -> None:
    with StoreHouse(directory) as house:
        queue = house.durable()
        send(confirmer(house), 1)
        house.run_until_idle()
        queue.delete()
        house.durable()
        send(confirmer(house, "again"), 1)
        assert contents(house) == [b"1"]


def test_priorities_have_one_mark(directory: Path) -> None:
    with StoreHouse(directory) as house:
        house.durable(max_priority=5)
        peer = confirmer(house)
        for id_, priority in enumerate((0, 5, 0, 3)):
            properties = Properties(
                headers={"x-penstock-producer": "p", "x-penstock-publishing-id": id_},
                delivery_mode=2,
                priority=priority,
            )
            peer.publish(1, "q", b"%d" % id_, properties=encode_properties(properties))
        house.flush()
        house.kill()
    with house.next_life() as again:
        send(confirmer(again), 0, 1, 2, 3)
        assert contents(again) == [b"1", b"3", b"0", b"2"]
