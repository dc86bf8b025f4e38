"""A producer that sends again whatever was not confirmed, and as much before it as it likes: every queue has every
message once, in order, whenever the broker is killed and whatever it refuses on the way."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.amqp.content import body
from penstock.amqp.method import BasicAck, BasicNack, ConfirmSelect, ExchangeDeclare, QueueBind
from penstock.amqp.properties import Properties, encode_properties
from tests.unit.fakes import FakePeer, House, StoreHouse, read_said

QUEUES = ("plain", "priorities", "lazy")


class Producer:
    """Numbers its messages and remembers which of them are confirmed, over all its connections."""

    def __init__(self, exchange: str, key: str) -> None:
        self.exchange = exchange
        self.key = key
        self.next = 0
        self.confirmed: set[int] = set()
        self._peer: FakePeer | None = None
        self._spare: list[FakePeer] = []
        self._sent: list[int] = []  # id by confirm number, from 1 on
        self._settled: set[int] = set()

    def connect(self, house: House, spare: int = 0) -> None:
        self._spare = [house.peer(f"publisher {at}") for at in range(spare + 1)]
        for peer in self._spare:
            peer.open()
            peer.ask(1, ConfirmSelect())
        self.reconnect()

    def reconnect(self) -> None:
        """To the next connection, while what was sent on the last one may still be on its way."""
        self._peer = self._spare.pop()
        self._sent = []
        self._settled = set()

    def send(self, count: int) -> None:
        for id_ in range(self.next, self.next + count):
            self._publish(id_)
        self.next += count

    def send_again(self, further_back: int) -> None:
        """From the first that is not confirmed on, or even earlier."""
        first = next((id_ for id_ in range(self.next) if id_ not in self.confirmed), self.next)
        for id_ in range(max(0, first - further_back), self.next):
            self._publish(id_)

    def _publish(self, id_: int) -> None:
        assert self._peer is not None
        self._sent.append(id_)
        properties = Properties(
            headers={"x-penstock-producer": "p", "x-penstock-publishing-id": id_}, delivery_mode=2, priority=id_ % 3
        )
        self._peer.publish(1, self.key, b"%d" % id_, exchange=self.exchange, properties=encode_properties(properties))

    def look(self) -> bool:
        """What has been said to it so far; whether all was confirmed."""
        assert self._peer is not None
        frames, self._peer.frames = self._peer.frames, []
        for said in read_said(b"".join(frames)):
            method = said.method
            if isinstance(method, (BasicAck, BasicNack)):
                numbers = range(1, method.delivery_tag + 1) if method.multiple else [method.delivery_tag]
                fresh = set(numbers) - self._settled
                self._settled |= fresh
                if isinstance(method, BasicAck):
                    self.confirmed.update(self._sent[number - 1] for number in fresh)
        return len(self.confirmed) == self.next


STEPS = st.one_of(
    st.tuples(st.just("send"), st.integers(1, 8)),
    st.tuples(st.just("again"), st.integers(0, 10)),
    st.tuples(st.just("turns"), st.integers(1, 6)),
    st.tuples(st.just("idle"), st.just(0)),
    st.tuples(st.just("fail"), st.integers(1, 2)),
    st.tuples(st.just("stand"), st.just(0)),
    st.tuples(st.just("kill"), st.integers(0, 10)),
    st.tuples(st.just("stop"), st.integers(0, 10)),
)


class Lives:
    def __init__(self, directory: Path) -> None:
        self.producer = Producer("fan", "")
        self.house = StoreHouse(directory, journal_bytes=4000)
        self.house.durable("plain")
        self.house.durable("priorities", max_priority=2)
        self.house.durable("lazy", queue_mode="lazy")
        self.begin()

    def begin(self) -> None:
        peer = self.house.peer("declarer")
        peer.open()
        peer.ask(1, ExchangeDeclare("fan", "fanout"))
        for name in QUEUES:
            peer.ask(1, QueueBind(name, "fan", ""))
        self.producer.connect(self.house)

    def step(self, name: str, number: int) -> None:
        producer, house = self.producer, self.house
        if name == "send":
            producer.send(number)
        elif name == "again":
            producer.look()
            producer.send_again(number)
        elif name == "turns":
            for _ in range(number):
                house.turn()
                house.posts.run()
        elif name == "idle":
            house.disk.go_on()
            house.run_until_idle()
        elif name == "stand":  # what comes from now on waits in the store's mailbox, and is lost when it is killed
            house.disk.stop("sync", "journal")
        elif name == "fail":
            house.disk.fail("sync", "journal", times=number)
        else:
            producer.look()
            if name == "kill":
                house.kill()
            else:
                house.disk.heal()
                house.posts.run_until(lambda: not house.store.trouble)
                house.stop()
            self.house = house.next_life()
            self.begin()
            producer.send_again(number)

    def finish(self) -> None:
        house, producer = self.house, self.producer
        house.disk.heal()
        house.posts.run_until(lambda: not house.store.trouble)
        house.run_until_idle()
        if not producer.look():
            producer.send_again(0)
            house.run_until_idle()
            assert producer.look(), "what is sent again is confirmed"
        house.kill()
        self.house = house.next_life()  # what was confirmed is on disk

    def contents(self, queue: str) -> list[int]:
        reader = self.house.peer("reader")
        reader.open()
        reader.consume(1, queue)
        return [int(body) for body in reader.bodies()]


HELD_UP = [("stand", 0), ("send", 2), ("turns", 6), ("send", 2), ("turns", 6), ("again", 0), ("turns", 6), ("kill", 0)]

HELD_UP_TWICE = [("stand", 0), ("send", 2), ("turns", 6), ("stand", 0), ("idle", 0)]


@settings(max_examples=150, deadline=None)
@given(st.lists(STEPS, max_size=25))
@example(HELD_UP)
@example(HELD_UP_TWICE)
def test_whoever_sends_again_doubles_and_loses_nothing_over_any_number_of_kills(steps: list[tuple[str, int]]) -> None:
    with TemporaryDirectory() as directory:
        lives = Lives(Path(directory) / "messages")
        try:
            for name, number in steps:
                lives.step(name, number)
            lives.finish()
            every = list(range(lives.producer.next))
            assert lives.contents("plain") == every
            assert lives.contents("lazy") == every
            assert lives.contents("priorities") == sorted(every, key=lambda id_: (-(id_ % 3), id_))
        finally:
            lives.house.kill()


REFUSALS = st.one_of(
    st.tuples(st.just("send"), st.integers(1, 8)),
    st.tuples(st.just("again"), st.integers(0, 10)),
    st.tuples(st.just("take"), st.integers(1, 5)),
    st.tuples(st.just("turns"), st.integers(1, 6)),
    st.tuples(st.just("reconnect"), st.integers(0, 10)),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(REFUSALS, max_size=30), st.integers(1, 6))
def test_what_a_full_queue_refuses_comes_in_order_when_it_is_sent_again(
    steps: list[tuple[str, int]], length: int
) -> None:
    house = House("2,1")  # so that what was sent on an older connection comes between what is sent on a newer one
    queue = house.queue(arguments={"x-max-length": length, "x-overflow": "reject-publish"})
    producer = Producer("", "q")
    producer.connect(house, spare=len(steps))
    taken: list[int] = []

    def take(count: int) -> None:
        for _ in range(min(count, queue.count())):
            _, messages, _ = queue.shelves.front().pop(1, 0)
            taken.append(int(body(messages[0][1])))

    for name, number in steps:
        if name == "send":
            producer.send(number)
        elif name == "again":
            producer.look()
            producer.send_again(number)
        elif name == "take":
            take(number)
        elif name == "turns":
            for _ in range(number):
                house.turn()
        else:
            producer.look()
            producer.reconnect()
            producer.send_again(number)
    house.run_until_idle()
    while not producer.look():
        take(length)
        producer.send_again(0)
        house.run_until_idle()
    take(length)
    assert taken == list(range(producer.next))
