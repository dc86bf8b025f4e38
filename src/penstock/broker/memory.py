"""Memory: RAM that messages of all queues use together, and how much they may.

Two bounds. Messages that are on disk too may use a fixed number of bytes: more would be no faster, as the kernel caches
files. All messages, transient ones too, must shrink when the whole process nears its watermark.
Place in the chain: beside it. Every queue's paging.py says what it uses and asks what it may.
Not here: what a queue pages out (paging.py, quota.py), the alarm (alarms.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from penstock.amqp.decoder import Message, Publish
from penstock.amqp.publish import from_origin
from penstock.broker.backlog import AWAY
from penstock.runtime import Clock
from penstock.store.pager import Found, Pager
from penstock.store.store import MessageStore

if TYPE_CHECKING:
    from penstock.broker.paging import Paging

CACHE_BYTES: Final = 67_108_864  # store.cache_bytes: messages in RAM that are on disk too, of all queues
PRESS_NS: Final = 100_000_000  # how often all queues are asked to give up memory
SMALL_BYTES: Final = 65_536  # a queue with less in RAM is left alone
PAGING_RATIO: Final = 0.5  # store.paging_ratio: RabbitMQ's vm_memory_high_watermark_paging_ratio
MOVED_MAX: Final = 10_000  # queues whose paging is counted until somebody asks
ORIGINS_MAX: Final = 4096  # publishes made from origins and kept; then forgotten all at once


class Memory:
    """RAM that messages of all queues use, and how much they may."""

    __slots__ = (
        "_clock",
        "_moved",
        "_origins",
        "_pressed_ns",
        "cache_bytes",
        "observations",
        "pager",
        "paging_ratio",
        "pagings",
        "read_count",
        "report",
        "scarce",
        "store",
        "used_bytes",
    )

    def __init__(
        self,
        store: MessageStore,
        pager: Pager,
        clock: Clock,
        report: Callable[[str], None],
        cache_bytes: int = CACHE_BYTES,
    ) -> None:
        """`report` gets a line for every message that cannot be read, for the log."""
        self.store = store
        self.pager = pager
        self.report = report
        self.cache_bytes = cache_bytes
        self.paging_ratio = PAGING_RATIO
        self.observations = 0
        self.read_count = 0  # messages that came back from disk
        self.used_bytes = 0
        self.scarce = 1.0  # share of all messages, transient ones too, that may stay: below 1 when the process is large
        self.pagings: dict[Paging, None] = {}
        self._clock = clock
        self._pressed_ns = 0
        self._moved: dict[str, tuple[int, int]] = {}
        self._origins: dict[bytes, Publish] = {}

    def observed(self, used_bytes: int, high_bytes: int) -> None:
        """What the process uses, and at how much publishers are blocked: well before that messages leave RAM, whether
        they are on disk yet or not."""
        self.scarce = min(1.0, self.paging_ratio * high_bytes / max(1, used_bytes))
        self.observations += 1
        if self.scarce < 1.0:
            self.press()

    def press(self) -> None:
        """Have all queues give up their share."""
        now_ns = self._clock.now_ns()
        if now_ns - self._pressed_ns < PRESS_NS:
            return
        self._pressed_ns = now_ns
        for paging in self.pagings:
            if paging.used_bytes > SMALL_BYTES:
                paging.wake()

    def moved(self, stage: str, out: int, back: int) -> int:
        """So many messages of this queue have left RAM, or came back; how many left."""
        if (out or back) and (stage in self._moved or len(self._moved) < MOVED_MAX):
            out_before, back_before = self._moved.get(stage, (0, 0))
            self._moved[stage] = out_before + out, back_before + back
        return out

    def take_moved(self) -> dict[str, tuple[int, int]]:
        """Out and back by queue, since the last time."""
        moved, self._moved = self._moved, {}
        return moved

    def publish(self, origin: bytes) -> Publish:
        """The publish of these bytes, one object for all that are the same."""
        publish = self._origins.get(origin)
        if publish is None:
            if len(self._origins) >= ORIGINS_MAX:
                self._origins.clear()
            publish = self._origins[origin] = from_origin(origin)
        return publish

    def messages(self, found: Found, first: int, end: int, stage: str = "") -> list[Message]:
        """Of these positions, back in RAM if the queue is named; AWAY where one is damaged."""
        if stage:
            self.moved(stage, 0, end - first)
        self.read_count += end - first
        contents = found.contents[first - found.first : end - found.first]
        if len(found.origins) == 1:
            publish = self.publish(found.origins[0][1])
            return [(publish, content) if content is not None else AWAY for content in contents]
        publishes: list[Publish] = []
        for count, origin in found.origins:
            publishes += [self.publish(origin)] * count
        publishes = publishes[first - found.first : end - found.first]
        return [
            (publish, content) if content is not None else AWAY
            for publish, content in zip(publishes, contents, strict=False)
        ]
