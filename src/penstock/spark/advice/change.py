"""Change: settings put to use on the running broker, what they did by measurement, and back again if that was worse.

Counters are read over HTTP before and after, for as long each. Worse is less throughput, or more of what the goal
wants less of. The old values are set again then, and measured again: on a busy machine it may have been no fault of the
settings. They are set again, too, if a setting was refused half-way, or if somebody interrupts.
Throughput is what queues take, not what channels publish: with a credit of 50,000 these publish nothing for a second,
then all at once, and a new credit lets them wait or hurry for some seconds, while queues work on at their pace.
Only where no queue took anything before the change it is what channels publish, then and afterwards.
Upstream: pipeline/advise.py.  Downstream: knob.py, which sets; applied.py, which is told before anything is set.
Not here: which settings (adviser.py); what only clients set (prefetch): that is advised only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Final

from penstock.spark.advice.applied import KEPT, TAKEN_BACK, Diary, now_ms, shown
from penstock.spark.advice.clients import STREAM_OF_EVENTS, Api, Json, Row, object_of, rows_of, stage_of
from penstock.spark.advice.knob import is_marks, put, put_back, row_of, saturation_of, value_of
from penstock.spark.advice.observed import QUEUES
from penstock.spark.advice.words import bytes_in_words
from penstock.spark.complaint import Complaint

WORSE: Final = 0.05  # throughput that may be lost before it counts as worse: two measurements differ as much
NOISE: Final = 0.1  # the same for times and for what is held: they are means of a few looks
HELD_GRAIN: Final = 1000.0  # messages; fewer are gone between two looks
TIME_GRAIN_MS: Final = 1.0
LOOK_S: Final = 0.5
SETTLE_S: Final = 1.0  # after a change, until what was under way is through
SETTLE_MAX_S: Final = 60.0  # the same for a queue that has new marks, until it has as much as they say
MESSAGES_MIN: Final = 100  # of fewer no rate is told
UNDO: Final = "penstock pipeline advise --undo"

Watch = Callable[[str, float, float], None]  # what is measured, seconds so far, all


@dataclass(frozen=True, slots=True)
class Measurement:
    """What the broker did for a while."""

    seconds: float
    throughput: float  # messages per second that queues took; what goes to no queue, as it was published
    confirmed: float
    delivered: float
    confirm_ms: float  # mean time to a confirm, by what waits for one (Little's law); 0: no confirms
    stay_ms: float  # mean time in the broker until a delivery is done with, by what it holds; 0: no deliveries
    held: float  # messages inside, as a mean: parked, under way, in queues that somebody consumes
    blocked: float  # part of the time that publishing connections were blocked, as a mean
    memory_bytes: int  # of the broker's process, at the end
    messages: int  # in all queues, at the end
    published: float = 0.0  # messages per second
    by_queues: bool = True  # throughput is what queues took

    @property
    def waits_ms(self) -> float:
        """What is a message's latency: until its confirm, or where there are none until it is delivered."""
        return self.confirm_ms or self.stay_ms


@dataclass(frozen=True, slots=True)
class Change:
    settings: dict[str, str]
    old: dict[str, str]
    goal: str
    before: Measurement
    after: Measurement
    rolled_back: bool
    at_ms: int  # when the settings were last changed
    again: Measurement | None = None  # with the old values once more, if it seemed to be worse

    @property
    def ratio(self) -> float:
        return self.after.throughput / self.before.throughput

    @property
    def worse(self) -> str:
        """What became worse; empty if nothing did."""
        seemed = worse(self.goal, self.before, self.after)
        return seemed if self.again is None or self.rolled_back else ""

    @property
    def sentence(self) -> str:
        """What came of it."""
        before, after = self.before, self.after
        parts = [
            f"{before.throughput:,.0f} messages a second before, {after.throughput:,.0f} after "
            f"({100 * (self.ratio - 1):+.0f} %)"
        ]
        if before.confirm_ms and after.confirm_ms:
            parts.append(f"confirms after {_ms(before.confirm_ms)} before, {_ms(after.confirm_ms)} after (means)")
        if before.delivered and after.delivered:
            parts.append(f"messages stay {_ms(before.stay_ms)} before, {_ms(after.stay_ms)} after (means)")
        parts.append(f"{before.held:,.0f} messages held before, {after.held:,.0f} after")
        parts.append(f"publishers blocked {100 * before.blocked:.0f} % before, {100 * after.blocked:.0f} % after")
        more = after.memory_bytes - before.memory_bytes
        parts.append(f"the process uses {bytes_in_words(abs(more))} {'more' if more >= 0 else 'less'}")
        return f"Measured: {'; '.join(parts)}. {self._verdict()}".rstrip()

    def _verdict(self) -> str:
        if self.again is not None and not self.rolled_back:
            return (
                f"That seemed worse, but with the old values it was {self.again.throughput:,.0f} messages a second "
                f"then: it was not the settings, which are set again; back with: {UNDO}"
            )
        if self.rolled_back:
            return f"That is worse ({self.worse}), so the old values are set again: {shown(self.old)}."
        if self.worse:
            return f"That is worse ({self.worse}), and kept as you said; back with: {UNDO}"
        if not is_better(self.goal, self.before, self.after):
            return f"That is no better than before; back with: {UNDO}"
        return ""

    def document(self) -> dict[str, object]:
        return {
            "measured": {
                "before": asdict(self.before),
                "after": asdict(self.after),
                "again": asdict(self.again) if self.again is not None else None,
            },
            "applied": {
                "settings": self.settings,
                "old": self.old,
                "rolled_back": self.rolled_back,
                "worse": self.worse,
                "at_ms": self.at_ms,
                "sentence": self.sentence,
            },
        }


def worse(goal: str, before: Measurement, after: Measurement) -> str:
    """In what it is worse, of what counts for the goal, by more than two measurements differ; empty: in nothing."""
    if after.throughput < before.throughput * (1.0 - WORSE):
        return "less throughput"
    if goal == "latency" and _is_more(before.waits_ms, after.waits_ms, TIME_GRAIN_MS):
        return "messages take longer"
    if goal == "memory" and _is_more(before.held, after.held, HELD_GRAIN):
        return "more messages held"
    return ""


def is_better(goal: str, before: Measurement, after: Measurement) -> bool:
    """In the goal's own figure, by more than two measurements differ."""
    if goal == "memory":
        return _is_more(after.held, before.held, HELD_GRAIN)
    faster = after.throughput > before.throughput * (1.0 + WORSE)
    sooner = _is_more(after.waits_ms, before.waits_ms, TIME_GRAIN_MS)
    return {"throughput": faster, "latency": sooner}.get(goal, faster or sooner)


def _is_more(before: float, after: float, grain: float) -> bool:
    return after - before > max(NOISE * before, grain)


def apply(
    api: Api,
    wanted: Mapping[str, str],
    goal: str = "throughput",
    measure_s: float = 10.0,
    rollback: bool = True,
    watch: Watch | None = None,
    settle_s: float = SETTLE_S,
    diary: Diary | None = None,
) -> Change:
    """Measure, set, measure again; and set back what made it worse."""
    old = {name: value_of(api, name) for name in wanted}
    before = measure(api, measure_s, watch, "before")
    if before.published * before.seconds < MESSAGES_MIN:
        raise Complaint("nothing is published at the moment, so no change could be measured: nothing was set")
    if diary is not None:
        diary.begin(wanted, old)
    back, again = False, None
    try:
        full = _full(api, wanted)
        put_all(api, wanted)
        at_ms = now_ms()
        settle(api, full, settle_s, watch)
        # By the same counter as before: if queues take nothing any more, what is still published must not hide it.
        after = measure(api, measure_s, watch, "after", before.by_queues)
        if rollback and worse(goal, before, after):
            full = _full(api, wanted)
            for name, value in old.items():
                put_back(api, name, value)
            settle(api, full, settle_s, watch)
            again = measure(api, measure_s, watch, "again", before.by_queues)
            back = again.published * again.seconds < MESSAGES_MIN or bool(worse(goal, again, after))
            if not back:
                put_all(api, wanted)
            at_ms = now_ms()
    except BaseException:
        restore(api, old)
        if diary is not None:
            diary.end(TAKEN_BACK, now_ms())
        raise
    change = Change(dict(wanted), old, goal, before, after, back, at_ms, again)
    if diary is not None:
        diary.end(TAKEN_BACK if back else KEPT, at_ms, change.sentence)
    return change


def put_all(api: Api, settings: Mapping[str, str]) -> None:
    for name, value in settings.items():
        put(api, name, value)


def settle(api: Api, full: Mapping[str, bool], settle_s: float, watch: Watch | None = None) -> None:
    """Until what is measured is what the new values do.

    `full`: queues with new marks, and whether they were full to the old ones. One that has more than its new stop mark
    takes nothing until it is released; one that may have more takes all that comes until it is saturated again.
    """
    time.sleep(settle_s)
    began = time.monotonic()
    first = {name: saturation_of(api, name) for name in full}
    left = [name for name, was_full in full.items() if was_full or first[name][0]]
    while left and (passed := time.monotonic() - began) < SETTLE_MAX_S:
        if watch is not None:
            watch("marks", passed, SETTLE_MAX_S)
        time.sleep(LOOK_S)
        # Released or saturated since, it is another now; a release may be too short to be seen, but is counted then.
        left = [name for name in left if saturation_of(api, name) == first[name]]


def _full(api: Api, wanted: Mapping[str, str]) -> dict[str, bool]:
    """Of the queues whose marks are to be changed, which are at those of now: saturated, or on the way there again."""
    names = [name for name in wanted if is_marks(name)]
    flow = object_of(api.get("flow")) if names else {}
    return {name: _is_full(row_of(name, flow)) for name in names}


def _is_full(queue: Row) -> bool:
    resume = _number(queue.get("watermark"), "resume_count")
    return bool(queue.get("saturated")) or 0 < resume <= _number(queue, "messages")


def restore(api: Api, old: Mapping[str, str]) -> None:
    """Set back all that can be; a Complaint names what cannot."""
    left: dict[str, Exception] = {}
    for name, value in old.items():
        try:
            put_back(api, name, value)
        except Exception as error:  # the others must be tried, whatever this one's matter is
            left[name] = error
    if left:
        why = next(iter(left.values()))
        raise Complaint(
            f"{why}; not set back: {shown({name: old[name] for name in left})}. A broker that has stopped forgets "
            f"credit that was set while it ran; what it still has, set back with: {UNDO}"
        )


def measure(
    api: Api, seconds: float, watch: Watch | None = None, what: str = "", by_queues: bool | None = None
) -> Measurement:
    """Counters at the beginning and at the end; what has no counter, looked at in between. `by_queues`: whether
    throughput is what they take; None: if they take anything."""
    began, first = time.monotonic(), _counters(api)
    looks: list[tuple[float, float]] = []
    while True:
        passed = time.monotonic() - began
        if watch is not None:
            watch(what, min(passed, seconds), seconds)
        if passed >= seconds:
            break
        time.sleep(min(LOOK_S, seconds - passed))
        flow = object_of(api.get("flow"))
        looks.append((_unconfirmed(api, flow), _held(api, flow)))
    last, passed = _counters(api), time.monotonic() - began
    rates = {name: max(0.0, last[name] - first[name]) / passed for name in ("publish", "confirm", "deliver_get")}
    taken = sum(last[name] - first.get(name, last[name]) for name in last if name.startswith("taken ")) / passed
    by_queues = taken > 0 if by_queues is None else by_queues
    waiting, held = (sum(counts) / len(looks) for counts in zip(*looks, strict=True)) if looks else (0.0, 0.0)
    return Measurement(
        seconds=passed,
        throughput=taken if by_queues else rates["publish"],
        confirmed=rates["confirm"],
        delivered=rates["deliver_get"],
        confirm_ms=1000 * waiting / rates["confirm"] if rates["confirm"] else 0.0,
        stay_ms=1000 * held / rates["deliver_get"] if rates["deliver_get"] else 0.0,
        held=held,
        blocked=_blocked(first, last, passed),
        memory_bytes=int(last["memory"]),
        messages=int(last["messages"]),
        published=rates["publish"],
        by_queues=by_queues,
    )


def _counters(api: Api) -> dict[str, float]:
    overview, flow = object_of(api.get("overview")), object_of(api.get("flow"))
    totals, stats = overview.get("queue_totals"), overview.get("message_stats")
    found = {name: _number(stats, name) for name in ("publish", "confirm", "deliver_get")}
    found["messages"] = _number(totals, "messages")
    nodes = api.get("nodes")
    found["memory"] = _number(nodes[0], "mem_used") if isinstance(nodes, list) and nodes else 0.0
    for stage in rows_of(flow.get("stages")):
        if stage.get("kind") == "connection":
            found[f"blocked {stage['id']}"] = _number(stage, "blocked_s")
            found[f"sent {stage['id']}"] = _number(stage, "sent")
    for queue in _queues(api, flow):
        found[f"taken {queue['id']}"] = _number(queue, "received")
    return found


def _queues(api: Api, flow: Row) -> list[Row]:
    """Queues with `id`, `received`, `messages` and `consumers`. The flow has no more stages than can be drawn, those
    that are blocked first: others at each look. Where it has left some out, all queues are asked for."""
    if not flow.get("left_out"):
        found = [one for one in rows_of(flow.get("stages")) if one.get("kind") in QUEUES]
    else:
        rows = rows_of(api.get("queues", columns="vhost,name,messages,consumers,message_stats.publish"))
        found = [row | {"id": stage_of(row), "received": _number(row.get("message_stats"), "publish")} for row in rows]
    return [one for one in found if one.get("name") != STREAM_OF_EVENTS]


def _blocked(first: Mapping[str, float], last: Mapping[str, float], seconds: float) -> float:
    """Of the connections that published between the two, the mean part of the time that they were blocked."""
    shares = [
        (last[f"blocked {name}"] - first.get(f"blocked {name}", 0.0)) / seconds
        for name in (key.removeprefix("sent ") for key in last if key.startswith("sent "))
        if last[f"sent {name}"] > first.get(f"sent {name}", 0.0)
    ]
    return min(1.0, max(0.0, sum(shares) / len(shares))) if shares else 0.0


def _unconfirmed(api: Api, flow: Row) -> float:
    """Messages that wait for their confirm: those that channels have, and those that their connections have parked."""
    if flow.get("left_out"):
        rows = rows_of(api.get("channels", columns="messages_unconfirmed"))
        unconfirmed = sum(_number(one, "messages_unconfirmed") for one in rows)
        return unconfirmed + (_messages(flow, _number(flow.get("totals"), "parked_bytes")) if unconfirmed else 0.0)
    stages = rows_of(flow.get("stages"))
    channels = [(one.get("connection"), _number(one, "unconfirmed")) for one in stages]
    publishing = {connection for connection, unconfirmed in channels if unconfirmed}
    parked = sum(_number(one, "parked_bytes") for one in stages if one.get("id") in publishing)
    return sum(unconfirmed for _, unconfirmed in channels) + _messages(flow, parked)


def _held(api: Api, flow: Row) -> float:
    """Messages inside the broker. What is on its way to the store is in its queue, too; what piles up in a queue that
    nobody consumes is nobody's delay."""
    queued = sum(_number(one, "messages") for one in _queues(api, flow) if _number(one, "consumers"))
    links = [one for one in rows_of(flow.get("links")) if one.get("hop") != "queue_store"]
    parked = _number(flow.get("totals"), "parked_bytes")
    return queued + sum(_number(one, "in_flight") for one in links) + _messages(flow, parked)


def _messages(flow: Row, size: float) -> float:
    """How many messages so many bytes are, by those that are under way."""
    pairs = [(_number(one, "in_flight"), _number(one, "in_flight_bytes")) for one in rows_of(flow.get("links"))]
    pairs.append((_number(flow.get("store"), "pending_messages"), _number(flow.get("store"), "pending_bytes")))
    messages, bytes_ = (sum(column) for column in zip(*pairs, strict=True))
    return size * messages / bytes_ if bytes_ else 0.0


def _ms(value: float) -> str:
    return f"{value:,.0f} ms" if value >= 100 else f"{value:.3g} ms"


def _number(value: Json, name: str) -> float:
    found = value.get(name) if isinstance(value, dict) else None
    return float(found) if isinstance(found, (int, float)) else 0.0
