"""Words: a verdict as one sentence for people, and the knobs that help, with their present value and an advice.

The sentence says what holds whom back, how much of the last minute and since when, what is known of the resource, and
what helps. It has no number that changes from one look to the next more than the thing itself does.
A knob is a setting of the broker that can be turned while it runs, a key of a policy for one queue, or something that
only the client's or the machine's owner can change.
Not here: which case it is (verdict.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from penstock.flow.state import ALARM, CONSUMERS, QUEUE, STORE, STREAM, StageState, State, kind_of

SETTING: Final = "setting"
POLICY: Final = "policy"
CLIENT: Final = "client"
MACHINE: Final = "machine"

SLOWED: Final = {
    "channel": "faults.channel_delay_us",
    "queue": "faults.queue_delay_us",
    "dead letters": "faults.queue_delay_us",
}

STOP_COUNT: Final = "flow-stop-count"
STOP_BYTES: Final = "flow-stop-bytes"


@dataclass(frozen=True, slots=True)
class Knob:
    setting: str
    value: str
    advice: str
    kind: str = SETTING
    policy: Mapping[str, str] | None = None  # vhost, queue and key

    def json(self) -> dict[str, object]:
        json: dict[str, object] = {
            "setting": self.setting,
            "value": self.value,
            "advice": self.advice,
            "kind": self.kind,
        }
        if self.policy is not None:
            json["policy"] = dict(self.policy)
        return json


@dataclass(frozen=True, slots=True)
class Case:
    state: State
    name: str  # of the connection, for people
    cause: str
    chain: tuple[str, ...]
    also: tuple[str, ...]
    share_1m: float
    since_s: float
    confirms: bool = False  # it waits for confirms, not for credit
    sync_ms: float = 0.0  # what a sync takes

    @property
    def end(self) -> str:
        return self.chain[-1]

    def setting(self, name: str) -> str:
        return self.state.settings.get(name, "")

    def fault(self, name: str) -> str:
        """The value of a fault that is on, else empty."""
        value = self.setting(name)
        return value if value not in ("", "0") else ""

    def queue(self) -> StageState | None:
        """The last queue of the chain."""
        for id_ in reversed(self.chain):
            stage = self.state.stages.get(id_)
            if stage is not None and stage.kind in (QUEUE, STREAM):
                return stage
        return None


def sentence(case: Case) -> str:
    parts = [f"{_held_back(case)}: {percent(case.share_1m)} of the last minute, for {lasting(case.since_s)} now"]
    parts += _facts(case)
    if case.also:
        parts.append(_listed([_named(case.state, id_) for id_ in case.also]) + " holds it back too")
    parts.append(_help(case))
    return "; ".join(part for part in parts if part) + "."


# What holds it back.


def _held_back(case: Case) -> str:
    return _OPENINGS[case.cause](case)


def _by_channel(case: Case) -> str:
    return f"{case.name} is held back by its {_named(case.state, case.end)}, which cannot route faster"


def _by_queue(case: Case) -> str:
    return f"{case.name} is held back by {_named(case.state, case.end)}, which cannot take messages faster"


def _by_dead_letters(case: Case) -> str:
    first = _named(case.state, case.chain[-2])
    return f"{case.name} is held back by {_named(case.state, case.end)}, which takes the dead letters of {first}"


def _by_store(case: Case) -> str:
    queues = [id_ for id_ in case.chain if _is_queue(case.state, id_)]
    if not queues:
        return f"{case.name} is held back by the store, which waits for the disk"
    if len(queues) == 1:
        return f"{case.name} is held back by {_named(case.state, queues[0])}, which waits for the disk"
    first, last = _named(case.state, queues[0]), _named(case.state, queues[-1])
    return f"{case.name} is held back by {first}, whose dead letters go to {last}, which waits for the disk"


def _by_alarm(case: Case) -> str:
    return f"{case.name} is held back by the {case.end[len(ALARM) :]} alarm, as is every publisher"


def _by_store_fault(case: Case) -> str:
    return f"{case.name} is held back by the store alarm, as is every publisher: the disk cannot be written"


def _by_consumers(case: Case) -> str:
    queue = _named(case.state, case.end[len(CONSUMERS) :])
    if case.confirms:
        return f"{case.name} waits for its confirms, which {queue} holds until consumers have taken more"
    return f"{case.name} is held back by {queue}, which is at its maximum until consumers have taken more"


def _by_unknown(case: Case) -> str:
    return f"{case.name} is held back by stages that wait for each other, or for one that is gone by now"


# What is known of the resource.


def _facts(case: Case) -> list[str]:
    state, queue = case.state, case.queue()
    if case.cause == STORE:
        return [f"a sync takes {milliseconds(case.sync_ms)}"] if case.sync_ms else []
    if case.cause in SLOWED:
        on_purpose = case.fault(SLOWED[case.cause])
        return ["it is slowed down on purpose" if on_purpose else "the CPU is the limit"]
    if case.end.startswith(ALARM):
        reason = state.alarms.get(case.end[len(ALARM) :], "")
        return [reason] if reason else []
    if case.end.startswith(CONSUMERS) and queue is not None:
        # It may have been emptied since it was full: what it has not is no reason for anything.
        counts = [_count(queue.messages, "message")] if queue.messages else []
        counts += [] if queue.consumers is None else [_count(queue.consumers, "consumer")]
        return [f"it has {' and '.join(counts)}"] if counts else []
    return []


# What helps.


def _help(case: Case) -> str:
    for knob in knobs(case)[:1]:
        named = f" ({knob.setting}{f', now {knob.value}' if knob.value else ''})" if knob.kind == SETTING else ""
        return f"what helps: {knob.advice}{named}"
    return ""


def knobs(case: Case) -> tuple[Knob, ...]:
    return tuple(_KNOBS[case.cause](case))


def _setting(case: Case, name: str, advice: str) -> Knob:
    return Knob(name, case.setting(name), advice)


def _off(case: Case, name: str) -> list[Knob]:
    """A fault that slows the stage down on purpose is the first thing to look at."""
    value = case.fault(name)
    return [Knob(name, value, "set it to 0 to end the rehearsal")] if value else []


def _channel_knobs(case: Case) -> list[Knob]:
    return [
        *_off(case, "faults.channel_delay_us"),
        Knob("routing", "", "fewer bindings, or a direct exchange instead of topic or headers", CLIENT),
        _setting(case, "credit.reader_channel", "more credit makes larger batches, which cost less per message"),
        Knob("CPU", "", "a faster CPU core", MACHINE),
    ]


def _queue_knobs(case: Case) -> list[Knob]:
    return [
        *_off(case, "faults.queue_delay_us"),
        _setting(case, "credit.channel_queue", "more credit makes larger batches, which cost less per message"),
        Knob("queue", "", "no priorities, expiry or maximum where they are not needed", CLIENT),
        Knob("prefetch", "", "a larger prefetch of its consumers, so that deliveries go out in larger batches", CLIENT),
        Knob("CPU", "", "a faster CPU core", MACHINE),
    ]


def _dead_letter_knobs(case: Case) -> list[Knob]:
    return [
        *_off(case, "faults.queue_delay_us"),
        Knob(
            "consumers", "", "reject and expire fewer messages, or take them from the dead-letter queue faster", CLIENT
        ),
        _setting(case, "credit.channel_queue", "more credit lets more dead letters be on their way"),
    ]


def _store_knobs(case: Case) -> list[Knob]:
    return [
        *_off(case, "faults.store_sync_delay_ms"),
        Knob("disk", "", "a disk that syncs faster", MACHINE),
        _setting(case, "credit.queue_store", "more credit lets more messages share a sync"),
        _setting(case, "credit.queue_store_bytes", "the same for large messages"),
        Knob("delivery_mode", "2", "publish as transient what need not survive a restart", CLIENT),
    ]


def _memory_knobs(case: Case) -> list[Knob]:
    name = "alarms.memory_bytes_high"
    if not case.fault(name):
        name = "alarms.memory_relative_high"
    return [
        _setting(case, name, "a higher watermark, if the machine has the memory"),
        Knob("consumers", "", "consume what waits in the queues, or bound them with max-length", CLIENT),
        Knob("memory", "", "more memory", MACHINE),
    ]


def _disk_knobs(case: Case) -> list[Knob]:
    return [
        Knob("disk", "", "free space on the disk of the data directory", MACHINE),
        _setting(case, "alarms.disk_free_bytes_low", "a lower limit, if less is enough"),
        Knob("consumers", "", "consume what waits in durable queues", CLIENT),
    ]


def _store_fault_knobs(case: Case) -> list[Knob]:
    return [
        Knob("disk", "", "repair or free the disk of the data directory; the broker tries again by itself", MACHINE)
    ]


def _consumer_knobs(case: Case) -> list[Knob]:
    queue = case.queue()
    found = [Knob("consumers", "", "more consumers, or faster ones", CLIENT)]
    if queue is not None:
        if queue.consumers is not None:
            found = [Knob("consumers", str(queue.consumers), "more consumers, or faster ones", CLIENT)]
        found.append(Knob("prefetch", "", "a larger prefetch of its consumers", CLIENT))
        if case.confirms:
            key, mark = (STOP_COUNT, "stop_count") if queue.watermark.get("stop_count") else (STOP_BYTES, "stop_bytes")
            value = queue.watermark.get(mark)
            if not value:
                key = STOP_COUNT
            advice = "a higher stop mark, if a longer backlog is welcome"
        else:
            key, value = "max-length", queue.watermark.get("max_length")
            advice = "a larger maximum, if a longer backlog is welcome"
        policy = {"vhost": queue.vhost, "queue": queue.name, "key": key}
        found.append(Knob(key, str(value or ""), advice, POLICY, policy))
    return found


def _no_knobs(case: Case) -> list[Knob]:
    return []


_OPENINGS: Final[Mapping[str, Callable[[Case], str]]] = {
    "channel": _by_channel,
    "queue": _by_queue,
    "dead letters": _by_dead_letters,
    "store": _by_store,
    "memory": _by_alarm,
    "disk": _by_alarm,
    "store fault": _by_store_fault,
    "saturated": _by_consumers,
    "unknown": _by_unknown,
}
_KNOBS: Final[Mapping[str, Callable[[Case], list[Knob]]]] = {
    "channel": _channel_knobs,
    "queue": _queue_knobs,
    "dead letters": _dead_letter_knobs,
    "store": _store_knobs,
    "memory": _memory_knobs,
    "disk": _disk_knobs,
    "store fault": _store_fault_knobs,
    "saturated": _consumer_knobs,
    "unknown": _no_knobs,
}


# Names and numbers.


def _named(state: State, id_: str) -> str:
    if id_.startswith(ALARM):
        return f"the {id_[len(ALARM) :]} alarm"
    if id_.startswith(CONSUMERS):
        return _named(state, id_[len(CONSUMERS) :])
    stage = state.stages.get(id_)
    kind = stage.kind if stage is not None else kind_of(id_)
    if kind == STORE:
        return "the store"
    if stage is None:
        return f"{kind} `{id_.partition(' ')[2]}`, which is gone by now"
    if kind == "channel" and stage.number:
        return f"channel {stage.number}"
    return f"{kind} `{stage.name}`"


def _is_queue(state: State, id_: str) -> bool:
    stage = state.stages.get(id_)
    return (stage.kind if stage is not None else kind_of(id_)) in (QUEUE, STREAM)


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"each of {', '.join(names[:-1])} and {names[-1]}"


def _count(number: int, what: str) -> str:
    return f"no {what}" if number == 0 else f"{number} {what}{'' if number == 1 else 's'}"


def percent(share: float) -> str:
    if share < 0.01:
        return "less than 1 %"
    return f"{round(100 * share)} %"


def lasting(seconds: float) -> str:
    if seconds < 1:
        return "less than 1 s"
    for unit, size in (("s", 1), ("min", 60), ("h", 3600)):
        if seconds < 120 * size or unit == "h":
            return f"{int(seconds / size)} {unit}"
    raise AssertionError("hours have no end")


def milliseconds(value: float) -> str:
    return f"{value:.1f} ms" if value < 10 else f"{value:.0f} ms"
