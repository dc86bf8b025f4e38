"""Watermarks: for any history, a confirm goes out once, and never while a saturated queue holds its message.

First the holds alone, against a model that knows every message by itself, with priorities and a slow disk; then real
channels and queues, where it is asked what a client would see.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.amqp.decoder import Message
from penstock.amqp.method import (
    BasicAck,
    BasicGet,
    ConfirmSelect,
    ExchangeDeclare,
    QueueBind,
    QueueDeclare,
    QueueDelete,
    QueuePurge,
)
from penstock.amqp.table import Table
from penstock.broker.channel import Channel
from penstock.broker.notices import Confirmed
from penstock.broker.policy import Policy
from penstock.broker.saturation import Saturation
from penstock.credit import Stage, Watermark
from penstock.credit.watermark import OFF
from penstock.store.log import LEVEL_SHIFT
from tests.unit.fakes import House, make_wire, publish_method

LEVELS = 2
CHANNELS = 2


class Known:
    """One message, as the model knows it."""

    def __init__(self, position: int, channel: int, number: int, size: int) -> None:
        self.position = position
        self.channel = channel
        self.number = number  # 0: nobody waits for it
        self.size = size
        self.on_disk = False
        self.held = False


class Pond:
    """A Saturation and its model. A turn: messages come, consumers take some, the queue is judged."""

    def __init__(self, watermark: Watermark) -> None:
        house = House()
        self.saturation = Saturation(watermark, house.clock.now_ns)
        self.watermark = watermark
        self.saturated = False
        self.channels = [self._channel(house, number) for number in range(CHANNELS)]
        self.alive: dict[Stage, None] = dict.fromkeys(self.channels)
        self.numbers = [0] * CHANNELS  # the last one of each
        self.inside: list[Known] = []
        self.fresh: list[Known] = []
        self.waiting: list[Known] = []  # for the disk
        self.heads = [level << LEVEL_SHIFT for level in range(LEVELS)]
        self.ends = list(self.heads)
        self.due: set[tuple[int, int]] = set()  # channel and number that may go now, by the model
        self.went: list[tuple[int, int]] = []

    def _channel(self, house: House, number: int) -> Channel:
        peer = house.peer(f"peer{number}")
        channel = peer.open(1)
        peer.ask(1, ConfirmSelect())
        return channel

    def arrive(self, channel: int, confirmed: bool, sizes: list[tuple[int, int]], at_once: bool) -> None:
        """Messages as (priority, size) come from a channel; what need not go to disk is there at once."""
        batch: list[Known] = []
        messages: list[Message] = []
        for level, size in sizes:
            position = self.ends[level]
            self.ends[level] += 1
            if confirmed:
                self.numbers[channel] += 1
            batch.append(Known(position, channel, self.numbers[channel] if confirmed else 0, size))
            messages.append((publish_method(1, "q"), make_wire(b"x" * size)))
        positions = [known.position for known in batch]
        consecutive = positions == list(range(positions[0], positions[0] + len(positions)))
        self.saturation.arrived(range(positions[0], positions[-1] + 1) if consecutive else positions, messages)
        self.inside += batch
        self.fresh += batch
        if at_once:
            self.sync(batch)
        else:
            self.waiting += batch

    def sync(self, batch: list[Known]) -> None:
        """These are on disk: their confirms could go."""
        for known in batch:
            known.on_disk = True
        for channel in range(CHANNELS):
            mine = [known for known in batch if known.channel == channel and known.number]
            if mine:
                numbers = runs_of([known.number for known in mine])
                free = self.saturation.hold(self.channels[channel], numbers, [known.position for known in mine])
                self._note(channel, free)

    def leave(self, count: int) -> None:
        """Consumers take so many: the highest priority first, and in order."""
        for _ in range(min(count, len(self.inside))):
            first = max(self.inside, key=lambda known: (known.position >> LEVEL_SHIFT, -known.position))
            self.inside.remove(first)
            self.heads[first.position >> LEVEL_SHIFT] = first.position + 1
            first.held = False
            self._may_go(first)

    def judge(self) -> None:
        count, bytes_ = len(self.inside), sum(known.size for known in self.inside)
        self.saturation.judge(count, bytes_, self.heads, self.alive)
        was_saturated = self.saturated
        marks = self.watermark
        if was_saturated:
            below = (marks.stop_count == OFF or count < marks.resume_count) and (
                marks.stop_bytes == OFF or bytes_ < marks.resume_bytes
            )
            self.saturated = bool(count) and not below
        else:
            self.saturated = marks.is_above(count, bytes_)
        for known in reversed([one for one in self.fresh if one in self.inside]):
            known.held = self.saturated and (was_saturated or marks.is_above(count, bytes_))
            count -= 1
            bytes_ -= known.size
        if not self.saturated:
            for known in self.inside:
                known.held = False
        for known in [*self.inside, *self.fresh]:
            self._may_go(known)
        self.fresh = []
        self._listen()

    def end(self) -> None:
        self.saturation.release()
        for known in self.inside:
            known.held = False
            self._may_go(known)
        self._listen()
        waiting, self.waiting = self.waiting, []
        self.sync(waiting)
        for known in waiting:
            self._may_go(known)

    def check(self) -> None:
        assert len(self.went) == len(set(self.went)), "confirmed twice"
        assert set(self.went) == self.due
        held = [known for known in self.inside if known.held and known.on_disk and known.number]
        assert self.saturation.held == len(held)
        assert self.saturation.saturated == self.saturated

    def _may_go(self, known: Known) -> None:
        if known.number and known.on_disk and not known.held:
            self.due.add((known.channel, known.number))

    def _listen(self) -> None:
        for at, channel in enumerate(self.channels):
            for notice in channel.mailbox.urgent:
                assert isinstance(notice, Confirmed)
                self._note(at, notice.numbers)
            channel.mailbox.urgent.clear()

    def _note(self, channel: int, runs: list[tuple[int, int]]) -> None:
        self.went += [(channel, number) for first, last in runs for number in range(first, last + 1)]


def runs_of(numbers: list[int]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and runs[-1][1] + 1 == number:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return runs


marks = st.one_of(st.just(OFF), st.integers(0, 12))
watermarks = st.builds(Watermark, marks, marks, marks.map(lambda mark: mark * 10 if mark > 0 else mark), marks)
sizes = st.lists(st.tuples(st.integers(0, LEVELS - 1), st.sampled_from((0, 1, 10, 100))), min_size=1, max_size=8)
turns = st.lists(
    st.tuples(
        st.lists(st.tuples(st.integers(0, CHANNELS - 1), st.booleans(), sizes, st.booleans()), max_size=3),
        st.integers(0, 12),  # taken by consumers
        st.integers(0, 10),  # synced after the turn
    ),
    max_size=12,
)


@settings(max_examples=300)
@given(watermarks, turns, st.booleans())
def test_a_confirm_is_held_exactly_as_long_as_its_message_is_in_the_saturated_queue(
    watermark: Watermark,
    history: list[tuple[list[tuple[int, bool, list[tuple[int, int]], bool]], int, int]],
    deleted: bool,
) -> None:
    pond = Pond(watermark)
    for arrivals, taken, synced in history:
        for arrival in arrivals:
            pond.arrive(*arrival)
        pond.leave(taken)
        pond.judge()
        pond.check()
        batch, pond.waiting = pond.waiting[:synced], pond.waiting[synced:]
        pond.sync(batch)
        for known in batch:
            pond._may_go(known)
        pond.check()
    if deleted:
        pond.end()
        assert sorted(pond.went) == [
            (channel, number) for channel in range(CHANNELS) for number in range(1, pond.numbers[channel] + 1)
        ]


class Held:
    """A queue as the model knows it: numbers in order, which of them it holds, and whether it is saturated."""

    def __init__(self, stop: int, resume: int, maximum: int) -> None:
        self.stop = stop
        self.declared_resume = self.resume = resume
        self.maximum = maximum  # of a queue that drops; OFF: it has none
        self.inside: list[int] = []
        self.holds: set[int] = set()
        self.saturated = False

    def come(self, numbers: list[int]) -> None:
        self.inside += numbers
        if self.maximum != OFF:
            self.go(max(0, len(self.inside) - self.maximum))
        mine = numbers if self.saturated else numbers[max(0, len(numbers) - len(self.inside) + self.stop) :]
        self.holds |= set(mine) & set(self.inside)
        self.saturated = self.saturated or len(self.inside) > self.stop
        self.look()

    def go(self, count: int) -> None:
        self.holds -= set(self.inside[:count])
        del self.inside[:count]

    def look(self) -> None:
        if self.saturated and (not self.inside or len(self.inside) < self.resume):
            self.saturated = False
            self.holds.clear()


@st.composite
def declared(draw: st.DrawFn) -> Held:
    stop = draw(st.integers(1, 12))
    maximum = draw(st.one_of(st.just(OFF), st.integers(stop, 20)))
    return Held(stop, draw(st.integers(0, stop)), maximum)


steps = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(("fan", "q0", "q1")), st.integers(1, 15)),
        st.tuples(st.sampled_from(("take q0", "take q1")), st.integers(1, 15)),
        st.tuples(st.sampled_from(("purge q0", "delete q1", "policy q0", "policy q1")), st.integers(1, 15)),
    ),
    max_size=25,
)


@given(st.tuples(declared(), declared()), steps)
def test_a_client_sees_each_confirm_once_when_no_saturated_queue_holds_its_message(
    queues: tuple[Held, Held], history: list[tuple[str, int]]
) -> None:
    house = House()
    peer = house.peer()
    peer.open(1)
    peer.ask(1, ExchangeDeclare("fan", "fanout"))
    models = {f"q{at}": queue for at, queue in enumerate(queues)}
    for name, model in models.items():
        arguments: Table = {"x-flow-stop-count": model.stop, "x-flow-resume-count": model.resume}
        if model.maximum != OFF:
            arguments["x-max-length"] = model.maximum
        peer.ask(1, QueueDeclare(name, arguments=arguments))
        peer.ask(1, QueueBind(name, "fan", ""))
    peer.ask(1, ConfirmSelect())
    sent = 0
    acked: set[int] = set()
    for action, count in history:
        name = action.split()[-1]
        if action.startswith("q") or action == "fan":
            peer.publish(1, action, *[b"x"] * count, exchange="fan" if action == "fan" else "")
            numbers = list(range(sent + 1, sent + count + 1))
            sent += count
            for model in models.values() if action == "fan" else [models[name]] if name in models else []:
                model.come(numbers)
        elif name in models and action.startswith("take"):
            for _ in range(count):
                peer.tell(1, BasicGet(name, no_ack=True))
                models[name].go(1)
                models[name].look()
        elif name in models and action.startswith("purge"):
            peer.tell(1, QueuePurge(name))
            models[name].go(sent)
            models[name].look()
        elif name in models and action.startswith("delete"):
            peer.tell(1, QueueDelete(name))
            del models[name]
        elif name in models:
            peer.house.vhost.put_policy(Policy(name, f"^{name}$", {"flow-resume-count": count}))
            models[name].resume = min(count, models[name].declared_resume)  # a policy takes the place of the last
            models[name].look()
        for method in peer.methods():
            if isinstance(method, BasicAck):
                first = 1 if method.multiple else method.delivery_tag
                told = set(range(first, method.delivery_tag + 1)) - acked
                assert told, "told twice"
                acked |= told
        assert acked == set(range(1, sent + 1)) - {number for model in models.values() for number in model.holds}
