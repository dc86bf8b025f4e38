"""Outbox: gathers frames, wakes its writer once, and remembers who went without."""

from __future__ import annotations

from penstock.broker.outbox import GATHER_BYTES_MAX, Outbox
from tests.unit.fakes import House


def test_the_writer_is_woken_once_until_the_outbox_is_emptied() -> None:
    wakes: list[int] = []
    outbox = Outbox(lambda: wakes.append(1))
    outbox.send(b"a")
    outbox.send(b"bc")
    outbox.opened().append(b"d")
    outbox.gathered(1)
    assert len(wakes) == 1
    assert outbox.bytes == 4
    assert outbox.emptied() == [b"a", b"bc", b"d"]
    assert (outbox.bytes, outbox.frames) == (0, [])
    outbox.send(b"e")
    assert len(wakes) == 2


def test_an_outbox_is_full_while_the_socket_is_or_a_turn_has_gathered_a_lot() -> None:
    outbox = Outbox(lambda: None)
    assert not outbox.is_full()
    outbox.socket_full = True
    assert outbox.is_full()
    outbox.socket_full = False
    outbox.send(b"x" * GATHER_BYTES_MAX)
    assert not outbox.is_full()
    outbox.send(b"x")
    assert outbox.is_full()
    outbox.emptied()
    assert not outbox.is_full()


def test_a_starving_queue_is_woken_when_the_outbox_is_emptied_but_not_while_the_socket_is_full() -> None:
    house = House()
    queue = house.queue("q")
    outbox = Outbox(lambda: None)
    outbox.starve(queue)
    outbox.starve(queue)
    outbox.socket_full = True
    outbox.emptied()
    assert not queue.mailbox.scheduled
    outbox.socket_full = False
    outbox.feed_starving()
    assert queue.mailbox.scheduled
    house.run_until_idle()
    outbox.emptied()
    assert not queue.mailbox.scheduled


def test_a_closed_outbox_takes_nothing_more_and_wakes_nobody() -> None:
    house = House()
    queue = house.queue("q")
    wakes: list[int] = []
    outbox = Outbox(lambda: wakes.append(1))
    outbox.starve(queue)
    outbox.close()
    outbox.send(b"late")
    assert outbox.emptied() == []
    assert not wakes
    assert not queue.mailbox.scheduled
    assert outbox.is_full()
