"""Credit on random graphs of stages: the law holds at every step, and when all drain nobody stays blocked."""

from __future__ import annotations

from collections import deque

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.credit import BlockLog, Hop, Link, Spec, Stage
from penstock.runtime import FakeClock

STAGES_MAX = 6
ALARMS = ("memory", "disk")


def specs_up_to(most: int) -> st.SearchStrategy[Spec]:
    some = st.integers(1, most).flatmap(lambda initial: st.integers(1, initial).map(lambda more: Spec(initial, more)))
    return st.just(Spec(0, 0)) | some


message_specs = specs_up_to(12)
byte_specs = specs_up_to(100)


class Graph:
    """Stages from 0 downstream to the highest number, a mailbox of its own for every link, and the laws to check."""

    def __init__(self, count: int, edges: set[tuple[int, int]], hops: list[Hop]) -> None:
        self.clock = FakeClock()
        self.hops = hops
        self.stages = [Stage(f"stage {number}", self.clock.now_ns, BlockLog()) for number in range(count)]
        self.alarms: list[set[str]] = [set() for _ in self.stages]
        self.dead: set[int] = set()
        self.mailboxes: dict[Link, deque[tuple[int, int]]] = {}
        for number, (up, down) in enumerate(sorted(edges)):
            link = Link(hops[number % len(hops)], self.stages[up], self.stages[down])
            self.mailboxes[link] = deque()

    def alive(self) -> list[Link]:
        return [link for link in self.mailboxes if not link.closed]

    def handle(self, link: Link, wanted: int) -> None:
        """Take up to this many messages from the head of the mailbox, as a stage takes part of a batch."""
        mailbox = self.mailboxes[link]
        messages, bytes_ = mailbox.popleft()
        taken = min(messages, wanted)
        share = bytes_ * taken // messages
        if taken < messages:
            mailbox.appendleft((messages - taken, bytes_ - share))
        link.handle(taken, share)

    def check(self) -> None:
        for link in self.alive():
            mailbox = self.mailboxes[link]
            in_flight = sum(messages for messages, _ in mailbox)
            in_flight_bytes = sum(bytes_ for _, bytes_ in mailbox)
            initial, initial_bytes = link.hop.messages.initial, link.hop.bytes.initial
            assert link.credit + in_flight + link.handled + link.deferred == initial, link
            assert link.credit_bytes + in_flight_bytes + link.handled_bytes + link.deferred_bytes == initial_bytes, link
            assert (link.in_flight(), link.in_flight_bytes()) == (in_flight, in_flight_bytes)
            dry = bool((initial and link.credit <= 0) or (initial_bytes and link.credit_bytes <= 0))
            assert link.blocking == dry, link
            if link.deferred or link.deferred_bytes:
                assert link.downstream.blocked_by, f"{link!r} owes grants, but nothing blocks {link.downstream.name}"
            if link.hop.messages.more_after:
                assert link.handled < link.hop.messages.more_after
        for number, stage in enumerate(self.stages):
            expected = {link for link in self.alive() if link.upstream is stage and link.blocking}
            assert stage.blocked_by.keys() == expected | self.alarms[number], stage.name

    def drain(self, draw: st.DrawFn) -> None:
        for stage, alarms in zip(self.stages, self.alarms):
            for alarm in sorted(alarms):
                stage.unblock(alarm)
            alarms.clear()
        self.check()
        while True:
            waiting = [link for link, mailbox in self.mailboxes.items() if mailbox]
            if not waiting:
                return
            link = waiting[draw(st.integers(0, len(waiting) - 1))]
            self.handle(link, draw(st.integers(1, 1000)))
            self.check()


@st.composite
def histories(draw: st.DrawFn) -> Graph:
    """Not the graph alone: the whole history happens while it is drawn, checked at every step."""
    count = draw(st.integers(2, STAGES_MAX))
    pairs = [(up, down) for down in range(count) for up in range(down)]
    edges = draw(st.sets(st.sampled_from(pairs), min_size=1, max_size=8))
    hops = [Hop(f"hop {n}", draw(message_specs), draw(byte_specs)) for n in range(draw(st.integers(1, 3)))]
    graph = Graph(count, edges, hops)
    graph.check()
    for _ in range(draw(st.integers(0, 40))):
        step(graph, draw)
        graph.check()
    graph.drain(draw)
    return graph


def step(graph: Graph, draw: st.DrawFn) -> None:
    action = draw(
        st.sampled_from(("spend", "spend", "spend", "handle", "handle", "handle", "change", "alarm", "death"))
    )
    alive = graph.alive()
    number = draw(st.integers(0, len(graph.stages) - 1))
    graph.clock.advance(0.1)
    if action == "spend" and alive:
        link = draw(st.sampled_from(alive))
        batch = (draw(st.integers(1, 20)), draw(st.integers(0, 150)))
        graph.mailboxes[link].append(batch)
        link.spend(*batch)
    elif action == "handle":
        waiting = [link for link, mailbox in graph.mailboxes.items() if mailbox]  # of dead stages too: a late handle
        if waiting:
            graph.handle(draw(st.sampled_from(waiting)), draw(st.integers(1, 25)))
    elif action == "change":
        hop = draw(st.sampled_from(graph.hops))
        hop.change(draw(st.none() | message_specs), draw(st.none() | byte_specs))
    elif action == "alarm" and number not in graph.dead:
        alarm = draw(st.sampled_from(ALARMS))
        stage, alarms = graph.stages[number], graph.alarms[number]
        if alarm in alarms:
            alarms.remove(alarm)
            stage.unblock(alarm)
        else:
            alarms.add(alarm)
            stage.block(alarm)
    elif action == "death" and number not in graph.dead and draw(st.integers(0, 3)) == 0:
        graph.dead.add(number)
        graph.stages[number].down()
        graph.alarms[number].clear()


@settings(max_examples=300, deadline=None)
@given(histories())
def test_the_law_holds_at_every_step_and_nobody_stays_blocked_when_all_have_drained(graph: Graph) -> None:
    for stage in graph.stages:
        assert not stage.blocked_by
        assert not stage.owing
    for link in graph.alive():
        assert (link.deferred, link.deferred_bytes) == (0, 0)
        assert link.in_flight() == 0
    for hop in graph.hops:
        assert set(hop.links) <= set(graph.alive())
