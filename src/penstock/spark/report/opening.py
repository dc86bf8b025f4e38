"""Opening: what the report begins with: sentences, what to do about it, and the numbers that matter most.

Place: html.py; cells.py has the same forecasts in a table.  Not here: the words of the summary (words.py).
"""

from __future__ import annotations

from typing import Final

from penstock.spark.report import figures
from penstock.spark.report.frame import Row, when
from penstock.spark.report.markup import Safe, el, said, together
from penstock.spark.report.shapes import badge, cause_class
from penstock.spark.report.svg import Axis
from penstock.spark.report.trend import BYTES
from penstock.spark.report.words import capital, lasting, named

# A forecast beyond this, or of which the trend is no trend, is in the table, and not among the first sentences.
SOON_S: Final = 86_400.0
FIT_MIN: Final = 0.5
BRIEF_MS: Final = 120_000  # what is shorter is told with seconds


def summary(digest: Row, axis: Axis) -> Safe:
    first, *others = digest["summary"]
    cards = [_card(one, axis) for one in others]
    soon = [one for one in digest["forecasts"] if _is_soon(one)]
    told = [_hint("forecast", foretold(one, axis)) for one in soon]
    hint = [_hint("advice", digest["advised"], made(digest))] if digest["advised"] else []
    return el(
        "section",
        {"id": "summary", "aria-label": "Summary"},
        el("p", {"class": "first" if others else "first good"}, said(first["text"])),
        _tiles(digest),
        el("ol", {"class": "cards"}, *cards, *told, *hint) if cards or told or hint else None,
    )


def _is_soon(one: Row) -> bool:
    if one["in_s"] is None or one["in_s"] > SOON_S:
        return False
    return one["in_s"] == 0 or (one["r2"] or 0.0) >= FIT_MIN


def made(digest: Row) -> str:
    """When advice was made and of what. Always with the date: it may be of weeks ago."""
    at_ms, goal_and_load = digest["advised_ms"], digest["advised_for"]
    parts = [
        f"Made {when(at_ms):%Y-%m-%d %H:%M} UTC" if at_ms is not None else "Made at an unknown time",
        goal_and_load,
    ]
    return ", ".join(filter(None, parts)) + "." if at_ms is not None or goal_and_load else ""


def _hint(kind: str, text: str, fact: str = "") -> Safe:
    told = together(" ", el("span", {}, said(fact))) if fact else None
    label = el("p", {"class": "facts"}, el("span", {"class": "badge"}, kind), told)
    return el("li", {"class": f"card {kind}"}, el("p", {"class": "sentence"}, said(text)), label)


def _card(one: Row, axis: Axis) -> Safe:
    brief = one["ended_ms"] - one["began_ms"] < BRIEF_MS
    began, ended = (figures.moment(one[name], axis.until_ms, brief) for name in ("began_ms", "ended_ms"))
    span = f"from {began} {'until the end' if one['now'] else f'to {ended}'}"
    steps = [
        el("li", {"class": "is-bottleneck" if i == len(one["chain"]) - 1 else None}, label)
        for i, label in enumerate(one["chain"])
    ]
    help_ = together(el("b", {}, "What helps: "), said("; or ".join(one["help"])), ".") if one["help"] else None
    return el(
        "li",
        {"class": f"card {cause_class(one['cause'])}"},
        el("p", {"class": "sentence"}, said(one["text"])),
        el("ol", {"class": "chain", "aria-label": "Chain"}, *steps),
        el("p", {"class": "facts"}, badge(one["cause"]), " ", el("span", {}, span)),
        el("p", {"class": "help"}, help_) if help_ else None,
    )


def _tiles(digest: Row) -> Safe:
    longest = digest["longest"][0] if digest["longest"] else None
    worst = max((value for value in digest["syncs"]["p99_ms"] if value is not None), default=None)
    fullest = max(digest["depth"], key=lambda one: one["limit_share"] or 0.0, default=None)
    near = fullest is not None and fullest["limit_share"]
    failures = sum(one["failures"] for one in digest["quality"])
    held = len(digest["verdicts"]) + digest["left_out"]["verdicts"]
    tiles = [
        ("Held back", *_counted(held, "publisher")),
        ("Still blocked", *_counted(len(digest["open"]), "stage")),
        ("Longest block", lasting(longest["longest_s"]) if longest else "none", longest["stage"] if longest else ""),
        ("Slowest syncs", figures.ms(worst), "p99 of the worst window"),
        (
            "Nearest to its limit",
            figures.percent(fullest["limit_share"]) if fullest and near else "none",
            fullest["stage"] if fullest and near else "",
        ),
        ("Fail a check", *_counted(failures, "row")),
    ]
    return el(
        "dl",
        {"class": "tiles"},
        *(
            el("div", {}, el("dt", {}, name), el("dd", {}, value, el("small", {}, below)))
            for name, value, below in tiles
        ),
    )


def _counted(number: int, what: str) -> tuple[str, str]:
    return figures.count(number), what if number == 1 else f"{what}s"


def foretold(one: Row, axis: Axis) -> str:
    """Queue `orders` reaches its limit of … at 14:32, … at this trend."""
    subject = one["subject"]
    words = figures.size if one["unit"] == BYTES else figures.count
    rise = _signed(one["slope_per_s"], one["unit"])
    now = f"{words(one['value'])} now, {rise}"
    who = {"disk": "Free space on the disk", "memory": "Memory"}.get(subject, capital(named(subject)))
    limit = f"its limit of {words(one['limit'])}"
    if one["in_s"] == 0:
        place = "at" if one["value"] == one["limit"] else "below" if subject == "disk" else "above"
        return f"{who} is {place} {limit}: {now}."
    if one["hits_at_ms"] is None:
        return f"{who} does not reach {limit} at this trend: {now}."
    at = figures.moment(one["hits_at_ms"], axis.until_ms)
    return f"{who} reaches {limit} at {at}, in {lasting(one['in_s'])}, at this trend: {now}."


def _signed(slope: float | None, unit: str) -> str:
    if slope is None:
        return "trend unknown"
    sign = "+" if slope >= 0 else "−"
    size = abs(slope)
    return f"{sign}{figures.size(size)}/s" if unit == BYTES else f"{sign}{figures.rate(size)}"
