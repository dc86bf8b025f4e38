"""Words: why a setting would help, in a sentence; what no setting helps against; what is the same either way.

Pure: observed and predicted values to text. Names of stages become what people call them.
Upstream: adviser.py.  Downstream: the terminal, the report, the page. Not here: which settings are shown (rank.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock.flow.twin import Outcome, Settings
from penstock.spark.advice.grid import SECTION, changed, numbers
from penstock.spark.advice.load import MESSAGE_US, Model
from penstock.spark.advice.observed import Held, Observed, Seen
from penstock.spark.advice.rank import LATENCY_GRAIN_MS, MEMORY_GRAIN, Candidate

NOTICED: Final = 0.05  # what changes less is the same
HELD_BACK: Final = 0.05
SLOW_SYNC_US: Final = 5_000.0
GROWS: Final = 0.02  # of what comes in
BUSY: Final = 0.95
NAMED_MAX: Final = 10  # queues of one kind that have a line each; of more the worst, as nobody reads 800

BETTER: Final = {
    "throughput": "more throughput",
    "latency": "a lower p99",
    "memory": "less memory",
    "balanced": "a better balance",
}
FACTORS: Final = {2.0: "twice", 0.5: "half", 0.25: "a quarter of", 1.0: "the same"}
SMALL_PREFETCH: Final = 50
SMALL_PART: Final = 0.2  # below it, `0.002 times the credit` says less than the numbers
PLURAL: Final = {"lets": "let", "makes": "make", "has": "have"}
CREDITS: Final = {
    "reader_channel": "the credit from reader to channel",
    "channel_queue": "the credit from channel to queue",
    "queue_store": "the store credit",
}


def why(then: Candidate, now: Candidate, observed: Observed) -> str:
    """One sentence: what holds the load back, what is changed, what that does."""
    parts = [bottleneck(observed), f"{_changes(then, now)}: {effect(then.outcome, now.outcome)}"]
    return _sentence("; ".join(part for part in parts if part))


def bottleneck(observed: Observed) -> str:
    """The worst of what held publishers back; empty if nothing did."""
    return _held(observed.held[0]) if observed.held and observed.held[0].share >= HELD_BACK else ""


def effect(then: Outcome, now: Outcome) -> str:
    """What the prediction says against the current setting's."""
    return ", ".join([_throughput(then, now), _latency(then, now), _memory(then, now)])


def change(goal: str, then: Outcome, now: Outcome) -> str:
    """The goal's own number in one word: `+60 %`."""
    pairs = {
        "latency": (then.p99_ms, now.p99_ms),
        "memory": (float(then.memory_bytes), float(now.memory_bytes)),
    }
    new, old = pairs.get(goal, (then.throughput, now.throughput))
    return f"{100 * (new / old - 1):+.0f} %" if old else ""


def nothing(goal: str, error: float, tried: int) -> str:
    return (
        f"Nothing to change: of {tried:,} settings none promises {BETTER[goal]} by more than {100 * error:.0f} %, "
        "which is how far the twin may be wrong."
    )


def astray(error: float) -> str:
    return (
        f"No advice: the twin misses the measured throughput by {100 * error:.0f} %, so what it says of other settings "
        "is worth nothing. Try a stretch in which the load was steady (--since)."
    )


def cures(observed: Observed, outcome: Outcome | None, settings: Mapping[str, str]) -> list[str]:
    """What credit cannot cure, and what would. `outcome`: the best that settings can do."""
    found: list[str] = []
    for name, value in sorted(settings.items()):
        if name.startswith("faults.") and value not in ("", "0", "0.0"):
            found.append(f"{name} is {value}: a stage is slowed down on purpose; end that first.")
    by_held = [_cure(held, observed) for held in observed.held if held.share >= HELD_BACK]
    found += _worst(
        list(dict.fromkeys(filter(None, by_held))), "more holds publishers back", "more hold publishers back"
    )
    growing = [one for one in observed.queues if one.growth > GROWS * max(1.0, one.received)]
    by_growth = [_growth(one) for one in sorted(growing, key=lambda one: -one.growth)]
    found += _worst(list(filter(None, by_growth)), "more queue grows", "more queues grow")
    if observed.blocked < HELD_BACK and not any(held.share >= HELD_BACK for held in observed.held):
        found.append("The broker holds nobody back: publishers send no more, or wait for confirms.")
    elif outcome is not None and outcome.cpu >= BUSY and outcome.bottleneck in ("channel", "queue"):
        found.append("The broker's core is busy all the time: beyond this, only a faster core or fewer messages help.")
    return list(dict.fromkeys(found))


def _worst(lines: list[str], one: str, several: str) -> list[str]:
    """The first of them, and how many there are beyond."""
    more = len(lines) - NAMED_MAX
    return lines if more <= 0 else [*lines[:NAMED_MAX], f"And {more:,} {one if more == 1 else several}."]


def _growth(queue: Seen) -> str:
    """Of a queue that grows; empty: it has consumers, and they take nothing."""
    if not queue.consumers:
        return f"Nobody consumes {queue.stage}, which grows by {_rate(queue.growth)}."
    if not queue.sent:
        return ""
    more = max(1, round(queue.consumers * queue.growth / queue.sent))
    return (
        f"{_sentence(queue.stage)[:-1]} grows by {_rate(queue.growth)}, with "
        f"{_count(queue.consumers, 'consumer')} for {_rate(queue.sent)}. No credit cures that: "
        f"{_count(more, 'consumer')} more at this pace would, or faster ones."
    )


def small_prefetch(model: Model) -> list[str]:
    """Consumers that always had something to take, and few messages at a time: whether they are slow themselves or wait
    for the broker between acks and deliveries, nobody can tell from here."""
    consumers = model.load.consumers
    if not consumers.acks or not 0 < consumers.prefetch < SMALL_PREFETCH or consumers.message_us <= MESSAGE_US:
        return []
    return [
        f"Consumers always had something to take, with a prefetch of {consumers.prefetch}: they are taken to be slow "
        "themselves. If they are quick, they wait for the broker instead, and a prefetch of 100 to 300 ends that."
    ]


def named(settings: Settings, current: Settings) -> dict[str, str]:
    """What differs, by the names that people set it with."""
    names = {"prefetch": "prefetch", "stop": "flow-stop-count", "resume": "flow-resume-count"}
    return {names.get(name, SECTION + name): str(getattr(settings, name)) for name in changed(settings, current)}


def bytes_in_words(count: float) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if abs(count) >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.0f} bytes"


def _held(held: Held) -> str:
    share = f"{100 * held.share:.0f} % of the time"
    if held.cause == "store":
        waits = held.through if held.through.startswith(("queue", "stream")) else "the store"
        return f"{waits} waits for the disk {share}"
    if held.cause == "channel":
        return f"the channel is the bottleneck (CPU, {share})"
    if held.cause in ("queue", "dead letters"):
        return f"{held.bottleneck or 'the queue'} is the bottleneck (CPU, {share})"
    if held.cause == "saturated":
        return f"{held.bottleneck.removeprefix('consumers of ') or 'a queue'} waits for its consumers {share}"
    if held.cause in ("memory", "disk", "store fault"):
        return f"the {held.cause.removesuffix(' fault')} alarm is on {share}"
    return ""


def _cure(held: Held, observed: Observed) -> str:
    share = f"{100 * held.share:.0f} % of the time"
    if held.cause == "memory":
        return (
            f"The memory alarm held publishers back {share}: no credit cures that, but consuming, max-length, "
            "more memory, or a higher alarms.memory_bytes_high."
        )
    if held.cause == "disk":
        return f"The disk alarm held publishers back {share}: free space, or lower alarms.disk_free_bytes_low."
    if held.cause == "store fault":
        return f"The journal could not be written {share}: repair the disk; the broker tries again by itself."
    if held.cause == "saturated":
        queue = held.bottleneck.removeprefix("consumers of ") or "a queue"
        return f"{_sentence(queue)[:-1]} held confirms back {share}: more or faster consumers, or higher marks."
    if held.cause == "store" and observed.sync_mean_us >= SLOW_SYNC_US:
        return f"A sync takes {observed.sync_mean_us / 1000:.0f} ms: a disk that syncs faster helps most."
    return ""


def _changes(then: Candidate, now: Candidate) -> str:
    said: list[str] = []
    names = changed(then.settings, now.settings)
    for name in names:
        new, old = getattr(then.settings, name), getattr(now.settings, name)
        if name.removesuffix("_bytes") in CREDITS:
            said.append(_credit(name, new, old))
        elif name == "prefetch":
            said.append(f"a prefetch of {new:,}")
        elif name == "stop":
            said.append(f"a stop mark of {new:,}")
        elif name == "resume" and "stop" not in names:
            said.append(f"a resume mark of {new:,} instead of {old:,}")
    text = " and ".join(said)
    reason = _reason(names, then.outcome, now.outcome)
    if reason and len(said) > 1:
        verb, rest = reason.split(" ", 1)
        reason = f"{PLURAL[verb]} {rest}"
    return f"{text} {reason}" if reason else text


def _credit(name: str, new: str, old: str) -> str:
    what = CREDITS[name.removesuffix("_bytes")] + (" in bytes" if name.endswith("_bytes") else "")
    first, before = numbers(new)[0], numbers(old)[0]
    if first == before:
        sooner = "sooner" if numbers(new)[1] < numbers(old)[1] else "in larger batches"
        return f"{what}, granted {sooner}"
    if not before or not first or first < before * SMALL_PART:
        return f"{what} at {new} instead of {old}"
    return f"{_times(first / before)} {what}"


def _reason(names: list[str], then: Outcome, now: Outcome) -> str:
    """How it works, as far as the twin can tell: messages that share a sync, or CPU for each message."""
    if then.syncs and now.syncs and "prefetch" not in names:
        carried, before = then.throughput / then.syncs, now.throughput / now.syncs
        if carried > before * (1 + NOTICED):
            return f"lets one sync carry {carried:,.0f} messages instead of {before:,.0f}"
    cost, before = _cpu_us(then), _cpu_us(now)
    if cost < before * (1 - NOTICED):
        return (
            f"makes batches larger: a message takes {_short(cost)} us of the broker's core instead of {_short(before)}"
        )
    blocked, before = max(then.blocked.values(), default=0.0), max(now.blocked.values(), default=0.0)
    if blocked < before - NOTICED:
        return f"has stages blocked {100 * blocked:.0f} % instead of {100 * before:.0f} % of the time"
    return ""


def _cpu_us(outcome: Outcome) -> float:
    return 1e6 * outcome.cpu / outcome.throughput if outcome.throughput else 0.0


def _throughput(then: Outcome, now: Outcome) -> str:
    ratio = then.throughput / now.throughput if now.throughput else 1.0
    if abs(ratio - 1) < NOTICED:
        return "the same throughput"
    if ratio >= 1.2:
        return f"{_times(ratio)} the throughput"
    return f"{100 * abs(ratio - 1):.0f} % {'more' if ratio > 1 else 'less'} throughput"


def _latency(then: Outcome, now: Outcome) -> str:
    if abs(then.p99_ms - now.p99_ms) < max(NOTICED * now.p99_ms, LATENCY_GRAIN_MS / 10):
        return f"p99 as now, {_ms(now.p99_ms)}"
    return f"p99 from {_ms(now.p99_ms).removesuffix(' ms')} to {_ms(then.p99_ms)}"


def _memory(then: Outcome, now: Outcome) -> str:
    more = then.memory_bytes - now.memory_bytes
    if abs(more) < MEMORY_GRAIN:
        return "no more messages held"
    return f"{bytes_in_words(abs(more))} {'more' if more > 0 else 'less'} of messages held"


def _times(ratio: float) -> str:
    for value, word in FACTORS.items():
        if abs(ratio / value - 1) < 0.02:
            return word
    return f"{ratio:,.0f} times" if ratio >= 10 else f"{ratio:.2g} times"


def _ms(value: float) -> str:
    return f"{value:.0f} ms" if value >= 10 else f"{value:.2g} ms"


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def _rate(value: float) -> str:
    return f"{value:,.0f} messages a second" if value >= 1 else f"{value:.2g} messages a second"


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."
