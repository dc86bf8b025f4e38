"""Change: settings put to use on the running broker, what they did by measurement, and back again if that was worse.

Counters are read over HTTP before and after, for as long each. The old values are set again if throughput fell, if a
setting was refused half-way, or if somebody interrupts: what was not seen to help does not stay.
Upstream: pipeline/advise.py.  Downstream: the broker's HTTP API.
Not here: which settings (adviser.py); what clients and policies set (prefetch, watermarks): that is advised only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Final

from penstock.spark.advice.clients import Api, Json, Row
from penstock.spark.advice.words import bytes_in_words
from penstock.spark.complaint import Complaint

WORSE: Final = 0.05  # throughput that may be lost before it counts as worse: two measurements differ as much
LOOK_S: Final = 0.5
SETTLE_S: Final = 1.0  # after a change, until what was under way is through
MESSAGES_MIN: Final = 100  # of fewer no rate is told

Watch = Callable[[str, float, float], None]  # what is measured, seconds so far, all


@dataclass(frozen=True, slots=True)
class Measurement:
    """What the broker did for a while."""

    seconds: float
    throughput: float  # messages per second that were published
    confirmed: float
    delivered: float
    confirm_ms: float  # mean time to a confirm, by what waits for one (Little's law); 0: no confirms
    blocked: float  # part of the time that publishing connections were blocked, as a mean
    memory_bytes: int  # of the broker's process, at the end
    messages: int  # in all queues, at the end


@dataclass(frozen=True, slots=True)
class Change:
    settings: dict[str, str]
    old: dict[str, str]
    before: Measurement
    after: Measurement
    rolled_back: bool
    at_ms: int  # when the settings were last changed

    @property
    def ratio(self) -> float:
        return self.after.throughput / self.before.throughput

    @property
    def sentence(self) -> str:
        """What came of it."""
        before, after = self.before, self.after
        parts = [
            f"{before.throughput:,.0f} messages a second before, {after.throughput:,.0f} after "
            f"({100 * (self.ratio - 1):+.0f} %)"
        ]
        if before.confirm_ms and after.confirm_ms:
            parts.append(f"confirms after {before.confirm_ms:.3g} ms before, {after.confirm_ms:.3g} ms after (means)")
        parts.append(f"publishers blocked {100 * before.blocked:.0f} % before, {100 * after.blocked:.0f} % after")
        more = after.memory_bytes - before.memory_bytes
        parts.append(f"the process uses {bytes_in_words(abs(more))} {'more' if more >= 0 else 'less'}")
        said = "Measured: " + "; ".join(parts) + "."
        if self.rolled_back:
            said += " That is worse, so the old values are set again: " + shown(self.old) + "."
        return said

    def document(self) -> dict[str, object]:
        return {
            "measured": {"before": asdict(self.before), "after": asdict(self.after)},
            "applied": {
                "settings": self.settings,
                "old": self.old,
                "rolled_back": self.rolled_back,
                "at_ms": self.at_ms,
                "sentence": self.sentence,
            },
        }


def apply(
    api: Api,
    wanted: Mapping[str, str],
    measure_s: float = 10.0,
    rollback: bool = True,
    watch: Watch | None = None,
    settle_s: float = SETTLE_S,
) -> Change:
    """Measure, set, measure again; and set back what did not help."""
    old = {name: value_of(api, name) for name in wanted}
    before = measure(api, measure_s, watch, "before")
    if before.throughput * before.seconds < MESSAGES_MIN:
        raise Complaint("nothing is published at the moment, so no change could be measured: nothing was set")
    try:
        for name, value in wanted.items():
            api.put("settings", name, body={"value": value})
        at_ms = _now_ms()
        time.sleep(settle_s)
        after = measure(api, measure_s, watch, "after")
    except BaseException:
        restore(api, old)
        raise
    worse = rollback and after.throughput < before.throughput * (1.0 - WORSE)
    if worse:
        restore(api, old)
        at_ms = _now_ms()
    return Change(dict(wanted), old, before, after, worse, at_ms)


def restore(api: Api, old: Mapping[str, str]) -> None:
    """Set back all that can be; a Complaint names what cannot."""
    left: dict[str, Exception] = {}
    for name, value in old.items():
        try:
            api.put("settings", name, body={"value": value})
        except Exception as error:  # the others must be tried, whatever this one's matter is
            left[name] = error
    if left:
        why = next(iter(left.values()))
        raise Complaint(f"not set back, so set them yourself: {shown({name: old[name] for name in left})} ({why})")


def value_of(api: Api, name: str) -> str:
    return str(_object(api.get("settings", name))["value"])


def measure(api: Api, seconds: float, watch: Watch | None = None, what: str = "") -> Measurement:
    """Counters at the beginning and at the end; what has no counter, looked at in between."""
    began, first = time.monotonic(), _counters(api)
    unconfirmed: list[float] = []
    while True:
        passed = time.monotonic() - began
        if watch is not None:
            watch(what, min(passed, seconds), seconds)
        if passed >= seconds:
            break
        time.sleep(min(LOOK_S, seconds - passed))
        unconfirmed.append(_unconfirmed(api))
    last, passed = _counters(api), time.monotonic() - began
    rates = {name: max(0.0, last[name] - first[name]) / passed for name in ("publish", "confirm", "deliver_get")}
    waiting = sum(unconfirmed) / len(unconfirmed) if unconfirmed else 0.0
    return Measurement(
        seconds=passed,
        throughput=rates["publish"],
        confirmed=rates["confirm"],
        delivered=rates["deliver_get"],
        confirm_ms=1000 * waiting / rates["confirm"] if rates["confirm"] else 0.0,
        blocked=_blocked(first, last, passed),
        memory_bytes=int(last["memory"]),
        messages=int(last["messages"]),
    )


def _now_ms() -> int:
    return round(time.time() * 1000)


def shown(settings: Mapping[str, str]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in settings.items())


def _counters(api: Api) -> dict[str, float]:
    overview, flow = _object(api.get("overview")), _object(api.get("flow"))
    totals, stats = overview.get("queue_totals"), overview.get("message_stats")
    found = {name: _number(stats, name) for name in ("publish", "confirm", "deliver_get")}
    found["messages"] = _number(totals, "messages")
    nodes = api.get("nodes")
    found["memory"] = _number(nodes[0], "mem_used") if isinstance(nodes, list) and nodes else 0.0
    for stage in _rows(flow.get("stages")):
        if stage.get("kind") == "connection":
            found[f"blocked {stage['id']}"] = _number(stage, "blocked_s")
            found[f"sent {stage['id']}"] = _number(stage, "sent")
    return found


def _blocked(first: Mapping[str, float], last: Mapping[str, float], seconds: float) -> float:
    """Of the connections that published between the two, the mean part of the time that they were blocked."""
    shares = [
        (last[f"blocked {name}"] - first.get(f"blocked {name}", 0.0)) / seconds
        for name in (key.removeprefix("sent ") for key in last if key.startswith("sent "))
        if last[f"sent {name}"] > first.get(f"sent {name}", 0.0)
    ]
    return min(1.0, max(0.0, sum(shares) / len(shares))) if shares else 0.0


def _unconfirmed(api: Api) -> float:
    """Messages that wait for their confirm: those that channels have, and those that their connections have parked."""
    flow = _object(api.get("flow"))
    stages, links = _rows(flow.get("stages")), _rows(flow.get("links"))
    channels = [(one.get("connection"), _number(one, "unconfirmed")) for one in stages]
    publishing = {connection for connection, unconfirmed in channels if unconfirmed}
    sizes = [(_number(one, "in_flight"), _number(one, "in_flight_bytes")) for one in links]
    sizes.append((_number(flow.get("store"), "pending_messages"), _number(flow.get("store"), "pending_bytes")))
    messages = sum(count for count, _ in sizes)
    parked = sum(_number(one, "parked_bytes") for one in stages if one.get("id") in publishing)
    return sum(unconfirmed for _, unconfirmed in channels) + (
        parked * messages / sum(size for _, size in sizes) if messages else 0.0
    )


def _object(value: Json) -> Row:
    if not isinstance(value, dict):
        raise Complaint("the answer is not an object: is this a broker's HTTP API?")
    return value


def _rows(value: Json) -> list[Row]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _number(value: Json, name: str) -> float:
    found = value.get(name) if isinstance(value, dict) else None
    return float(found) if isinstance(found, (int, float)) else 0.0
