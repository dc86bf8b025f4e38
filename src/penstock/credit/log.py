"""BlockLog: who is told when a stage is blocked, free again, saturated, released, and gone.

Place: a stage calls it (link.py); the broker's own (broker/activity.py) derives from it and knows more.
This one keeps the last blocks in memory, for tests and for a first look.
Not here: events (broker/events.py), verdicts (flow/).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from penstock.credit.link import Link, Stage

BLOCKS_MAX: Final = 1000  # kept in memory; the event stream keeps them all


class Block:
    """One stretch of time in which a stage was blocked by one reason, and what was in flight there when it began."""

    __slots__ = ("bytes", "cause", "ended_ns", "messages", "stage", "started_ns")

    def __init__(self, stage: str, cause: str, started_ns: int, ended_ns: int, messages: int, bytes_: int) -> None:
        self.stage = stage
        self.cause = cause
        self.started_ns = started_ns
        self.ended_ns = ended_ns
        self.messages = messages
        self.bytes = bytes_

    def __repr__(self) -> str:
        took_us = (self.ended_ns - self.started_ns) // 1000
        return f"<Block {self.stage} by {self.cause} {took_us}us messages={self.messages} bytes={self.bytes}>"


class BlockLog:
    __slots__ = ("blocks",)

    def __init__(self) -> None:
        self.blocks: deque[Block] = deque(maxlen=BLOCKS_MAX)

    def blocked(self, stage: Stage, reason: Link | str, now_ns: int, messages: int, bytes_: int) -> None:
        """One more reason blocks the stage; it is in `stage.blocked_by` already."""

    def unblocked(
        self, stage: Stage, reason: Link | str, started_ns: int, now_ns: int, messages: int, bytes_: int
    ) -> None:
        """This reason is gone from `stage.blocked_by`; messages and bytes are what was in flight when it came."""
        self.blocks.append(Block(stage.name, str(reason), started_ns, now_ns, messages, bytes_))

    def judged(self, stage: Stage, saturated: bool, messages: int, bytes_: int, held: int) -> None:
        """A queue with this much has become saturated, or was released when it held this many confirms."""

    def gone(self, stage: Stage) -> None:
        """The stage has closed its links and will never be seen again."""

    def __iter__(self) -> Iterator[Block]:
        """The last blocks that are over."""
        return iter(self.blocks)

    def __len__(self) -> int:
        return len(self.blocks)
