"""A queue with a million messages of work starves neither a heartbeat nor another queue."""

from __future__ import annotations

from itertools import repeat

import pytest

from penstock.amqp.frame import HEARTBEAT_FRAME
from penstock.amqp.method import ChannelOpen
from penstock.broker.queue import Queue
from penstock.net.heartbeat import Heartbeat
from penstock.runtime.scheduler import STAGE_BUDGET, TURN_BUDGET
from tests.unit.fakes import House, make_wire, publish_method

MILLION = 1_000_000
BODIES = {"empty": b"", "100 bytes": b"x" * 100}


def fill(queue: Queue, body: bytes) -> None:
    wire = make_wire(body)
    queue.shelves.append(list(repeat((publish_method(1, "busy"), wire), MILLION)), MILLION * len(wire), None)


class Town:
    """A house with a queue of a million ready messages and a consumer that takes them all."""

    def __init__(self, body: bytes) -> None:
        self.house = House()
        self.busy = self.house.queue("busy")
        self.other = self.house.queue("other")
        fill(self.busy, body)
        self.glutton = self.house.peer("glutton")
        self.glutton.open(1)
        self.glutton.consume(1, "busy", no_ack=True)


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_the_messages_of_one_turn_are_bounded(body: bytes) -> None:
    town = Town(body)
    before = 0
    for _ in range(10):
        town.house.turn()
        town.glutton.frames.clear()
        delivered = town.busy.delivered_count - before
        assert delivered <= TURN_BUDGET + STAGE_BUDGET
        before = town.busy.delivered_count
    assert before > 10 * STAGE_BUDGET, "hardly anything was delivered"


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_another_queue_is_served_within_one_turn(body: bytes) -> None:
    town = Town(body)
    patient = town.house.peer("patient")
    patient.tell(1, ChannelOpen())
    town.house.turn()
    patient.consume(1, "other", no_ack=True)
    town.house.turn()
    town.glutton.frames.clear()
    patient.frames.clear()
    patient.publish(1, "other", b"hello")
    town.house.turn()
    assert town.busy.count() > 0
    assert town.other.delivered_count == 1
    assert b"hello" in b"".join(patient.frames)


def test_a_heartbeat_goes_out_between_turns() -> None:
    town = Town(b"x")
    peer = town.house.peer("with heartbeats")
    lost: list[int] = []
    Heartbeat(
        town.house.clock,
        10,
        lambda: peer.outbox.send(HEARTBEAT_FRAME),
        lambda: lost.append(1),
        lambda: False,
    )
    for number in range(1, 4):
        town.house.turn()
        town.glutton.frames.clear()
        town.house.clock.advance(5)  # the loop's turn: a timer falls due
        town.house.turn()
        assert peer.frames == [HEARTBEAT_FRAME] * number
    assert town.busy.count() > 0
    assert not lost


def test_a_hundred_busy_queues_each_have_their_turn_before_any_has_its_second() -> None:
    house = House()
    queues = [house.queue(f"q{number}") for number in range(100)]
    peer = house.peer()
    peer.open(1)
    for queue in queues:
        peer.consume(1, queue.queue_name, queue.queue_name, no_ack=True, nowait=True)
    house.run_until_idle()
    wire = make_wire(b"")
    for queue in queues:
        queue.shelves.append(list(repeat((publish_method(1, "q"), wire), 5000)), 5000 * len(wire), None)
        queue.mailbox.wake()
    while not all(queue.delivered_count for queue in queues):
        assert all(queue.delivered_count <= STAGE_BUDGET for queue in queues)
        house.turn()
        peer.frames.clear()
