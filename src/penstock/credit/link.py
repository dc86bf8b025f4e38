"""Link and Stage: the whole mechanism of credit flow.

A link joins an upstream stage to a downstream stage. Upstream spends one credit per message it casts; downstream
handles it when it takes the message from its mailbox, before the work on it; after `more_after` handled messages it
grants that many back. The law, for every link, in messages and separately in bytes:

    credit + in flight + handled since the last grant + deferred == initial

- Spending never waits and never refuses, so credit may go below zero. A link at or below zero, in messages or in
  bytes, blocks its upstream stage.
- A blocked stage keeps working through its mailbox, but defers the grants it owes. That is how pressure travels
  upstream: the store blocks the queue, the queue's deferred grants run the channel dry, the channel's the reader.
- A stage is blocked while anything blocks it: several links, or alarms by name. When the last reason goes, all
  deferred grants are paid at once.
- A stage that dies closes its links: nobody stays blocked by a ghost, and a late grant on a closed link is nothing.
- An initial of 0 switches blocking off; counting goes on, so that the law still holds when it is switched on again.

Not here: mailboxes and turns (runtime/), settings (hop.py), what a stage does when blocked (each stage's own module),
who is told of blocks (log.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.credit.hop import Hop
from penstock.credit.log import BlockLog

FLOW_MEMORY_NS: Final = 1_000_000_000  # shown as `flow` for 1 s after a block: blocks are short, people slow
ROOM_MAX: Final = 1 << 62  # the room on a link without limit


class Link:
    """One hop between two live stages, with its credit in messages and bytes."""

    __slots__ = (
        "blocked_ns",
        "blocking",
        "closed",
        "credit",
        "credit_bytes",
        "deferred",
        "deferred_bytes",
        "downstream",
        "handled",
        "handled_bytes",
        "hop",
        "round",
        "upstream",
    )

    def __init__(self, hop: Hop, upstream: Stage, downstream: Stage) -> None:
        self.hop = hop
        self.upstream = upstream
        self.downstream = downstream
        self.credit = hop.messages.initial
        self.credit_bytes = hop.bytes.initial
        self.handled = 0
        self.handled_bytes = 0
        self.deferred = 0
        self.deferred_bytes = 0
        self.blocking = False
        self.blocked_ns = 0  # how long it has blocked upstream so far, but for a block that is not over
        self.closed = False
        self.round = 0  # the hop's, when something was last spent here
        hop.links[self] = None
        upstream.outgoing[downstream] = self
        downstream.incoming[upstream] = self

    # Upstream's side.

    def spend(self, messages: int, bytes_: int) -> None:
        """Upstream cast this much. Never waits, never refuses."""
        self.credit = credit = self.credit - messages
        self.credit_bytes = credit_bytes = self.credit_bytes - bytes_
        self.upstream.sent += messages
        hop = self.hop
        if self.round != hop.round and not self.closed:
            self.round = hop.round
            hop.active[self] = None
        if (credit <= 0 or credit_bytes <= 0) and not self.blocking and self._exhausted() and not self.closed:
            self.blocking = True
            self.upstream.block(self)

    def room(self) -> int:
        """How many messages upstream may cast before it is blocked, as far as messages go."""
        if self.blocking:
            return 0
        return self.credit if self.hop.messages.initial and not self.closed else ROOM_MAX

    def room_bytes(self) -> int:
        """How many bytes upstream may cast before it is blocked. The message that crosses the line may still go."""
        if self.blocking:
            return 0
        return self.credit_bytes if self.hop.bytes.initial and not self.closed else ROOM_MAX

    def room_before(self, messages: int) -> int:
        """What the room was before this much was spent."""
        return self.credit + messages if self.hop.messages.initial else ROOM_MAX

    def room_bytes_before(self, bytes_: int) -> int:
        return self.credit_bytes + bytes_ if self.hop.bytes.initial else ROOM_MAX

    def in_flight(self) -> int:
        """Messages cast by upstream that downstream has not taken yet."""
        return self.hop.messages.initial - self.credit - self.handled - self.deferred

    def in_flight_bytes(self) -> int:
        return self.hop.bytes.initial - self.credit_bytes - self.handled_bytes - self.deferred_bytes

    # Downstream's side.

    def handle(self, messages: int, bytes_: int, defer: bool = True) -> None:
        """Downstream took this much from its mailbox; with defer=False, just before it became blocked."""
        self.handled += messages
        self.handled_bytes += bytes_
        self.downstream.received += messages
        hop = self.hop
        if self.handled >= hop.messages.more_after or self.handled_bytes >= hop.bytes.more_after:
            self._grant(defer)

    def pay(self) -> None:
        """Downstream is no longer blocked: the deferred grants go out."""
        messages, self.deferred = self.deferred, 0
        bytes_, self.deferred_bytes = self.deferred_bytes, 0
        self._bump(messages, bytes_)

    # Both sides.

    def adjust(self, messages: int, bytes_: int) -> None:
        """The hop's initial credit changed by this much."""
        self.credit += messages
        self.credit_bytes += bytes_
        self._grant(True)  # more_after may have become smaller than what is handled already
        if not self._exhausted():
            self._bump(0, 0)
        elif not self.blocking:
            self.blocking = True
            self.upstream.block(self)

    def close(self) -> None:
        """One of the two stages is gone."""
        if self.closed:
            return
        self.closed = True
        self.hop.links.pop(self, None)
        self.hop.active.pop(self, None)
        self.upstream.outgoing.pop(self.downstream, None)
        self.downstream.incoming.pop(self.upstream, None)
        self.downstream.owing.pop(self, None)
        if self.blocking:
            self.blocking = False
            self.upstream.unblock(self)

    def _exhausted(self) -> bool:
        hop = self.hop
        return (self.credit <= 0 and hop.messages.initial > 0) or (self.credit_bytes <= 0 and hop.bytes.initial > 0)

    def _grant(self, defer: bool) -> None:
        """Give back what was handled, messages in whole batches; or owe it while downstream is blocked itself."""
        hop = self.hop
        more_after = hop.messages.more_after
        messages = self.handled - self.handled % more_after if more_after else self.handled
        bytes_ = self.handled_bytes if self.handled_bytes >= hop.bytes.more_after else 0
        self.handled -= messages
        self.handled_bytes -= bytes_
        if defer and self.downstream.blocked_by and not self.closed:
            self.deferred += messages
            self.deferred_bytes += bytes_
            self.downstream.owing[self] = None
        else:
            self._bump(messages, bytes_)

    def _bump(self, messages: int, bytes_: int) -> None:
        self.credit += messages
        self.credit_bytes += bytes_
        if self.blocking and not self._exhausted():
            self.blocking = False
            self.upstream.unblock(self)

    def __str__(self) -> str:
        return self.downstream.name

    def __repr__(self) -> str:
        return (
            f"<Link {self.upstream.name} -> {self.downstream.name} credit={self.credit} in_flight={self.in_flight()} "
            f"handled={self.handled} deferred={self.deferred} credit_bytes={self.credit_bytes}"
            f"{' blocking' if self.blocking else ''}{' closed' if self.closed else ''}>"
        )


class Stage:
    """The credit side of a stage: what blocks it, whom it owes grants, and for how long it was blocked so far.

    Reader, channel and queue derive from it.
    """

    __slots__ = (
        "block_log",
        "blocked_at_ns",
        "blocked_by",
        "blocked_ns",
        "blocks",
        "clock",
        "incoming",
        "kind",
        "name",
        "outgoing",
        "owing",
        "received",
        "sent",
        "unblocked_ns",
    )

    def __init__(
        self, name: str, clock: Callable[[], int], block_log: BlockLog | None = None, kind: str = "stage"
    ) -> None:
        self.name = name  # unique among those that live
        self.kind = kind  # connection, channel, queue, stream or store
        self.clock = clock  # monotonic nanoseconds
        self.block_log = block_log
        self.blocked_by: dict[Link | str, tuple[int, int, int]] = {}  # reason -> start, messages and bytes in flight
        self.blocks = 0
        self.blocked_at_ns = 0
        self.blocked_ns = 0
        self.unblocked_ns = -FLOW_MEMORY_NS
        self.incoming: dict[Stage, Link] = {}
        self.outgoing: dict[Stage, Link] = {}
        self.owing: dict[Link, None] = {}
        self.received = 0  # messages so far: taken from links
        self.sent = 0  # and cast to links

    def block(self, reason: Link | str) -> None:
        if reason in self.blocked_by:
            return
        now = self.clock()
        if not self.blocked_by:
            self.blocks += 1
            self.blocked_at_ns = now
        messages = bytes_ = 0
        if isinstance(reason, Link):
            messages, bytes_ = reason.in_flight(), reason.in_flight_bytes()
        self.blocked_by[reason] = (now, messages, bytes_)
        if self.block_log is not None:
            self.block_log.blocked(self, reason, now, messages, bytes_)

    def unblock(self, reason: Link | str) -> None:
        began = self.blocked_by.pop(reason, None)
        if began is None:
            return
        now = self.clock()
        started_ns, messages, bytes_ = began
        if isinstance(reason, Link):
            reason.blocked_ns += now - started_ns
        if self.block_log is not None:
            self.block_log.unblocked(self, reason, started_ns, now, messages, bytes_)
        if self.blocked_by:
            return
        self.blocked_ns += now - self.blocked_at_ns
        self.unblocked_ns = now
        owing, self.owing = self.owing, {}
        for link in owing:
            link.pay()

    def in_flow(self) -> bool:
        """Blocked now, or within the last second: what people see as `flow`."""
        return bool(self.blocked_by) or self.clock() - self.unblocked_ns < FLOW_MEMORY_NS

    def down(self) -> None:
        """This stage is gone: its peers forget it at once."""
        for link in [*self.outgoing.values(), *self.incoming.values()]:
            link.close()
        for reason in list(self.blocked_by):
            self.unblock(reason)
        if self.block_log is not None:
            self.block_log.gone(self)
