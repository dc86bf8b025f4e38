"""Sequence numbers: the same for a message whenever it comes, never the same for another, whatever happens between."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.amqp import content
from penstock.amqp.method import BasicConsumeOk, BasicDeliver, BasicGet, BasicGetOk, ChannelClose
from penstock.amqp.properties import Properties, decode_properties, encode_properties
from penstock.broker import stamps
from penstock.broker.ledger import Json
from penstock.broker.records import QUEUE_LOG
from penstock.store.log import LEVEL_SHIFT
from tests.unit.fakes import PERSISTENT, FakeLedger, FakePeer, House, StoreHouse, read_said

ASKED: dict[str, Any] = {"arguments": {"x-penstock-sequence": True}}


def consumer(house: House, queue: str = "q", **options: Any) -> FakePeer:
    peer = house.peer("reader", **options)
    peer.open()
    peer.consume(1, queue, **ASKED)
    return peer


def publisher(house: House) -> FakePeer:
    peer = house.peer("publisher")
    peer.open()
    return peer


def seen(peer: FakePeer) -> list[tuple[bytes, str]]:
    """Body and number of every delivery since the last look."""
    found: list[tuple[bytes, str]] = []
    for said in peer.said():
        if isinstance(said.method, BasicDeliver):
            headers = decode_properties(said.wire, content.FLAGS_OFFSET, content.properties_end(said.wire)).headers
            found.append((said.body or b"", str((headers or {}).get("x-penstock-sequence", ""))))
    return found


def position(stamp: str) -> int:
    return int(stamp.split("-")[1])


def life(stamp: str) -> str:
    return stamp.split("-")[0]


class SlowLedger(FakeLedger):
    """Commits when it is told to; what was put and not committed is not known to the next life."""

    def __init__(self) -> None:
        super().__init__()
        self.is_slow = False
        self.waiting: list[Callable[[], None]] = []
        self._later: list[tuple[str, tuple[str, ...], dict[str, Json]]] = []

    def put(self, kind: str, key: tuple[str, ...], body: dict[str, Json]) -> None:
        if self.is_slow:
            self._later.append((kind, key, body))
        else:
            super().put(kind, key, body)

    def after_commit(self, callback: Callable[[], None]) -> None:
        if self.is_slow:
            self.waiting.append(callback)
        else:
            callback()

    def commit(self) -> None:
        for change in self._later:
            super().put(*change)
        self._later.clear()
        waiting, self.waiting = self.waiting, []
        for callback in waiting:
            callback()


def test_every_delivery_has_the_queues_life_and_the_position() -> None:
    house = House()
    house.queue()
    peer = consumer(house)
    publisher(house).publish(1, "q", b"a", b"b", properties=encode_properties(Properties(message_id="m")))
    (a, first), (b, second) = seen(peer)
    assert (a, b) == (b"a", b"b")
    assert life(first) == life(second)
    assert int(life(first), 16)
    assert (position(first), position(second)) == (0, 1)


def test_who_does_not_ask_gets_messages_as_they_are() -> None:
    house = House()
    house.queue()
    peer = house.peer()
    peer.open()
    peer.consume(1, arguments={"x-penstock-sequence": False})
    publisher(house).publish(1, "q", b"a")
    assert seen(peer) == [(b"a", "")]
    assert house.vhost.queues["q"].stamps is None


def test_an_argument_that_is_no_boolean_is_refused() -> None:
    house = House()
    house.queue()
    peer = house.peer()
    peer.open()
    peer.consume(1, arguments={"x-penstock-sequence": "yes"})
    (close,) = peer.methods()
    assert isinstance(close, ChannelClose)
    assert close.reply_code == 406
    assert "x-penstock-sequence" in close.reply_text
    assert "expected boolean, got longstr" in close.reply_text


def test_basic_get_is_not_stamped_and_moves_nothing() -> None:
    house = House()
    house.queue()
    peer = house.peer()
    peer.open()
    publisher(house).publish(1, "q", b"a", b"b")
    peer.tell(1, BasicGet("q", True))
    (got,) = peer.said()
    assert isinstance(got.method, BasicGetOk)
    assert content.header_payload(got.wire)[-2:] == b"\x00\x00"
    assert [position(stamp) for _, stamp in seen(consumer(house))] == [1]


def test_a_message_that_comes_back_has_the_same_number_and_so_for_another_consumer() -> None:
    house = House()
    house.queue()
    first = consumer(house)
    publisher(house).publish(1, "q", b"a", b"b", b"c")
    before = seen(first)
    first.nack(1, 2)
    assert seen(first) == [before[1]]
    first.ask(1, ChannelClose(200, "bye", 0, 0))
    assert seen(consumer(house)) == before


def test_a_number_that_the_publisher_put_in_is_replaced() -> None:
    house = House()
    house.queue()
    peer = consumer(house)
    forged = encode_properties(Properties(headers={"x-penstock-sequence": "1-1", "mine": 5}))
    publisher(house).publish(1, "q", b"a", properties=forged)
    (said,) = [said for said in peer.said() if isinstance(said.method, BasicDeliver)]
    headers = decode_properties(said.wire, content.FLAGS_OFFSET, content.properties_end(said.wire)).headers
    assert headers is not None
    assert headers["x-penstock-sequence"] != "1-1"
    assert headers["mine"] == 5


def test_another_channel_number_and_small_frames_change_nothing() -> None:
    house = House()
    house.queue()
    peer = house.peer("reader", frame_max=4096)
    peer.open(3)
    peer.consume(3, **ASKED)
    publisher(house).publish(1, "q", b"x" * 10_000)
    ((body, stamp),) = seen(peer)
    assert body == b"x" * 10_000
    assert position(stamp) == 0


def test_a_message_whose_headers_leave_no_room_comes_without() -> None:
    house = House()
    house.queue()
    peer = consumer(house, frame_max=4096)
    large = encode_properties(Properties(headers={"large": "L" * 4040}))
    publisher(house).publish(1, "q", b"x", properties=large)
    assert seen(peer) == [(b"x", "")]


# Lives.


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "messages"


def test_a_persistent_message_keeps_its_number_over_a_crash_and_nobody_else_gets_it(directory: Path) -> None:
    with StoreHouse(directory) as house:
        house.durable()
        peer = consumer(house)
        publisher(house).publish(1, "q", b"a", b"b", properties=PERSISTENT)
        before = seen(peer)
        house.flush()
        house.kill()
    with house.next_life() as again:
        publisher(again).publish(1, "q", b"c", properties=PERSISTENT)
        after = seen(consumer(again))
        assert after[:2] == before
        assert life(after[2][1]) == life(before[0][1])
        assert position(after[2][1]) >= stamps.RESERVE


@pytest.mark.parametrize("lives", [1, 3])
def test_what_the_disk_never_had_is_not_mixed_up_with_what_comes_later(directory: Path, lives: int) -> None:
    """A transient message, and a persistent one that was delivered before it was written."""
    house = StoreHouse(directory)
    told: dict[str, bytes] = {}
    try:
        house.durable()
        for at in range(lives + 1):
            peer = consumer(house)
            sender = publisher(house)
            sender.publish(1, "q", b"transient %d" % at)
            house.run_turns()
            sender.publish(1, "q", b"persistent %d" % at, properties=PERSISTENT)
            for _ in range(2):
                if house.awake:
                    house.turn()  # it is on its way to the store, or to the consumer
            house.kill()
            for body, stamp in seen(peer):
                assert told.setdefault(stamp, body) == body
            assert told
            house = house.next_life()
    finally:
        house.kill()


def test_a_queue_that_is_not_kept_has_another_life_after_a_restart(directory: Path) -> None:
    with StoreHouse(directory) as house:
        house.queue()
        peer = consumer(house)
        publisher(house).publish(1, "q", b"a")
        ((_, before),) = seen(peer)
        house.kill()
    with house.next_life() as again:
        again.queue()
        peer = consumer(again)
        publisher(again).publish(1, "q", b"a")
        ((_, after),) = seen(peer)
    assert life(before) != life(after)


def test_a_queue_that_is_declared_again_has_another_life(directory: Path) -> None:
    with StoreHouse(directory) as house:
        lives = set()
        for _ in range(2):
            queue = house.durable()
            peer = consumer(house)
            publisher(house).publish(1, "q", b"a", properties=PERSISTENT)
            ((_, stamp),) = seen(peer)
            lives.add(life(stamp))
            queue.delete()
            house.run_until_idle()
        assert len(lives) == 2
        assert not [kind for kind, _ in house.ledger.known if kind == QUEUE_LOG]


def test_nothing_is_delivered_before_its_number_is_reserved(directory: Path) -> None:
    ledger = SlowLedger()
    with StoreHouse(directory, ledger=ledger) as house:
        house.durable()
        ledger.is_slow = True
        publisher(house).publish(1, "q", b"a", properties=PERSISTENT)
        peer = consumer(house)
        assert [type(method) for method in peer.methods()] == [BasicConsumeOk]
        ledger.commit()
        assert [body for body, _ in seen(peer)] == [b"a"]


def test_more_is_reserved_when_half_is_used_and_deliveries_go_on_meanwhile(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stamps, "RESERVE", 10)
    ledger = SlowLedger()
    with StoreHouse(directory, ledger=ledger) as house:
        house.durable()
        peer = consumer(house)
        sender = publisher(house)
        ledger.is_slow = True
        for at in range(10):
            sender.publish(1, "q", b"%d" % at, properties=PERSISTENT)
            assert [body for body, _ in seen(peer)] == [b"%d" % at]
        sender.publish(1, "q", b"one too many", properties=PERSISTENT)
        assert seen(peer) == []
        ledger.commit()
        assert [body for body, _ in seen(peer)] == [b"one too many"]


def test_a_persistent_message_is_delivered_when_it_is_synced_and_not_before(directory: Path) -> None:
    """Else it could be lost, sent again, and come a second time with another number."""
    with StoreHouse(directory) as house:
        house.durable()
        peer = consumer(house)
        assert seen(peer) == []
        house.disk.stop("sync", "journal")
        sender = publisher(house)
        sender.publish(1, "q", b"transient")
        sender.publish(1, "q", b"persistent", b"another", properties=PERSISTENT)
        sender.publish(1, "q", b"behind")
        house.run_turns()
        told = [said.body for said in read_said(b"".join(peer.frames)) if said.body]
        assert told == [b"transient"]
        peer.frames.clear()
        house.disk.go_on()
        assert [body for body, _ in seen(peer)] == [b"persistent", b"another", b"behind"]


def test_one_that_came_before_the_consumer_and_is_not_synced_comes_when_it_is(directory: Path) -> None:
    with StoreHouse(directory) as house:
        house.durable()
        publisher(house).publish(1, "q", b"a", properties=PERSISTENT)
        house.run_turns()
        assert [body for body, _ in seen(consumer(house))] == [b"a"]


def test_what_another_consumer_gave_back_before_it_was_synced_waits_too(directory: Path) -> None:
    with StoreHouse(directory) as house:
        house.durable()
        house.disk.stop("sync", "journal")
        plain = house.peer("plain")
        plain.open()
        plain.consume(1)
        publisher(house).publish(1, "q", b"a", properties=PERSISTENT)
        house.run_turns()
        assert b"a" in b"".join(plain.frames)
        asking = house.peer("asking")
        asking.open()
        asking.consume(1, tag="numbered", **ASKED)
        plain.tell(1, ChannelClose(200, "bye", 0, 0))
        house.run_turns()
        assert b"x-penstock-sequence" not in b"".join(asking.frames)
        house.disk.go_on()
        assert [body for body, _ in seen(asking)] == [b"a"]


def test_every_priority_has_its_own_positions_and_all_are_reserved(directory: Path) -> None:
    def send(house: StoreHouse) -> None:
        sender = publisher(house)
        for priority in (0, 5, 2):
            sender.publish(1, "q", b"%d" % priority, properties=encode_properties(Properties(priority=priority)))

    with StoreHouse(directory) as house:
        house.durable(max_priority=5)
        send(house)
        before = seen(consumer(house))
        assert [position(stamp) >> LEVEL_SHIFT for _, stamp in before] == [5, 2, 0]
        house.kill()
    with house.next_life() as again:
        send(again)
        after = seen(consumer(again))
    assert {stamp for _, stamp in before}.isdisjoint(stamp for _, stamp in after)
    assert [position(stamp) >> LEVEL_SHIFT for _, stamp in after] == [5, 2, 0]


def test_a_message_that_was_paged_out_keeps_its_number(directory: Path) -> None:
    with StoreHouse(directory) as house:
        queue = house.durable(queue_mode="lazy")
        sender = publisher(house)
        for at in range(300):
            sender.publish(1, "q", b"%d" % at + b"x" * 1000, properties=PERSISTENT)
        house.flush()
        queue.mailbox.wake()  # it has a look at what is on disk by now
        house.run_until_idle()
        assert queue.shelves.paged_count()
        first = consumer(house)
        before = seen(first)
        assert [position(stamp) for _, stamp in before] == list(range(300))
        first.ask(1, ChannelClose(200, "bye", 0, 0))
        assert seen(consumer(house)) == before


def test_a_queue_without_such_consumers_reserves_nothing(directory: Path) -> None:
    with StoreHouse(directory) as house:
        house.durable()
        publisher(house).publish(1, "q", b"a", properties=PERSISTENT)
        peer = house.peer()
        peer.open()
        peer.consume(1)
        assert peer.bodies() == [b"a"]
        assert "reserved" not in house.ledger.known[QUEUE_LOG, ("/", "q")]
