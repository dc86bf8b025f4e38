"""Snapshot: what an operator sees of queues, connections and channels."""

from __future__ import annotations

import pytest

from penstock.amqp.method import ConfirmSelect
from penstock.broker.admin import Admin, AdminError
from tests.unit.fakes import House


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
