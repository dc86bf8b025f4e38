"""The twin's laws: whatever load and settings, credit adds up on every link at every step, and no message is lost."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.flow.twin import Consumers, Load, Plant, Publishers, Settings
from penstock.flow.twin.simulate import Chain

ROUNDS = 150
LONG_US = 1e9

credit = st.just("0,0") | st.integers(1, 3000).flatmap(
    lambda initial: st.integers(1, initial).map(lambda more: f"{initial},{more}")
)
bytes_credit = st.just("0,0") | st.integers(1, 200_000).flatmap(
    lambda initial: st.integers(1, initial).map(lambda more: f"{initial},{more}")
)
publishers = st.builds(
    Publishers,
    count=st.integers(1, 3),
    rate=st.sampled_from([0.0, 5000.0]),
    window=st.sampled_from([0, 1, 50, 3000]),
    persistent=st.booleans(),
    body_bytes=st.sampled_from([0, 100, 20_000]),
)
consumers = st.builds(
    Consumers,
    count=st.integers(0, 3),
    message_us=st.sampled_from([0.2, 50.0]),
    acks=st.booleans(),
    ack_batch=st.sampled_from([1, 10]),
    wake=st.sampled_from([1, 10]),
    prefetch=st.sampled_from([0, 1, 10, 1000]),
    chunk=st.sampled_from([0, 10]),
)
loads = st.builds(
    Load, publishers, consumers, queues=st.integers(1, 3), fanout=st.booleans(), backlog=st.integers(0, 500)
)
plants = st.builds(
    Plant,
    stolen=st.sampled_from([0.0, 0.5]),
    channel_delay_us=st.sampled_from([0.0, 20.0]),
    queue_delay_us=st.sampled_from([0.0, 20.0]),
    sync_us=st.sampled_from([(300.0,), (100.0, 20_000.0)]),
    parked_bytes_max=st.sampled_from([0, 100_000]),
    socket_bytes=st.sampled_from([50_000, 1_000_000]),
)
choices = st.builds(
    Settings,
    reader_channel=credit,
    channel_queue=credit,
    queue_store=credit,
    reader_channel_bytes=bytes_credit,
    channel_queue_bytes=bytes_credit,
    queue_store_bytes=bytes_credit,
    prefetch=st.none() | st.integers(1, 500),
    stop=st.sampled_from([-1, 0, 100]),
)


@settings(max_examples=60, deadline=None)
@given(plants, loads, choices, st.integers(0, 3))
def test_credit_adds_up_and_no_message_is_lost_at_any_step(
    plant: Plant, load: Load, chosen: Settings, seed: int
) -> None:
    chain = Chain(plant, load, chosen, seed)
    for _ in range(ROUNDS):
        if not chain.round(LONG_US):
            break
        check_credit(chain)
        check_messages(chain, load)


def check_credit(chain: Chain) -> None:
    """The law of credit/link.py, with what is in flight counted where it lies."""
    for reader in chain.readers:
        law(reader.link, reader.channel.waiting, reader.lane.content_bytes)
        assert reader.channel.waiting == sum(reader.channel.ordinary)
        assert reader.parked_count == sum(reader.parked)
    for channel in chain.channels:
        for link, queue in channel.links:
            law(link, sum(count for count, found, _ in queue.ordinary if found is link), channel.lane.content_bytes)
    for queue in chain.queues:
        if queue.store_link is not None:
            deposits = [one for one in chain.store.ordinary if one.link is queue.store_link]
            law(queue.store_link, sum(one.count for one in deposits), chain.lanes[0].content_bytes)


def law(link: object, in_flight: int, size: int) -> None:
    from penstock.credit import Link

    assert isinstance(link, Link)
    assert link.credit + in_flight + link.handled + link.deferred == link.hop.messages.initial, link
    bytes_ = link.credit_bytes + in_flight * size + link.handled_bytes + link.deferred_bytes
    assert bytes_ == link.hop.bytes.initial, link


def check_messages(chain: Chain, load: Load) -> None:
    """Every message in is a message out, or one that is inside."""
    for publisher, reader, channel in zip(chain.publishers, chain.readers, chain.channels, strict=True):
        assert publisher.sent == publisher.received + publisher.buffered
        assert publisher.received == reader.parked_count + reader.link.upstream.sent
        assert reader.sent == channel.received + channel.waiting
        assert channel.sent == channel.received * len(channel.links)
        assert publisher.confirmed <= publisher.sent
        if load.publishers.window:
            assert publisher.sent - publisher.confirmed <= load.publishers.window
    for queue in chain.queues:
        assert queue.taken + load.backlog == queue.ready_count + queue.given
        assert queue.ready_count == sum(count for count, _ in queue.ready)
        assert queue.received == queue.taken
        takers = [one for one in chain.consumers if one.queue is queue]
        assert queue.given >= sum(one.received for one in takers)
        settling = sum(count for count, _, lane in queue.ordinary if lane is None)
        if load.consumers.acks:
            assert queue.unacked - settling == sum(one.unacked for one in takers)
            assert 0 <= queue.unacked <= queue.given
        else:
            assert queue.unacked == 0
