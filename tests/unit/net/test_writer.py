"""Writer: one write per turn, large pieces uncopied, and a full socket that feeds the starving when it has drained."""

from __future__ import annotations

from penstock.amqp.frame import HEARTBEAT_FRAME
from penstock.net.writer import JOIN_BYTES_MAX, REPLIES_HIGH_BYTES, Writer
from tests.unit.fakes import FakeTransport, House


class Desk:
    def __init__(self) -> None:
        self.house = House()
        self.transport = FakeTransport()
        self.changes: list[bool] = []
        self.writer = Writer(self.transport, self.house.scheduler, lambda: self.changes.append(self.writer.overdue))


def test_all_frames_of_a_turn_are_one_write() -> None:
    desk = Desk()
    for frame in (b"a", b"b", b"c"):
        desk.writer.outbox.send(frame)
    assert desk.transport.written == []
    assert desk.house.run_until_idle() == 1
    assert desk.transport.written == [b"abc"]
    desk.writer.outbox.send(b"d")
    desk.house.run_until_idle()
    assert desk.transport.written == [b"abc", b"d"]


def test_a_turn_without_frames_writes_nothing() -> None:
    desk = Desk()
    desk.house.scheduler.call_after_turn(desk.writer.flush)
    desk.house.run_until_idle()
    assert desk.transport.written == []
    assert not desk.writer.wrote


def test_large_pieces_are_handed_over_as_they_are_and_the_order_is_kept() -> None:
    desk = Desk()
    large = b"L" * (JOIN_BYTES_MAX + 1)
    for frame in (b"a", b"b", large, b"c", large, large, b"d"):
        desk.writer.outbox.send(frame)
    desk.house.run_until_idle()
    assert desk.transport.written == [b"ab", large, b"c", large, large, b"d"]


def test_wrote_is_noted_for_the_heartbeat() -> None:
    desk = Desk()
    assert not desk.writer.wrote
    desk.writer.outbox.send(HEARTBEAT_FRAME)
    desk.house.run_until_idle()
    assert not desk.writer.wrote  # a heartbeat does not make the next one unnecessary
    desk.writer.outbox.send(HEARTBEAT_FRAME + HEARTBEAT_FRAME)
    desk.house.run_until_idle()
    assert desk.writer.wrote


def test_a_full_socket_still_takes_replies_but_no_deliveries_and_drained_wakes_the_starving_queue() -> None:
    desk = Desk()
    queue = desk.house.queue("q")
    desk.writer.socket_full()
    assert desk.writer.outbox.is_full()
    desk.writer.outbox.starve(queue)
    desk.writer.outbox.send(b"reply")
    desk.house.run_until_idle()
    assert desk.transport.written == [b"reply"]
    assert not queue.mailbox.scheduled
    desk.writer.socket_drained()
    assert queue.mailbox.scheduled
    assert not desk.writer.outbox.is_full()


def test_a_peer_that_does_not_read_its_replies_is_overdue_until_the_socket_has_drained() -> None:
    desk = Desk()
    desk.transport.unsent_bytes = REPLIES_HIGH_BYTES
    desk.writer.outbox.send(b"x")
    desk.house.run_until_idle()
    assert not desk.writer.overdue
    desk.transport.unsent_bytes += 1
    for _ in range(3):
        desk.writer.outbox.send(b"x")
        desk.house.run_until_idle()
    assert desk.writer.overdue
    assert desk.changes == [True]
    desk.writer.socket_drained()
    assert desk.changes == [True, False]
    desk.writer.socket_drained()
    assert desk.changes == [True, False]


def test_the_last_frames_are_sent_before_the_socket_is_closed() -> None:
    desk = Desk()
    desk.writer.outbox.send(b"close-ok")
    desk.writer.close_after_flush()
    assert not desk.transport.closing
    desk.house.run_until_idle()
    assert desk.transport.written == [b"close-ok"]
    assert desk.transport.closing


def test_the_socket_is_closed_even_if_there_is_nothing_more_to_send() -> None:
    desk = Desk()
    desk.writer.close_after_flush()
    desk.house.run_until_idle()
    assert desk.transport.closing


def test_nothing_is_written_to_a_socket_that_is_closing() -> None:
    desk = Desk()
    desk.writer.outbox.send(b"x")
    desk.transport.closing = True
    desk.house.run_until_idle()
    assert desk.transport.written == []


def test_a_closed_writer_takes_nothing_and_tells_nobody() -> None:
    desk = Desk()
    desk.writer.close()
    desk.writer.outbox.send(b"late")
    desk.writer.overdue = True
    desk.writer.socket_drained()
    desk.house.run_until_idle()
    assert desk.transport.written == []
    assert desk.changes == []
