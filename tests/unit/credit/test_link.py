"""Link and Stage: the oracles and the law, on bare stages with mailboxes that are plain counters."""

from __future__ import annotations

import pytest

from penstock.credit import BlockLog, Hop, Link, Spec, Stage
from penstock.runtime import FakeClock


class Chain:
    """reader -> channel -> queue. The channel passes on all it gets; the queue only takes what it is told to."""

    def __init__(self, spec: Spec, bytes_spec: Spec | None = None) -> None:
        self.clock = FakeClock()
        self.log = BlockLog()
        self.reader, self.channel, self.queue = (
            Stage(name, self.clock.now_ns, self.log) for name in ("reader", "channel", "queue")
        )
        self.first_hop = Hop("reader_channel", spec, bytes_spec)
        self.second_hop = Hop("channel_queue", spec, bytes_spec)
        self.first = Link(self.first_hop, self.reader, self.channel)
        self.second = Link(self.second_hop, self.channel, self.queue)
        self.sent = self.waiting = 0

    def publish(self, count: int, size: int = 0) -> None:
        """The reader sends for as long as it is not blocked; the channel takes each at once."""
        for _ in range(count):
            if self.reader.blocked_by:
                return
            self.first.spend(1, size)
            self.sent += 1
            self.first.handle(1, size)
            self.second.spend(1, size)
            self.waiting += 1

    def take(self, count: int, size: int = 0) -> None:
        for _ in range(count):
            self.waiting -= 1
            self.second.handle(1, size)

    def check_law(self) -> None:
        for link, in_flight in ((self.first, 0), (self.second, self.waiting)):
            assert link.credit + in_flight + link.handled + link.deferred == link.hop.messages.initial, link
            assert link.in_flight() == in_flight


@pytest.mark.parametrize(("spec", "oracle"), [(Spec(2, 1), 4), (Spec(400, 200), 800), (Spec(200, 50), 400)])
def test_a_suspended_queue_gets_twice_the_initial_credit_before_the_reader_stops(spec: Spec, oracle: int) -> None:
    chain = Chain(spec)
    chain.publish(10_000)
    assert chain.waiting == oracle
    assert chain.reader.blocked_by.keys() == {chain.first}
    assert chain.channel.blocked_by.keys() == {chain.second}
    assert not chain.queue.blocked_by
    chain.check_law()


def test_the_queue_must_take_600_before_the_reader_resumes() -> None:
    chain = Chain(Spec(400, 200))
    chain.publish(10_000)
    chain.take(599)
    assert chain.reader.blocked_by
    chain.take(1)
    assert not chain.reader.blocked_by
    assert not chain.channel.blocked_by
    chain.check_law()


def test_credit_0_0_lets_everything_through() -> None:
    chain = Chain(Spec(0, 0))
    chain.publish(100)
    assert chain.waiting == 100
    assert not chain.reader.blocked_by
    chain.check_law()


def test_spending_never_refuses_and_credit_goes_below_zero() -> None:
    chain = Chain(Spec(2, 1))
    chain.first.spend(5, 0)
    assert chain.first.credit == -3
    assert chain.first.room() == 0
    chain.first.handle(3, 0)
    assert chain.reader.blocked_by
    chain.first.handle(1, 0)
    assert not chain.reader.blocked_by
    assert chain.first.room() == 1


def test_grants_come_in_batches() -> None:
    chain = Chain(Spec(10, 5))
    chain.first.spend(9, 0)
    chain.first.handle(4, 0)
    assert (chain.first.credit, chain.first.handled) == (1, 4)
    chain.first.handle(3, 0)
    assert (chain.first.credit, chain.first.handled) == (6, 2)


def test_a_blocked_stage_keeps_its_grants_back_and_pays_them_all_at_once() -> None:
    chain = Chain(Spec(4, 2))
    chain.channel.block("alarm")
    chain.first.spend(4, 0)
    chain.first.handle(4, 0)
    assert (chain.first.credit, chain.first.deferred) == (0, 4)
    assert chain.reader.blocked_by
    chain.channel.unblock("alarm")
    assert (chain.first.credit, chain.first.deferred) == (4, 0)
    assert not chain.reader.blocked_by


def test_a_stage_resumes_when_the_last_of_its_blockers_unblocks_it() -> None:
    clock = FakeClock()
    hop = Hop("hop", Spec(1, 1))
    channel = Stage("channel", clock.now_ns)
    links = [Link(hop, channel, Stage(f"queue {number}", clock.now_ns)) for number in range(3)]
    for link in links:
        link.spend(1, 0)
    channel.block("memory")
    assert len(channel.blocked_by) == 4
    links[1].handle(1, 0)
    links[0].handle(1, 0)
    channel.unblock("memory")
    assert list(channel.blocked_by) == [links[2]]
    links[2].handle(1, 0)
    assert not channel.blocked_by
    assert channel.blocks == 1


def test_clearing_one_alarm_does_not_clear_another() -> None:
    stage = Stage("reader", lambda: 0)
    stage.block("memory")
    stage.block("disk")
    stage.block("disk")
    stage.unblock("disk")
    stage.unblock("disk")
    assert list(stage.blocked_by) == ["memory"]


def test_bytes_block_as_messages_do() -> None:
    chain = Chain(Spec(400, 200), Spec(1000, 500))
    chain.publish(100, size=300)
    # The channel's link: 4 * 300 is the first above 1000. By then the channel has granted the reader 900 of 1200,
    # so the reader goes on until it has spent 1000 + 900.
    assert chain.second.credit_bytes <= 0
    assert chain.first.credit_bytes <= 0
    assert chain.second.credit > 0
    assert 6 <= chain.waiting <= 8
    assert chain.second.in_flight_bytes() == chain.waiting * 300
    chain.take(chain.waiting, size=300)
    assert not chain.reader.blocked_by
    assert chain.first.deferred_bytes == 0


def test_a_link_is_free_only_when_both_messages_and_bytes_are() -> None:
    hop = Hop("hop", Spec(2, 1), Spec(100, 100))
    up, down = Stage("up", lambda: 0), Stage("down", lambda: 0)
    link = Link(hop, up, down)
    link.spend(2, 150)
    link.handle(1, 20)
    assert link.credit > 0
    assert up.blocked_by
    assert (link.room(), link.room_bytes()) == (0, 0)
    link.handle(1, 130)
    assert not up.blocked_by
    assert (link.room(), link.room_bytes()) == (2, 100)


def test_room_says_what_may_go_before_the_block() -> None:
    chain = Chain(Spec(4, 2))
    assert chain.first.room() == 4
    assert chain.first.room_bytes() > 1 << 60
    chain.first.spend(3, 1_000_000)
    assert chain.first.room() == 1
    assert Link(Hop("off", Spec(0, 0)), chain.reader, chain.queue).room() > 1 << 60


# Settings change while the links are at work.


def test_more_initial_credit_frees_a_blocked_reader_at_once() -> None:
    chain = Chain(Spec(2, 1))
    chain.first.spend(2, 0)
    assert chain.reader.blocked_by
    chain.first_hop.change(Spec(10, 5))
    assert not chain.reader.blocked_by
    assert chain.first.credit == 8
    assert chain.first.in_flight() == 2


def test_less_initial_credit_blocks_at_once_and_the_law_holds_before_and_after() -> None:
    chain = Chain(Spec(400, 200))
    chain.publish(100)
    chain.check_law()
    chain.second_hop.change(Spec(50, 25))
    chain.check_law()
    assert chain.second.credit == -50
    assert chain.channel.blocked_by
    chain.take(75)
    chain.check_law()
    assert not chain.channel.blocked_by
    chain.take(25)
    chain.check_law()
    assert chain.second.credit == 50


def test_a_smaller_more_after_grants_what_is_already_handled() -> None:
    chain = Chain(Spec(400, 200))
    chain.publish(199)
    chain.take(199)
    assert chain.second.handled == 199
    chain.second_hop.change(Spec(400, 100))
    assert (chain.second.handled, chain.second.credit) == (99, 301)
    chain.check_law()


def test_credit_switched_off_frees_everybody_and_switched_on_again_counts_what_is_in_flight() -> None:
    chain = Chain(Spec(2, 1))
    chain.publish(100)
    assert chain.waiting == 4
    for hop in (chain.second_hop, chain.first_hop):
        hop.change(Spec(0, 0))
    assert not chain.reader.blocked_by
    assert not chain.channel.blocked_by
    chain.check_law()
    chain.publish(96)
    assert chain.waiting == 100
    chain.check_law()
    for hop in (chain.first_hop, chain.second_hop):
        hop.change(Spec(40, 20))
    chain.check_law()
    assert chain.second.credit == -60
    assert chain.channel.blocked_by.keys() == {chain.second}
    chain.take(79)
    assert chain.channel.blocked_by
    chain.take(1)
    assert not chain.channel.blocked_by
    chain.take(20)
    chain.check_law()
    assert not chain.reader.blocked_by


def test_credit_switched_off_on_one_hop_frees_its_upstream_although_downstream_is_still_blocked() -> None:
    chain = Chain(Spec(2, 1))
    chain.publish(100)
    chain.first_hop.change(Spec(0, 0))
    assert chain.channel.blocked_by
    assert not chain.reader.blocked_by


def test_more_credit_on_one_hop_frees_its_upstream_although_downstream_is_still_blocked() -> None:
    chain = Chain(Spec(2, 1))
    chain.publish(100)
    chain.first_hop.change(Spec(50, 1))
    assert chain.first.credit > 0
    assert chain.channel.blocked_by
    assert not chain.reader.blocked_by
    chain.check_law()


def test_bytes_change_apart_from_messages() -> None:
    chain = Chain(Spec(400, 200), Spec(1000, 500))
    chain.first.spend(1, 1000)
    assert chain.reader.blocked_by
    chain.first_hop.change(bytes_=Spec(2000, 500))
    assert not chain.reader.blocked_by
    assert chain.first_hop.messages == Spec(400, 200)
    assert chain.first.credit_bytes == 1000
    chain.first_hop.change(messages=Spec(1, 1))
    assert chain.first_hop.bytes == Spec(2000, 500)
    assert chain.reader.blocked_by


# A stage dies.


def test_a_dead_queue_stops_blocking_and_the_pressure_behind_it_goes_too() -> None:
    chain = Chain(Spec(2, 1))
    chain.publish(100)
    assert chain.reader.blocked_by
    chain.queue.down()
    assert not chain.channel.blocked_by
    assert not chain.reader.blocked_by
    assert not chain.channel.outgoing
    assert not chain.second_hop.links


def test_a_dead_queue_stops_blocking_but_another_blocker_still_does() -> None:
    chain = Chain(Spec(2, 1))
    other = Link(chain.second_hop, chain.channel, Stage("other queue", chain.clock.now_ns))
    other.spend(2, 0)
    chain.second.spend(2, 0)
    chain.queue.down()
    assert chain.channel.blocked_by.keys() == {other}


def test_a_late_handle_on_a_closed_link_changes_nobody() -> None:
    chain = Chain(Spec(2, 1))
    chain.publish(100)
    chain.queue.down()
    blocks, log = chain.channel.blocks, len(chain.log)
    chain.second.handle(4, 0)
    chain.second.close()
    assert (chain.channel.blocks, len(chain.log)) == (blocks, log)
    assert not chain.channel.blocked_by
    assert not chain.queue.owing


def test_a_dead_channel_is_forgotten_on_both_sides() -> None:
    chain = Chain(Spec(2, 1))
    chain.publish(100)
    chain.channel.down()
    assert not chain.reader.blocked_by
    assert not chain.reader.outgoing
    assert not chain.queue.incoming
    assert not chain.first_hop.links
    assert not chain.second_hop.links
    chain.queue.block("disk")
    chain.second.handle(1, 0)
    assert not chain.queue.owing, "a dead channel is owed nothing"


def test_a_blocked_stage_owes_nothing_to_an_upstream_that_died() -> None:
    chain = Chain(Spec(2, 1))
    chain.publish(100)
    assert chain.channel.owing
    chain.reader.down()
    assert not chain.channel.owing
    credit = chain.first.credit
    chain.queue.down()
    assert chain.first.credit == credit


def test_spending_on_a_closed_link_blocks_nobody() -> None:
    chain = Chain(Spec(2, 1))
    chain.first.close()
    chain.first.spend(5, 0)
    assert not chain.reader.blocked_by
    assert chain.first.room() > 0, "who splits its work by the room would split it into nothing, for ever"
    assert chain.first.room_bytes() > 0


def test_closed_links_do_not_follow_their_hop_any_more() -> None:
    chain = Chain(Spec(2, 1))
    chain.first.close()
    credit = chain.first.credit
    chain.first_hop.change(Spec(100, 50))
    assert chain.first.credit == credit


# What people see.


def test_every_block_is_logged_with_its_begin_its_end_its_cause_and_what_was_in_flight() -> None:
    chain = Chain(Spec(2, 1), Spec(1000, 1))
    chain.clock.advance(5)
    chain.first.spend(2, 70)
    chain.clock.advance(0.25)
    chain.first.handle(1, 35)
    (block,) = chain.log
    assert (block.stage, block.cause) == ("reader", "channel")
    assert (block.started_ns, block.ended_ns) == (5_000_000_000, 5_250_000_000)
    assert (block.messages, block.bytes) == (2, 70)
    assert repr(block) == "<Block reader by channel 250000us messages=2 bytes=70>"


def test_each_of_several_reasons_has_its_own_log_entry_but_time_counts_once() -> None:
    chain = Chain(Spec(2, 1))
    chain.reader.block("memory")
    chain.clock.advance(1)
    chain.reader.block("disk")
    chain.clock.advance(1)
    chain.reader.unblock("memory")
    chain.clock.advance(1)
    chain.reader.unblock("disk")
    assert [(block.cause, (block.ended_ns - block.started_ns) // 10**9) for block in chain.log] == [
        ("memory", 2),
        ("disk", 2),
    ]
    assert chain.reader.blocked_ns == 3_000_000_000
    assert chain.reader.blocks == 1


def test_a_stage_shows_flow_while_blocked_and_for_one_second_after() -> None:
    chain = Chain(Spec(2, 1))
    assert not chain.reader.in_flow()
    chain.first.spend(2, 0)
    chain.clock.advance(10)
    assert chain.reader.in_flow()
    chain.first.handle(1, 0)
    assert chain.reader.in_flow()
    chain.clock.advance(0.999)
    assert chain.reader.in_flow()
    chain.clock.advance(0.001)
    assert not chain.reader.in_flow()


def test_a_link_tells_its_state() -> None:
    chain = Chain(Spec(2, 1))
    chain.first.spend(2, 9)
    assert repr(chain.first) == (
        "<Link reader -> channel credit=0 in_flight=2 handled=0 deferred=0 credit_bytes=-9 blocking>"
    )
