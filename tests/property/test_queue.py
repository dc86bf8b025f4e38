"""A real queue with real channels against a simple model: who gets which message, in which order, redelivered or not.

The model is one list of messages in the order they were published, and deals them out one by one.
"""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.amqp.method import (
    BasicCancel,
    BasicCancelOk,
    BasicConsumeOk,
    BasicDeliver,
    BasicGet,
    BasicGetEmpty,
    BasicGetOk,
    BasicQos,
    BasicQosOk,
    BasicRecover,
    BasicRecoverOk,
    ChannelClose,
    ChannelCloseOk,
    Method,
    QueuePurge,
    QueuePurgeOk,
)
from tests.unit.fakes import House

CHANNELS = (1, 2, 3)


class ModelConsumer:
    def __init__(self, tag: str, channel: int, no_ack: bool, prefetch: int) -> None:
        self.tag = tag
        self.channel = channel
        self.no_ack = no_ack
        self.prefetch = prefetch
        self.unacked = 0


class Model:
    """What a queue does, one message at a time."""

    def __init__(self, counted: Callable[[int], int]) -> None:
        self.counted = counted  # unacked deliveries of a channel
        self.ready: list[tuple[int, bool]] = []  # number, redelivered; in order of number
        self.consumers: list[ModelConsumer] = []  # in turn: the first is asked first
        self.global_prefetch = dict.fromkeys(CHANNELS, 0)

    def deal(self) -> dict[str, list[tuple[int, bool]]]:
        dealt: dict[str, list[tuple[int, bool]]] = {}
        while self.ready:
            consumer = next((one for one in self.consumers if self.has_room(one)), None)
            if consumer is None:
                break
            last = self.consumers.index(consumer) + 1
            self.consumers = self.consumers[last:] + self.consumers[:last]
            dealt.setdefault(consumer.tag, []).append(self.ready.pop(0))
            consumer.unacked += not consumer.no_ack
        return dealt

    def has_room(self, consumer: ModelConsumer) -> bool:
        if consumer.no_ack:
            return True
        whole = self.global_prefetch[consumer.channel]
        return not (consumer.prefetch and consumer.unacked >= consumer.prefetch) and not (
            whole and self.counted(consumer.channel) >= whole
        )

    def give_back(self, numbers: list[int]) -> None:
        self.ready = sorted([*self.ready, *((number, True) for number in numbers)])

    def remove(self, consumer: ModelConsumer) -> None:
        self.consumers.remove(consumer)


class Bench:
    """The real thing and the model side by side."""

    def __init__(self) -> None:
        self.house = House()
        self.queue = self.house.queue("q")
        self.publisher = self.house.peer("publisher")
        self.publisher.open(1)
        self.peer = self.house.peer("peer")
        for number in CHANNELS:
            self.peer.open(number)
        self.model = Model(self.counted)
        self.published = 0
        self.tags = 0
        self.next_tag = dict.fromkeys(CHANNELS, 1)
        # By channel and delivery tag: who has it (the getter is None) and which message.
        self.unacked: dict[int, dict[int, tuple[ModelConsumer | None, int]]] = {number: {} for number in CHANNELS}
        self.gone: dict[str, ModelConsumer] = {}

    def counted(self, channel: int) -> int:
        """Unacked deliveries of consumers of a channel, cancelled ones too; basic.get does not count."""
        everybody = [*self.model.consumers, *self.gone.values()]
        return sum(consumer.unacked for consumer in everybody if consumer.channel == channel)

    def compare(self, *replies: Method) -> None:
        """Deal in the model, then look at what the real channels said."""
        by_tag = {consumer.tag: consumer for consumer in self.model.consumers}
        expected = self.model.deal()
        said = self.peer.said()
        seen: dict[str, list[tuple[int, bool]]] = {}
        others = []
        for one in said:
            method = one.method
            if not isinstance(method, BasicDeliver):
                others.append(method)
                continue
            assert method.delivery_tag == self.next_tag[one.channel]
            self.next_tag[one.channel] += 1
            consumer = by_tag[method.consumer_tag]
            assert consumer.channel == one.channel
            number = int(one.body or b"")
            seen.setdefault(consumer.tag, []).append((number, method.redelivered))
            if not consumer.no_ack:
                self.unacked[one.channel][method.delivery_tag] = (consumer, number)
        assert seen == expected
        assert others == list(replies)
        assert self.queue.count() == len(self.model.ready)
        assert len(self.queue.unacked) == sum(map(len, self.unacked.values()))
        assert not self.peer.errors

    # What may happen.

    def publish(self, count: int) -> None:
        bodies = [b"%d" % number for number in range(self.published, self.published + count)]
        self.model.ready += [(number, False) for number in range(self.published, self.published + count)]
        self.published += count
        self.publisher.publish(1, "q", *bodies)
        self.compare()

    def consume(self, channel: int, no_ack: bool, prefetch: int) -> None:
        self.peer.tell(channel, BasicQos(0, prefetch))
        self.model.global_prefetch[channel] = 0  # RabbitMQ's: a limit for consumers takes the channel's away
        self.tags += 1
        consumer = ModelConsumer(f"c{self.tags}", channel, no_ack, prefetch)
        self.peer.consume(channel, "q", consumer.tag, no_ack=no_ack)
        self.model.consumers.append(consumer)
        self.compare(BasicQosOk(), BasicConsumeOk(consumer.tag))

    def change_global(self, channel: int, prefetch: int) -> None:
        self.peer.tell(channel, BasicQos(0, prefetch, True))
        self.model.global_prefetch[channel] = prefetch
        self.compare(BasicQosOk())

    def cancel(self, consumer: ModelConsumer) -> None:
        self.peer.tell(consumer.channel, BasicCancel(consumer.tag))
        self.model.remove(consumer)
        self.gone[consumer.tag] = consumer
        self.compare(BasicCancelOk(consumer.tag))

    def get(self, channel: int, no_ack: bool) -> None:
        self.peer.tell(channel, BasicGet("q", no_ack))
        if not self.model.ready:
            self.compare(BasicGetEmpty())
            return
        number, redelivered = self.model.ready.pop(0)
        tag = self.next_tag[channel]
        self.next_tag[channel] += 1
        if not no_ack:
            self.unacked[channel][tag] = (None, number)
        self.compare(BasicGetOk(tag, redelivered, "", "q", len(self.model.ready)))

    def settle(self, channel: int, tag: int, multiple: bool, requeue: bool | None) -> None:
        """Requeue None is an ack."""
        mine = self.unacked[channel]
        tags = [one for one in mine if one <= tag or tag == 0] if multiple else [tag]
        numbers = self.forget(channel, tags)
        if requeue is None:
            self.peer.ack(channel, tag, multiple=multiple)
        else:
            self.peer.nack(channel, tag, multiple, requeue)
        if requeue:
            self.model.give_back(numbers)
        self.compare()

    def forget(self, channel: int, tags: list[int]) -> list[int]:
        numbers = []
        for tag in tags:
            consumer, number = self.unacked[channel].pop(tag)
            if consumer is not None:
                consumer.unacked -= 1
            numbers.append(number)
        return numbers

    def recover(self, channel: int) -> None:
        self.peer.tell(channel, BasicRecover(True))
        self.model.give_back(self.forget(channel, list(self.unacked[channel])))
        self.compare(BasicRecoverOk())

    def close(self, channel: int) -> None:
        self.peer.tell(channel, ChannelClose(200, "bye"))
        for consumer in [one for one in self.model.consumers if one.channel == channel]:
            self.model.remove(consumer)
        self.model.give_back(self.forget(channel, list(self.unacked[channel])))
        self.compare(ChannelCloseOk())
        self.gone = {tag: one for tag, one in self.gone.items() if one.channel != channel}
        self.model.global_prefetch[channel] = 0
        self.next_tag[channel] = 1
        self.peer.open(channel)

    def purge(self) -> None:
        self.peer.tell(1, QueuePurge("q"))
        count = len(self.model.ready)
        self.model.ready.clear()
        self.compare(QueuePurgeOk(count))


ACTIONS = ["publish"] * 4 + ["consume"] * 3 + ["settle"] * 5 + ["get"] * 2 + ["cancel", "recover", "close", "purge"]


def walk(data: st.DataObject, with_global: bool) -> None:
    bench = Bench()
    actions = [*ACTIONS, "global", "global"] if with_global else ACTIONS
    for _ in range(data.draw(st.integers(1, 25))):
        action = data.draw(st.sampled_from(actions))
        channel = data.draw(st.sampled_from(CHANNELS))
        if action == "publish":
            bench.publish(data.draw(st.integers(1, 8)))
        elif action == "consume":
            bench.consume(channel, data.draw(st.booleans()), data.draw(st.integers(0, 4)))
        elif action == "global":
            bench.change_global(channel, data.draw(st.integers(0, 4)))
        elif action == "settle" and bench.unacked[channel]:
            multiple = data.draw(st.booleans())
            tag = data.draw(st.sampled_from([*bench.unacked[channel], *([0] if multiple else [])]))
            bench.settle(channel, tag, multiple, data.draw(st.sampled_from((None, True, False))))
        elif action == "cancel" and bench.model.consumers:
            bench.cancel(data.draw(st.sampled_from(bench.model.consumers)))
        elif action == "get":
            bench.get(channel, data.draw(st.booleans()))
        elif action == "recover":
            bench.recover(channel)
        elif action == "close":
            bench.close(channel)
        elif action == "purge":
            bench.purge()


@settings(max_examples=250, deadline=None)
@given(st.data())
def test_a_queue_deals_its_messages_as_the_model_does(data: st.DataObject) -> None:
    walk(data, with_global=False)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_queue_deals_its_messages_as_the_model_does_under_global_prefetch(data: st.DataObject) -> None:
    walk(data, with_global=True)
