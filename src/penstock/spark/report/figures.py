"""Figures: numbers and moments as people read them; the same words as on the page (parts/format.js). Times are UTC."""

from __future__ import annotations

import math
from datetime import datetime
from decimal import ROUND_HALF_UP, Decimal
from typing import Final

from penstock.spark.report.frame import when

_BYTES: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
UNKNOWN: Final = "–"


def fixed(value: float, digits: int) -> Decimal:
    """So many digits; a half goes up, as on the page."""
    return Decimal(value).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP)


def count(value: float | None) -> str:
    return UNKNOWN if value is None else f"{fixed(value, 0):,}"


def short(value: float | None) -> str:
    """1.23 M, for axes."""
    if value is None:
        return UNKNOWN
    for size, unit in ((1e9, " G"), (1e6, " M"), (1e4, " k")):
        if abs(value) >= size:
            return f"{value / (1e3 if unit == ' k' else size):.3g}{unit}"
    return f"{fixed(value, 1)}" if abs(value) < 10 and value % 1 else f"{fixed(value, 0):,}"


def rate(value: float | None) -> str:
    if value is None:
        return UNKNOWN
    return f"{fixed(value, 1)}/s" if 0 < abs(value) < 10 else f"{short(value)}/s"


def size(value: float | None) -> str:
    if value is None:
        return UNKNOWN
    unit = 0
    while abs(value) >= 1024 and unit < len(_BYTES) - 1:
        value /= 1024
        unit += 1
    return f"{fixed(value, 1 if unit and abs(value) < 100 else 0)} {_BYTES[unit]}"


def ms(value: float | None) -> str:
    if value is None:
        return UNKNOWN
    return f"{short(value)} ms" if value < 1000 else f"{fixed(value / 1000, 1)} s"


def percent(share: float | None) -> str:
    return UNKNOWN if share is None else f"{math.floor(share * 100 + 0.5)} %"  # a half goes up, as on the page


def clock(at_ms: int | None, seconds: bool = False) -> str:
    """14:32, or 14:32:10."""
    return UNKNOWN if at_ms is None else f"{when(at_ms):%H:%M:%S}" if seconds else f"{when(at_ms):%H:%M}"


def moment(at_ms: int | None, near_ms: int, seconds: bool = False) -> str:
    """14:32 of the same day; else with the date."""
    if at_ms is None:
        return UNKNOWN
    then, near = when(at_ms), when(near_ms)
    return clock(at_ms, seconds) if then.date() == near.date() else f"{then:%Y-%m-%d} {clock(at_ms, seconds)}"


def span(since_ms: int, until_ms: int) -> str:
    """4 March 2026, 14:00 to 15:00 UTC."""
    begin, end = when(since_ms), when(until_ms)
    if begin.date() == end.date():
        return f"{_day(begin)}, {begin:%H:%M} to {end:%H:%M} UTC"
    return f"{_day(begin)}, {begin:%H:%M} to {_day(end)}, {end:%H:%M} UTC"


def _day(moment: datetime) -> str:
    return f"{moment.day} {moment:%B %Y}"
