"""Words: the summary of a digest. What held whom back, for how long, and what helps, in sentences.

Moments are beside a sentence, as milliseconds: a file says them in UTC, the page in the reader's own time.
Names stand between backquotes, as the live verdicts have them; what helps is what those say too (flow/words.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.flow.state import CONSUMERS, State
from penstock.flow.verdict import RESOURCES, SATURATED, UNKNOWN
from penstock.flow.words import SETTING, Case, knobs, percent
from penstock.spark.report.figures import fixed
from penstock.spark.report.frame import Row, Steps
from penstock.spark.report.judged import Group
from penstock.spark.report.names import kind_of

WHO_TOLD: Final = 3
HELP_TOLD: Final = 2
MS_MAX: Final = 253_402_300_800_000  # the year 10000: what others wrote may be any number
_NOTHING: Final = State(0, 0.0, {}, (), {}, {})  # a report knows the tables, not the broker's present state


def summary(groups: list[Group], held: int, steps: Steps, until_ms: int) -> list[Row]:
    """The first sentence is about all; then one for each thing that held somebody back, the worst first."""
    stretch = lasting(steps.known_s)
    if not held:
        return [{"text": f"Nothing was held back within {stretch}.", "help": [], "cause": ""}]
    total = "one publisher was" if held == 1 else f"{held} publishers were"
    told: list[Row] = [{"text": f"Within {stretch}, {total} held back.", "help": [], "cause": ""}]
    for one in groups:
        share = min(1.0, one.held_s / steps.known_s)
        told.append(
            {
                "text": f"{_opening(one)}: {lasting(one.held_s)} in all, {percent(share)} of the time.",
                "help": helps(one.cause, one.chain),
                "cause": one.cause,
                "bottleneck": one.bottleneck,
                "chain": list(one.chain),
                "held_s": round(one.held_s, 3),
                "began_ms": one.began_ms,
                "ended_ms": one.ended_ms,
                "now": one.ended_ms >= until_ms,  # it goes on
            }
        )
    return told


def helps(cause: str, chain: tuple[str, ...]) -> list[str]:
    """The first knobs of the live verdict, as short sentences."""
    known = cause if cause in RESOURCES else UNKNOWN
    case = Case(_NOTHING, "", known, chain or ("",), (), 0.0, 0.0)
    found = knobs(case)[:HELP_TOLD]
    # What more helps there depends on the queue, of which a report knows too little to name a value.
    more = ["a larger prefetch of its consumers", "a higher stop mark or maximum"] if cause == SATURATED else []
    return [f"{knob.advice} (`{knob.setting}`)" if knob.kind == SETTING else knob.advice for knob in found] + more


def _opening(one: Group) -> str:
    who = _listed(one.who)
    verb = "was" if len(one.who) == 1 else "were"
    return _OPENINGS.get(one.cause, _unknown)(who, verb, one)


def _channel(who: str, verb: str, one: Group) -> str:
    return f"{who} {verb} held back by {named(one.bottleneck)}, which could not route faster"


def _queue(who: str, verb: str, one: Group) -> str:
    return f"{who} {verb} held back by {named(one.bottleneck)}, which could not take messages faster"


def _dead_letters(who: str, verb: str, one: Group) -> str:
    before = f" of {named(one.chain[-2])}" if len(one.chain) > 1 else ""
    return f"{who} {verb} held back by {named(one.bottleneck)}, which takes the dead letters{before}"


def _store(who: str, verb: str, one: Group) -> str:
    queues = [id_ for id_ in one.chain if kind_of(id_) in ("queue", "stream")]
    if not queues:
        return f"{who} {verb} held back by the store, which waited for the disk"
    return f"{who} {verb} held back by {named(queues[-1])}, which waited for the disk"


def _alarm(who: str, verb: str, one: Group) -> str:
    return f"{who} {verb} held back by the {one.cause} alarm, as was every publisher"


def _store_fault(who: str, verb: str, one: Group) -> str:
    return f"{who} {verb} held back by the store alarm, as was every publisher: the disk could not be written"


def _saturated(who: str, verb: str, one: Group) -> str:
    queue = named(one.bottleneck.removeprefix(CONSUMERS))
    return f"{who} waited for the consumers of {queue}, which was above its mark or at its maximum"


def _unknown(who: str, verb: str, one: Group) -> str:
    return f"{who} {verb} held back by stages that waited for each other, or for one that was gone by then"


_OPENINGS: Final[dict[str, Callable[[str, str, Group], str]]] = {
    "channel": _channel,
    "queue": _queue,
    "dead letters": _dead_letters,
    "store": _store,
    "memory": _alarm,
    "disk": _alarm,
    "store fault": _store_fault,
    "saturated": _saturated,
}


def advised(advice: Row) -> str:
    """What the advisor says, for the beginning; of what it has tried in vain, that. Empty: nothing."""
    applied = advice.get("applied")
    if not (isinstance(applied, dict) and applied.get("rolled_back")):
        return str(advice.get("sentence") or "")
    settings = applied.get("settings")
    pairs = settings.items() if isinstance(settings, dict) else ()
    tried = " ".join(f"`{name}={value}`" for name, value in pairs) or "other settings"
    why = f" ({applied['worse']})" if applied.get("worse") else ""
    return f"Tried: {tried}. That was worse{why}, so the old values are set again."


def advised_for(advice: Row) -> str:
    """For which goal and of which load: `for throughput, of: 1 publisher`. Empty: it does not say."""
    goal = "a balance" if advice.get("goal") == "balanced" else advice.get("goal")
    parts = [f"for {goal}"] if goal else []
    if advice.get("scenario"):
        only = f" `{str(advice['for']).replace('`', chr(39))}` only" if advice.get("for") else ""
        parts.append(f"of{only}: {advice['scenario']}")
    return ", ".join(parts)


def advised_ms(advice: Row) -> int | None:
    """When it was made: it may be weeks ago. None: it does not say."""
    at_ms = advice.get("made_ms")
    return at_ms if isinstance(at_ms, int) and 0 < at_ms < MS_MAX else None


def named(label: str) -> str:
    """`queue orders` as queue `orders`; a name cannot end its own quotes."""
    kind = kind_of(label)
    clean = label.replace("`", "'")
    if kind in ("queue", "stream"):
        return f"{kind} `{clean.partition(' ')[2]}`"
    return "the store" if kind == "store" else f"`{clean}`"


def capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _listed(names: tuple[str, ...]) -> str:
    shown = [f"`{name.replace('`', chr(39))}`" for name in names[:WHO_TOLD]]
    more = len(names) - len(shown)
    if more > 0:
        return f"{', '.join(shown)} and {more} more"
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def lasting(seconds: float) -> str:
    """41 ms, 1.4 s, 41 s, 3 min 20 s, 5 h 2 min, 3 d 4 h: as the page has it (parts/format.js:duration)."""
    if 0 < seconds < 1:
        return f"{max(1, int(fixed(seconds * 1000, 0)))} ms"
    if seconds < 10:
        return f"{fixed(max(0.0, seconds), 1)} s"
    whole = int(fixed(seconds, 0))
    for size, unit, smaller_size, smaller in ((86_400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            rest = whole % size // smaller_size
            return f"{whole // size} {unit}" + (f" {rest} {smaller}" if rest else "")
    return f"{whole} s"
