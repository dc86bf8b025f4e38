"""Activity: which stages matter now: those that are blocked, saturated, or did something within the last minute.

Place: stages tell it when they are blocked and free again (credit/log.py), queues when they are saturated
(saturation.py); once a second it asks the hops which links were used. So nobody ever looks through ten thousand idle
queues to find the one that is busy. It also adds up blocks by kind of stage, over all stages there ever were.
Not here: what people see of it (snapshot/flow.py), events (events.py), verdicts (flow/).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from urllib.parse import quote

from penstock.broker.events import ALARM, ALARM_OVER, LOGIN_FAILED, RELEASED, SATURATED, Events
from penstock.broker.ledger import Json
from penstock.credit import BlockLog, Hop, Link, Stage
from penstock.runtime import Clock, Timer

CONNECTION: Final = "connection"
CHANNEL: Final = "channel"
QUEUE: Final = "queue"
STREAM: Final = "stream"
STORE: Final = "store"
KINDS: Final = (CONNECTION, CHANNEL, QUEUE, STREAM, STORE)

ROUND_S: Final = 1.0  # how often links are asked for
MEMORY_NS: Final = 60_000_000_000  # a stage matters for a minute after it did something
NS_PER_US: Final = 1000
TEXT_MAX: Final = 300  # characters of what somebody says who is not even a user
STAGES_MAX: Final = 20_000  # remembered; beyond that the ones that were idle longest are forgotten early


def stage_name(vhost_name: str, queue_name: str) -> str:
    """Of a queue: unique among all stages of the broker, and short in the vhost that most have only.

    Percent signs keep a slash out of the vhost's part, so it ends at the first one."""
    if vhost_name == "/" and "/" not in queue_name:
        return f"queue {queue_name}"
    return f"queue {quote(vhost_name, safe='')}/{queue_name}"


class Total:
    """Of one kind of stages, over all there ever were: blocks so far, and how long those lasted that are over."""

    __slots__ = ("blocked_ns", "blocks")

    def __init__(self) -> None:
        self.blocks = 0
        self.blocked_ns = 0


class Activity(BlockLog):
    __slots__ = (
        "_active",
        "_clock",
        "_hops",
        "_timer",
        "alarms",
        "blocking",
        "events",
        "recent",
        "saturated",
        "stages_max",
        "told",
        "totals",
    )

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self.stages_max = STAGES_MAX
        self._hops: list[Hop] = []
        self._timer: Timer | None = None
        self._active: dict[Stage, None] = {}  # in this second
        self.events: Events | None = None  # only a broker with an event stream has them
        self.told: Callable[[list[Stage], int], None] = _nobody  # every second, which stages were active or blocked
        self.blocking: dict[Stage, None] = {}  # blocked now
        self.recent: dict[Stage, int] = {}  # when they last did something, the latest last
        self.saturated: dict[Stage, int] = {}  # since when
        self.alarms: dict[str, int] = {}  # those that are on, and since when
        self.totals = {kind: Total() for kind in KINDS}

    def watch(self, hop: Hop) -> None:
        """Ask the links of this hop too."""
        self._hops.append(hop)

    @property
    def hops(self) -> list[Hop]:
        return list(self._hops)

    def start(self) -> None:
        """Look every second from now on."""
        self.stop()
        self._timer = self._clock.call_later(ROUND_S, self._tick)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        self._timer = self._clock.call_later(ROUND_S, self._tick)
        self.look()
        active, self._active = self._active, {}
        self.told(list(self.blocking | active), self._clock.now_ns())

    def look(self) -> None:
        """Those that were active since the last time are recent from now on; those idle for long are so no more."""
        now_ns = self._clock.now_ns()
        active: dict[Stage, None] = {}
        for hop in self._hops:
            for link in hop.next_round():
                if link.upstream.block_log is not None:  # else it is to be told of to nobody
                    active[link.upstream] = None
                    active[link.downstream] = None
        self._active |= active
        recent = self.recent
        for stage in (*self.blocking, *active):
            recent.pop(stage, None)
            recent[stage] = now_ns
        excess = len(recent) - self.stages_max
        old: list[Stage] = []
        for stage, seen_ns in recent.items():
            if now_ns - seen_ns < MEMORY_NS and len(old) >= excess:
                break
            old.append(stage)
        for stage in old:
            del recent[stage]

    # From stages.

    def blocked(self, stage: Stage, reason: Link | str, now_ns: int, messages: int, bytes_: int) -> None:
        if len(stage.blocked_by) == 1:
            self.blocking[stage] = None
            total = self.totals.get(stage.kind)
            if total is not None:
                total.blocks += 1
        if self.events is not None:
            self.events.blocked(stage, reason, now_ns, messages, bytes_)

    def unblocked(
        self, stage: Stage, reason: Link | str, started_ns: int, now_ns: int, messages: int, bytes_: int
    ) -> None:
        if self.events is not None:
            self.events.unblocked(stage, reason, started_ns, now_ns, messages, bytes_)
        else:
            super().unblocked(stage, reason, started_ns, now_ns, messages, bytes_)
        if not stage.blocked_by:
            self.blocking.pop(stage, None)
            self.recent.pop(stage, None)
            self.recent[stage] = now_ns
            total = self.totals.get(stage.kind)
            if total is not None:
                total.blocked_ns += now_ns - stage.blocked_at_ns

    def gone(self, stage: Stage) -> None:
        self.blocking.pop(stage, None)
        self.recent.pop(stage, None)
        self._active.pop(stage, None)
        self.saturated.pop(stage, None)

    def judged(self, stage: Stage, saturated: bool, messages: int, bytes_: int, held: int) -> None:
        now_ns = self._clock.now_ns()
        since_ns = self.saturated.pop(stage, now_ns)
        if saturated:
            self.saturated[stage] = now_ns
        if self.events is not None:
            fields: dict[str, Json] = {"stage": stage.name, "messages": messages, "bytes": bytes_}
            if not saturated:
                fields["held"] = held
                fields["duration_us"] = (now_ns - since_ns) // NS_PER_US
            self.events.put(SATURATED if saturated else RELEASED, now_ns, fields)

    # From alarms.

    def alarmed(self, source: str, reason: str) -> None:
        """This one began, or has another reason; without one it is over."""
        now_ns = self._clock.now_ns()
        since_ns = self.alarms.setdefault(source, now_ns)
        if not reason:
            del self.alarms[source]
        if self.events is not None:
            fields: dict[str, Json] = {"source": source}
            if reason:
                fields["reason"] = reason
            else:
                fields["duration_us"] = (now_ns - since_ns) // NS_PER_US
            self.events.put(ALARM if reason else ALARM_OVER, now_ns, fields)

    # From whoever checks passwords.

    def login_failed(self, user: str, peer: str, reason: str) -> None:
        if self.events is not None:
            fields: dict[str, Json] = {"user": user[:TEXT_MAX], "peer": peer, "reason": reason[:TEXT_MAX]}
            self.events.put(LOGIN_FAILED, self._clock.now_ns(), fields)

    def __repr__(self) -> str:
        return f"<Activity blocking={len(self.blocking)} recent={len(self.recent)} saturated={len(self.saturated)}>"


def _nobody(active: list[Stage], now_ns: int) -> None:
    """Who is told before there is an event stream."""
