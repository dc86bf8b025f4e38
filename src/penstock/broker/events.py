"""Events: what happened, gathered until it is written to the stream `penstock.events`.

Place: activity.py tells of blocks, saturation and alarms, eventstream.py of the rest, and takes what is here once a
second. Whoever tells pays for one small dict, or only for a sum: a link that blocks and unblocks hundreds of times a
second has its first EACH_MAX blocks of the second as events of their own, the others as one event that says how many
they were and how long they took. So a credit cycle at full load costs the same as a slow one.
Bounded: of each type so many a second, a part of `events.per_second`; what is more is counted, and `dropped` says so.
Not here: the stream (eventstream.py), what samples have in them (sampling.py). docs/events.md has every type and field.
"""

from __future__ import annotations

import json
from typing import Final

from penstock.broker.ledger import Json
from penstock.credit import Link, Stage

VERSION: Final = 1  # of the schema: goes up when a field changes its meaning or goes away

BLOCKED: Final = "blocked"
UNBLOCKED: Final = "unblocked"
SATURATED: Final = "saturated"
RELEASED: Final = "released"
ALARM: Final = "alarm"
ALARM_OVER: Final = "alarm_over"
PAGING: Final = "paging"
SYNC: Final = "sync"
RECOVERY: Final = "recovery"
LOGIN_FAILED: Final = "login_failed"
SAMPLE: Final = "sample"
RESOURCES: Final = "resources"
DROPPED: Final = "dropped"
TYPES: Final = (
    BLOCKED,
    UNBLOCKED,
    SATURATED,
    RELEASED,
    ALARM,
    ALARM_OVER,
    PAGING,
    SYNC,
    RECOVERY,
    LOGIN_FAILED,
    SAMPLE,
    RESOURCES,
    DROPPED,
)

PER_SECOND: Final = 500  # events.per_second; about 10 us each, so one part in two hundred of a core
PARTS: Final = {BLOCKED: 4, UNBLOCKED: 4, SAMPLE: 2}  # of it one in so many; of other types one in OTHER_PART
OTHER_PART: Final = 10
EACH_MAX: Final = 5  # blocks of one link in a second that are events of their own
_ENCODER: Final = json.JSONEncoder(check_circular=False, separators=(",", ":"))  # made once, not per event
CHAIN_MAX: Final = 8  # stages in a chain; a queue's dead letters may go far


class Cycle:
    """What blocked one stage in this second: how often so far, and what is not an event of its own."""

    __slots__ = (
        "blocks",
        "bytes",
        "cause",
        "chain",
        "duration_ns",
        "kind",
        "longest_ns",
        "messages",
        "more_blocks",
        "more_unblocks",
        "stage",
        "unblocked_bytes",
        "unblocked_messages",
        "unblocks",
    )

    def __init__(self, stage: Stage, reason: Link | str) -> None:
        self.stage = stage.name
        self.kind = stage.kind
        self.cause = str(reason)
        self.chain: list[Json] = []
        self.blocks = 0
        self.unblocks = 0
        self.more_blocks = 0
        self.more_unblocks = 0
        self.messages = 0  # in flight when the last of the blocks began
        self.bytes = 0
        self.unblocked_messages = 0  # the same of the last that ended: it may have begun seconds ago
        self.unblocked_bytes = 0
        self.duration_ns = 0
        self.longest_ns = 0


class Events:
    __slots__ = ("_cycles", "_entries", "_left", "_lost", "dropped", "per_second", "written")

    def __init__(self, per_second: int = PER_SECOND) -> None:
        self.per_second = per_second
        self._entries: list[tuple[int, str, dict[str, Json]]] = []  # when, what, and more about it
        self._cycles: dict[Link | str, Cycle] = {}
        self._left = {type_: self.bound(type_) for type_ in TYPES}
        self._lost: dict[str, int] = {}  # not told of yet
        self.written = 0
        self.dropped = 0

    def bound(self, type_: str) -> int:
        """How many of this type there may be in a second."""
        return max(1, self.per_second // PARTS.get(type_, OTHER_PART))

    def put(self, type_: str, at_ns: int, fields: dict[str, Json], count: int = 1) -> None:
        """One more, or, if there are too many already, one dropped; it stands for `count` of its kind."""
        if self._left[type_] > 0:
            self._left[type_] -= 1
            self._entries.append((at_ns, type_, fields))
        else:
            self.drop(type_, count)

    def room(self, type_: str) -> int:
        """How many more of this type there may be until they are taken."""
        return self._left[type_]

    def drop(self, type_: str, count: int) -> None:
        """So many more there would have been."""
        if count > 0:
            self._lost[type_] = self._lost.get(type_, 0) + count
            self.dropped += count

    # Blocks.

    def blocked(self, stage: Stage, reason: Link | str, now_ns: int, messages: int, bytes_: int) -> None:
        cycle = self._cycle(stage, reason)
        cycle.blocks += 1
        if cycle.blocks <= EACH_MAX + 1:  # of those that are added up, the first: a chain for each would cost too much
            cycle.chain = chain(stage, reason)
        if cycle.blocks > EACH_MAX:
            cycle.more_blocks += 1
            cycle.messages, cycle.bytes = messages, bytes_
            return
        self._put_blocked(cycle, now_ns, messages, bytes_, 1)

    def unblocked(
        self, stage: Stage, reason: Link | str, started_ns: int, now_ns: int, messages: int, bytes_: int
    ) -> None:
        cycle = self._cycle(stage, reason)
        cycle.unblocks += 1
        took_ns = now_ns - started_ns
        if cycle.unblocks > EACH_MAX:
            cycle.more_unblocks += 1
            cycle.duration_ns += took_ns
            cycle.longest_ns = max(cycle.longest_ns, took_ns)
            cycle.unblocked_messages, cycle.unblocked_bytes = messages, bytes_
            return
        self._put_unblocked(cycle, now_ns, messages, bytes_, 1, took_ns, took_ns)

    def _cycle(self, stage: Stage, reason: Link | str) -> Cycle:
        key = reason if isinstance(reason, Link) else f"{stage.name} {reason}"
        cycle = self._cycles.get(key)
        if cycle is None:
            cycle = self._cycles[key] = Cycle(stage, reason)
        return cycle

    def _put_blocked(self, cycle: Cycle, now_ns: int, messages: int, bytes_: int, count: int) -> None:
        fields: dict[str, Json] = {
            "stage": cycle.stage,
            "kind": cycle.kind,
            "cause": cycle.cause,
            "chain": cycle.chain,
            "messages": messages,
            "bytes": bytes_,
            "count": count,
        }
        self.put(BLOCKED, now_ns, fields, count)

    def _put_unblocked(
        self, cycle: Cycle, now_ns: int, messages: int, bytes_: int, count: int, duration_ns: int, longest_ns: int
    ) -> None:
        fields: dict[str, Json] = {
            "stage": cycle.stage,
            "kind": cycle.kind,
            "cause": cycle.cause,
            "messages": messages,
            "bytes": bytes_,
            "count": count,
            "duration_us": duration_ns // 1000,
            "longest_us": longest_ns // 1000,
        }
        self.put(UNBLOCKED, now_ns, fields, count)

    # Once a second.

    def gather(self, now_ns: int) -> None:
        """What was only summed up becomes events."""
        cycles, self._cycles = self._cycles, {}
        for cycle in cycles.values():
            if cycle.more_blocks:
                self._put_blocked(cycle, now_ns, cycle.messages, cycle.bytes, cycle.more_blocks)
            if cycle.more_unblocks:
                self._put_unblocked(
                    cycle,
                    now_ns,
                    cycle.unblocked_messages,
                    cycle.unblocked_bytes,
                    cycle.more_unblocks,
                    cycle.duration_ns,
                    cycle.longest_ns,
                )

    def take(self, now_ns: int, wall_us: int) -> list[tuple[str, bytes]]:
        """All there are, as types and JSON; what was dropped comes last. There is room for others from now on.

        `wall_us` is the time since 1970 at `now_ns`."""
        entries, self._entries = self._entries, []
        if self._lost:
            lost: dict[str, Json] = dict(sorted(self._lost.items()))
            entries.append((now_ns, DROPPED, {"counts": lost, "total": sum(self._lost.values())}))
            self._lost = {}
        self._left = {type_: self.bound(type_) for type_ in TYPES}
        self.written += len(entries)
        return [
            (type_, encode({"v": VERSION, "type": type_, "at_us": wall_us - (now_ns - at_ns) // 1000, **fields}))
            for at_ns, type_, fields in entries
        ]

    def __len__(self) -> int:
        """Those that wait."""
        return len(self._entries)

    def __repr__(self) -> str:
        return f"<Events waiting={len(self._entries)} written={self.written} dropped={self.dropped}>"


def encode(event: dict[str, Json]) -> bytes:
    """Names that are no UTF-8 have their odd bytes as surrogates, which JSON's escapes keep."""
    return _ENCODER.encode(event).encode("ascii")


def chain(stage: Stage, reason: Link | str) -> list[Json]:
    """From the stage over what blocks it, and what blocks that, to the first that is not blocked itself."""
    names: list[Json] = [stage.name]
    while isinstance(reason, Link) and len(names) < CHAIN_MAX:
        downstream = reason.downstream
        names.append(downstream.name)
        if not downstream.blocked_by:
            return names
        reason = next(iter(downstream.blocked_by))
    if not isinstance(reason, Link):
        names.append(reason)
    return names
