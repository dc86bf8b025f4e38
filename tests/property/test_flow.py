"""Verdicts on any graph: random stages, links, blocks, alarms and held confirms, at one moment and over time."""

from __future__ import annotations

import itertools
import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from penstock.flow.graph import Graph
from penstock.flow.history import MINUTE_S, History, Shares, is_over
from penstock.flow.state import CONNECTION, CONSUMERS, State, read_state
from penstock.flow.verdict import Verdict, verdicts
from tests.unit.flow.snapshots import Picture

CONNECTIONS = [f"connection 10.0.0.{at}:1" for at in range(3)]
CHANNELS = [f"channel 10.0.0.{connection}:1 ({at})" for connection in range(3) for at in (1, 2)]
QUEUES = [f"queue q{at}" for at in range(4)]
STORE = "store"

# What a broker has, and dead letters in any direction, circles too.
POSSIBLE = (
    [(f"connection {channel.split()[1]}", channel) for channel in CHANNELS]
    + [(channel, queue) for channel in CHANNELS for queue in QUEUES]
    + [(one, other) for one in QUEUES for other in QUEUES if one != other]
    + [(queue, STORE) for queue in QUEUES]
)
# And what is no stage.
BEYOND = [(one, f"alarm {source}") for one in CONNECTIONS for source in ("memory", "disk", "store")] + [
    (queue, "maximum") for queue in QUEUES
]

links_and_blocks = st.lists(st.sampled_from(POSSIBLE), unique=True).flatmap(
    lambda links: st.tuples(
        st.just(links),
        st.dictionaries(st.sampled_from(links + BEYOND), st.floats(0.0, 100.0)),
        st.dictionaries(st.sampled_from(QUEUES), st.dictionaries(st.sampled_from(CHANNELS), st.integers(1, 9))),
        st.sets(st.sampled_from(["memory", "disk"])),
    )
)


def picture_of(drawn: Any) -> Picture:
    links, blocks, held, alarms = drawn
    picture = Picture(links)
    for id_ in (*CONNECTIONS, *CHANNELS, *QUEUES):
        picture.stage(id_)
    for pair, for_s in blocks.items():
        picture.block(pair, for_s=for_s)
    for queue, held_from in held.items():
        picture.saturate(queue, held_from)
    for source in alarms:
        picture.alarm(source, "low")
    return picture


def check_chains(state: State, found: list[Verdict], history: History) -> None:
    """From the connection to the bottleneck. Each step is to what blocks the stage before it, and is not over; every
    stage in between only passes on what holds it up. Of one moment: each is blocked by the next."""
    shares = history.shares(state)
    graph = Graph(state, shares)
    for verdict in found:
        chain = verdict.chain
        assert chain[0] == verdict.id
        assert len(set(chain)) == len(chain)
        assert verdict.bottleneck is None or chain[-1] == verdict.bottleneck
        if is_for_confirms(state, shares, chain):
            continue
        for upstream, downstream in itertools.pairwise(chain):
            assert shares.edge_weights[upstream, downstream] > 0
            assert not is_over(state, upstream, downstream)
            assert graph.passes_on(upstream, downstream) == (downstream != verdict.bottleneck)
            if shares.is_moment:
                assert state.stages[upstream].blocked
                assert downstream in {reason.by for reason in state.stages[upstream].reasons}


def is_for_confirms(state: State, shares: Shares, chain: tuple[str, ...]) -> bool:
    """The connection waits for the consumers of a saturated queue. Queue and channel are named as the way that confirms
    come, though no credit is out."""
    if len(chain) < 3:
        return False
    connection, *channels, queue_id, consumers = chain
    queue = state.stages.get(queue_id)
    return (
        (connection, consumers) in shares.edge_weights
        and consumers == CONSUMERS + queue_id
        and queue is not None
        and queue.saturated_for_s is not None
        and len(channels) <= 1
        and all(one in (queue.held_from or {}) and state.stages[one].connection == connection for one in channels)
    )


def check_sums(state: State, history: History) -> None:
    """The sums that are kept are those of the samples."""
    seconds: dict[str, float] = {}
    for sample in (*history.samples, history._measure(state)):
        outside = max(0.0, state.at_s - MINUTE_S - (sample.at_s - sample.step_s))
        inside = 1 - min(1.0, outside / sample.step_s) if sample.step_s else 0.0
        for id_, value in sample.stages.items():
            seconds[id_] = seconds.get(id_, 0.0) + value * inside
    kept = history.shares(state).stages_s
    for id_ in seconds.keys() | kept.keys():
        assert abs(seconds.get(id_, 0.0) - kept.get(id_, 0.0)) < 1e-6


def shuffled(json: dict[str, Any]) -> dict[str, Any]:
    order = random.Random(7)
    return {**json, **{key: order.sample(json[key], len(json[key])) for key in ("stages", "links", "alarms")}}


@given(links_and_blocks)
def test_the_bottleneck_is_never_blocked_itself(drawn: Any) -> None:
    picture = picture_of(drawn)
    state = picture.state()
    for verdict in verdicts(state):
        bottleneck = state.stages.get(verdict.bottleneck or "")
        assert bottleneck is None or not bottleneck.blocked


@given(links_and_blocks)
def test_every_blocked_connection_has_exactly_one_verdict_and_nobody_else_but_who_waits_for_confirms(
    drawn: Any,
) -> None:
    state = picture_of(drawn).state()
    found = [verdict.id for verdict in verdicts(state)]
    assert len(set(found)) == len(found)
    blocked = {stage.id for stage in state.stages.values() if stage.kind == CONNECTION and stage.blocked}
    waiting = {
        state.stages[channel].connection
        for queue in state.stages.values()
        if queue.saturated_for_s is not None
        for channel in queue.held_from or {}
    }
    assert blocked <= set(found) <= blocked | waiting


@given(links_and_blocks)
def test_every_stage_before_the_bottleneck_is_blocked_by_the_next_one(drawn: Any) -> None:
    state = picture_of(drawn).state()
    check_chains(state, verdicts(state), History())


@given(links_and_blocks)
def test_the_same_snapshot_gives_the_same_verdicts_in_whatever_order_it_is_told(drawn: Any) -> None:
    json = picture_of(drawn).json()
    once = verdicts(read_state(json))
    assert once == verdicts(read_state(json))
    assert once == verdicts(read_state(shuffled(json)))


@given(links_and_blocks, st.lists(st.tuples(st.floats(0.01, 5.0), st.randoms(use_true_random=False)), max_size=12))
def test_over_time_too_bottlenecks_are_free_chains_whole_and_shares_between_none_and_all(
    drawn: Any, steps: Any
) -> None:
    picture = picture_of(drawn)
    history = History()
    history.add(picture.state())
    for seconds, chance in steps:
        picture.passes(seconds)
        pairs = [pair for pair in picture.links if pair not in picture.blocks and chance.random() < 0.5]
        for pair in pairs:
            picture.flickers(seconds * chance.random(), pair)
        for pair in list(picture.blocks):
            if chance.random() < 0.2:
                picture.free(pair)
        if chance.random() < 0.8:
            history.add(picture.state())
        state = picture.state()
        shares = history.shares(state)
        graph = Graph(state, shares)
        found = verdicts(state, shares)
        assert found == verdicts(state, history.shares(state))
        assert len({verdict.id for verdict in found}) == len(found)
        for verdict in found:
            assert verdict.bottleneck is None or not graph.passes_on(verdict.chain[-2], verdict.bottleneck)
            assert 0 <= verdict.share_1m <= 1
            assert verdict.since_s >= 0
            assert verdict.sentence.startswith("orders-api ")
            assert verdict.sentence.endswith(".")
        check_chains(state, found, history)
        check_sums(state, history)
