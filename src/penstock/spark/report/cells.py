"""Cells: the tables of contents.py as the file shows them: their rows from the digest, and how each kind of cell looks.

Place: sections.py.  Not here: the same for the page (management/page/app/history/cells.js), words (figures.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from penstock.spark.report import figures
from penstock.spark.report.contents import LISTINGS, NUMBERS, Column
from penstock.spark.report.frame import Row
from penstock.spark.report.markup import Child, Safe, el, said, together
from penstock.spark.report.opening import foretold
from penstock.spark.report.shapes import badge, behind, table
from penstock.spark.report.svg import Axis
from penstock.spark.report.words import lasting

MEASURED: Final = {"before": "before", "after": "after", "again": "with the old values again"}
STEPPED: Final = ("syncs", "resources")  # of these the digest has a list for each column
MOST: Final = {"syncs": "count", "resources": "memory_used_bytes"}  # a step that has none of it has no row


def listing(digest: Row, name: str, axis: Axis, is_open: bool = False) -> Safe:
    """is_open: one that is folded is not, as it has something to say."""
    found = LISTINGS[name]
    heads = [f"#{column.title}" if column.kind in NUMBERS else column.title for column in found.columns]
    rows = [[cell(column, row, axis) for column in found.columns] for row in rows_of(digest, name, axis)]
    whole = table(found.caption, heads, rows, found.empty, unseen=not found.seen)
    return behind(whole, is_open) if found.folded else whole


def rows_of(digest: Row, name: str, axis: Axis) -> list[Row]:
    if name in STEPPED:
        return _steps(digest[name], MOST[name], axis)
    if name in ("settings", "measured"):
        return (_settings if name == "settings" else _measured)(digest["advice"] or {})
    found: list[Row] = digest[name]
    return found


def _steps(series: Row, most: str, axis: Axis) -> list[Row]:
    return [
        {"at_ms": axis.at_ms(i)} | {name: values[i] for name, values in series.items()}
        for i, known in enumerate(series[most])
        if known
    ]


def _settings(advice: Row) -> list[Row]:
    """As it is, then what would be better."""
    options = [one for one in listed(advice.get("options")) if isinstance(one, dict)]
    current = advice.get("current")
    first = [{**current, "change": "", "why": "as it is"}] if isinstance(current, dict) else []
    return [
        {**one, "why": " ".join(str(one[name]) for name in ("change", "why") if one.get(name))}
        for one in (*first, *options)
    ]


def _measured(advice: Row) -> list[Row]:
    measured = advice.get("measured")
    if not isinstance(measured, dict):
        return []
    return [
        # A time of 0: there were no confirms, or no deliveries.
        {**one, "when": words, "confirm_ms": one.get("confirm_ms") or None, "stay_ms": one.get("stay_ms") or None}
        for when, words in MEASURED.items()
        if isinstance(one := measured.get(when), dict)
    ]


def cell(column: Column, row: Row, axis: Axis) -> Child:
    value = row.get(column.field)
    if column.kind in NUMBERS:
        return _NUMBERS[column.kind](number(value))
    if column.kind in ("moment", "clock"):
        return figures.moment(value, axis.until_ms, seconds=column.kind == "moment")
    if column.kind == "foretold":
        return said(foretold(row, axis))
    return _WORDS[column.kind](value)


def settings(value: object) -> Safe:
    named = value.items() if isinstance(value, dict) else ()
    return together(*(together(el("code", {}, f"{name}={one}"), " ") for name, one in named))


def listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _seconds(value: float | None) -> str:
    return figures.UNKNOWN if value is None else lasting(value)


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _causes(value: Any) -> str:
    return ", ".join(f"{cause} {lasting(seconds)}" for cause, seconds in value.items())


_NUMBERS: Final[dict[str, Callable[[float | None], str]]] = {
    "count": figures.count,
    "percent": figures.percent,
    "rate": figures.rate,
    "seconds": _seconds,
    "ms": figures.ms,
    "bytes": figures.size,
}
_WORDS: Final[dict[str, Callable[[Any], Child]]] = {
    "text": _text,
    "stage": lambda value: _text(value) or "unknown",
    "cause": lambda value: badge(_text(value) or "unknown"),
    "causes": _causes,
    "code": lambda value: el("code", {}, _text(value)) if value else "",
    "sentence": lambda value: said(_text(value)),
    "settings": settings,
}
