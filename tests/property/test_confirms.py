"""Confirms against a simple model: every number is acked or nacked exactly once, and never too early."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.amqp.method import BasicAck, BasicNack
from penstock.broker.confirms import Confirms
from tests.unit.fakes import read_said


class Model:
    """What the broker knows by number, and what a client makes of the frames."""

    def __init__(self) -> None:
        self.confirms = Confirms(1)
        self.missing: dict[int, set[int]] = {}  # number -> queues that have not said anything
        self.acked: set[int] = set()
        self.nacked: set[int] = set()
        self.outstanding: set[int] = set()
        self.told_acked: set[int] = set()
        self.told_nacked: set[int] = set()

    def publish(self, count: int, queues: int) -> None:
        first = self.confirms.expect(count, queues)
        for number in range(first, first + count):
            self.outstanding.add(number)
            if queues:
                self.missing[number] = set(range(queues))
            else:
                self.acked.add(number)

    def waiting_for(self, queue: int) -> list[tuple[int, int]]:
        """Runs of numbers this queue has still to speak about: a queue may take many publishes at once."""
        runs: list[tuple[int, int]] = []
        for number in sorted(number for number, queues in self.missing.items() if queue in queues):
            if runs and runs[-1][1] == number - 1:
                runs[-1] = (runs[-1][0], number)
            else:
                runs.append((number, number))
        return runs

    def confirm(self, queue: int, first: int, last: int) -> None:
        self.confirms.confirm(first, last)
        for number in range(first, last + 1):
            self.missing[number].discard(queue)
            if not self.missing[number]:
                del self.missing[number]
                self.acked.add(number)

    def reject(self, first: int, last: int) -> None:
        self.confirms.reject(first, last)
        for number in range(first, last + 1):
            del self.missing[number]
            self.nacked.add(number)

    def flush(self) -> None:
        for said in read_said(self.confirms.flush()):
            method = said.method
            assert isinstance(method, (BasicAck, BasicNack))
            number = method.delivery_tag
            if method.multiple:
                meant = {one for one in self.outstanding if one <= number}
                assert meant, "an ack that says nothing"
            else:
                assert number in self.outstanding, f"{number} told twice"
                meant = {number}
            self.outstanding -= meant
            (self.told_acked if isinstance(method, BasicAck) else self.told_nacked).update(meant)
        assert self.told_acked == self.acked
        assert self.told_nacked == self.nacked
        assert self.confirms.unconfirmed() == len(self.missing)


def walk(data: st.DataObject, part_of_runs: bool) -> None:
    model = Model()
    for _ in range(data.draw(st.integers(1, 25))):
        action = data.draw(st.sampled_from(("publish", "publish", "confirm", "confirm", "confirm", "reject", "flush")))
        if action == "publish":
            model.publish(data.draw(st.integers(1, 6)), data.draw(st.integers(0, 3)))
        elif action == "flush":
            model.flush()
        else:
            queue = data.draw(st.integers(0, 2))
            runs = model.waiting_for(queue)
            if not runs:
                continue
            first, last = data.draw(st.sampled_from(runs))
            if part_of_runs:
                first = data.draw(st.integers(first, last))
                last = data.draw(st.integers(first, last))
            else:
                last = first
            if action == "confirm":
                model.confirm(queue, first, last)
            else:
                model.reject(first, last)
    model.flush()


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_numbers_settled_singly_in_any_order_are_told_exactly_once(data: st.DataObject) -> None:
    walk(data, part_of_runs=False)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_numbers_settled_in_any_runs_are_told_exactly_once(data: st.DataObject) -> None:
    walk(data, part_of_runs=True)
