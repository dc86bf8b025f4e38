"""The broker with a message store against the model of test_model.py: random histories with paging all the time.

Beside what clients and operators do, messages leave RAM at random moments, also while others are being read back; every
few messages a checkpoint is made; and the broker stops in order, or is killed, and begins again on the same directory.
What each consumer gets, in which order, with which redelivered flag, and all counts must be the model's, which knows
nothing of disks. When a test fails, hypothesis prints the steps; threads are involved, so it may call it flaky.

In the normal run a few dozen examples. PENSTOCK_MODEL_EXAMPLES=5000 runs as many of each test.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from penstock.amqp.method import ExchangeDeclare
from penstock.broker.policy import Policy
from tests.property.model import nothing
from tests.property.test_model import (
    EXAMPLES,
    MODES,
    OFTEN,
    QUEUES,
    SELDOM,
    Bench,
    Kind,
    draw_arguments,
    often,
    step,
)
from tests.unit.fakes import FakePeer, HandLoop, StoreHouse

pytestmark = pytest.mark.timeout(900 + EXAMPLES)

Press = tuple[str, int, bool]  # queue, messages that may stay in RAM, transient ones too


class StoreBench(Bench):
    durable = True
    house: StoreHouse

    def __init__(self, kind: Kind, house: StoreHouse) -> None:
        self.presses: list[Press] = []
        self.persistent: set[int] = set()  # numbers of messages
        super().__init__(kind, house)
        self.counts_late = kind.timed or bool(kind.budgets)  # what is due, but on disk, is still counted
        self.has_bytes_max = True

    # Bytes of bodies that are on disk since the start, or since nobody counted, are guessed; the model knows them.

    def declare(self, name: str, arguments: dict[str, Any]) -> None:
        if not self.has_bytes_max:
            arguments = {key: value for key, value in arguments.items() if key != "x-max-length-bytes"}
        super().declare(name, arguments)

    def put_policy(self, name: str, operator: bool, priority: int, names: set[str], definition: dict[str, Any]) -> None:
        definition = {key: value for key, value in definition.items() if key != "max-length-bytes"}
        if definition:
            super().put_policy(name, operator, priority, names, definition)

    # Paging.

    def run(self) -> None:
        """Some leave RAM before anything runs, some while others are asked for."""
        for press in self.presses:
            self.press(press)
        HandLoop.run_until_idle(self.house)
        presses, self.presses = self.presses, []
        for press in presses:
            self.press(press)
        super().run()

    def press(self, press: Press) -> None:
        name, target, transient = press
        queue = self.house.vhost.queues.get(name)
        if queue is not None and queue.paging is not None:
            queue.paging.reduce(target, transient)

    def posted(self, before: int) -> None:
        if self.delivery_mode == 2:
            self.persistent.update(range(before, self.published))

    # Other lives.

    def stop(self) -> None:
        """The broker stops in order, its clients having been disconnected."""
        for index in range(len(self.peers)):
            self.lose_connection(index)
        note("stop")
        assert self.house.stop()
        self.forget_ram()
        self.start()

    def kill(self) -> None:
        note("kill")
        self.house.flush()
        self.house.kill()
        for queue in self.world.queues.values():
            for entry in queue.unacked:
                queue.put(entry)
        self.forget_ram()
        for queue in self.world.queues.values():
            for entry in queue.ready:
                entry.redelivered = True
        self.start()

    def forget_ram(self) -> None:
        for queue in self.world.queues.values():
            queue.ready = [entry for entry in queue.ready if entry.letter.number in self.persistent]
            for entry in queue.ready:
                entry.returns = 0
            queue.unacked.clear()
            queue.consumers.clear()
            queue.ranks.clear()
            queue.active = None
            queue.used = self.world.now

    def start(self) -> None:
        last = self.house
        house = self.house = StoreHouse(last.directory, ledger=last.ledger, now_ns=last.clock.now_ns(), **last.options)
        for name in ("all", "to-a", "to-b", "to-c"):
            house.vhost.declare_exchange(ExchangeDeclare(name, "fanout"))
        for (operator, name), (priority, names, definition) in self.world.policies.items():
            pattern = f"^[{''.join(sorted(names))}]$"
            house.vhost.put_policy(Policy(name, pattern, definition, "queues", priority, operator), operator)
        for name, model in self.world.queues.items():
            queue = house.queue(name, durable=True, arguments=model.arguments)
            house.vhost.bind(house.vhost.exchanges[f"to-{name}"], queue, "", {})
            if name != "b":
                house.vhost.bind(house.vhost.exchanges["all"], queue, "", {})
        house.begin()
        self.peers = [FakePeer(house, "p0"), FakePeer(house, "p1")]
        self.lines = {}
        for model in self.world.queues.values():
            self.world.tell(model, nothing)
        self.world.run()
        for key in MODES:
            self.open(key)
        self.compare()


def draw_press(draw: Any, bench: StoreBench) -> None:
    bench.presses = [
        (draw(st.sampled_from(QUEUES)), draw(st.integers(0, 3)), draw(st.booleans()))
        for _ in range(draw(st.integers(0, 2)))
    ]
    note(f"press {bench.presses}")


def walk(data: st.DataObject, kind: Kind, actions: list[str], one_by_one: bool = False) -> None:
    draw = data.draw
    directory = Path(tempfile.mkdtemp(prefix="penstock-paging-"))
    options: dict[str, Any] = {
        "journal_bytes": draw(st.sampled_from((1 << 26, 1000, 200))),
        "embed_below": draw(st.sampled_from((4096, 8))),
        **kind.budgets,
    }
    note(f"{options}")
    bench = StoreBench(kind, StoreHouse(directory, **options))
    bench.has_bytes_max = not set(LIVES) & set(actions)
    try:
        for name in QUEUES:
            bench.declare(name, draw_arguments(draw, kind, name))
        for _ in range(draw(st.sampled_from((40, 30, 20, 10, 5)))):
            draw_press(draw, bench)
            bench.delivery_mode = draw(st.sampled_from((2, 2, None)))
            before = bench.published
            action = draw(st.sampled_from(actions))
            if action == "stop":
                bench.stop()
            elif action == "kill":
                bench.kill()
            else:
                step(draw, bench, action, one_by_one)
            bench.posted(before)
    finally:
        with bench.house:
            pass
        shutil.rmtree(directory)


ENDS = ["recover", "close", "lose", "delete"]
LIVES = ["stop", "stop", "kill", "kill"]


@often(80)
@given(st.data())
def test_what_is_paged_out_comes_back_in_its_place_and_outlives_the_broker(data: st.DataObject) -> None:
    walk(data, Kind(timed=False, letters=False, priorities=False), OFTEN + SELDOM + ENDS + LIVES)


@often(80)
@given(st.data())
def test_priorities_are_kept_wherever_their_messages_are(data: st.DataObject) -> None:
    walk(data, Kind(timed=False, letters=False, priorities=True), OFTEN + SELDOM + ENDS + LIVES)


@often(80)
@given(st.data())
def test_dead_letters_are_sent_on_once_wherever_they_are(data: st.DataObject) -> None:
    walk(data, Kind(timed=False, letters=True, priorities=False), OFTEN + SELDOM + ENDS + LIVES)


@often(80)
@given(st.data())
def test_messages_expire_when_they_would_have_without_a_disk(data: st.DataObject) -> None:
    walk(data, Kind(timed=True, letters=False, priorities=True), OFTEN + SELDOM + ENDS + LIVES)


@often(80)
@given(st.data())
def test_limits_count_what_is_on_disk(data: st.DataObject) -> None:
    letters = data.draw(st.booleans())  # not both: dead letters come one by one from disk, whatever their priority
    walk(data, Kind(timed=False, letters=letters, priorities=not letters), OFTEN + SELDOM + ENDS)


@often(50)
@given(st.data(), st.integers(1, 4))
def test_however_little_a_queue_may_do_in_a_turn_paging_changes_nothing(data: st.DataObject, budget: int) -> None:
    kind = Kind(False, data.draw(st.booleans()), False, {"stage_budget": budget, "turn_budget": 3})
    walk(data, kind, [*OFTEN, "policy", "count", "purge", *LIVES], one_by_one=True)
