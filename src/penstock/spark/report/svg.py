"""SVG: the report's charts. Strips of cells over time, lines with limits, trends. No script; hovering shows titles.

A chart is as wide as WIDTH and scales; its text says the same in short (aria-label), the table behind it in full.
Place: html.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from penstock.spark.report import figures
from penstock.spark.report.frame import Row
from penstock.spark.report.markup import Safe, el, together

WIDTH: Final = 960
LABELS: Final = 210  # room for names, left of strips
ROW: Final = 22
BAR: Final = 16
AXIS: Final = 24
LEFT: Final = 62  # room for numbers, left of lines
RIGHT: Final = 12
TOP: Final = 12
HEIGHT: Final = 190
FLOOR: Final = HEIGHT - AXIS
LETTERS_MAX: Final = 30
TICK: Final = 110  # between two moments on the axis, at least
GAP_MAX: Final = 6  # steps without a value that a line goes over, as on the page
LEVELS: Final = (0.0, 0.02, 0.2, 0.4, 0.6, 0.8)  # a share above the n-th is of level n + 1
TICK_STEPS_S: Final = (1, 5, 10, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400)

Values = Sequence[float | int | None]


@dataclass(frozen=True, slots=True)
class Axis:
    """Time from left to right: `steps` of it between `left` and the right rim of a chart that is `width` wide."""

    since_ms: int
    step_ms: int
    steps: int
    width: int = WIDTH
    left: int = LEFT
    known: float = 0.0  # the step with which the tables begin: before it nothing is known, which is not nothing

    @property
    def until_ms(self) -> int:
        return self.since_ms + self.step_ms * self.steps

    def x(self, step: float) -> float:
        return self.left + step / self.steps * (self.width - self.left - RIGHT)

    def at_ms(self, step: int) -> int:
        return self.since_ms + step * self.step_ms

    def ticks(self) -> list[int]:
        """Round moments, with room for their words between them."""
        least = (self.until_ms - self.since_ms) / max(1, (self.width - self.left) // TICK)
        every = next((s * 1000 for s in TICK_STEPS_S if s * 1000 >= least), 86_400_000 * (1 + int(least) // 86_400_000))
        first = -(-self.since_ms // every) * every
        return list(range(first, self.until_ms + 1, every))


@dataclass(frozen=True, slots=True)
class Strip:
    label: str
    cells: list[tuple[str, str]]  # of each step the class, empty for nothing, and what its title says


@dataclass(frozen=True, slots=True)
class Line:
    label: str
    values: Values
    kind: str  # its class: series-1 …, or limit


def level(share: float) -> str:
    """The class of a share: level-1 is little, level-5 most of the time."""
    reached = sum(share > least for least in LEVELS[1:])
    return f"level-{max(1, reached)}" if share > 0 else ""


def strips(title: str, axis: Axis, rows: Sequence[Strip]) -> Safe:
    """Rows of cells over time; cells beside each other that are alike are one."""
    axis = replace(axis, left=LABELS)
    height = len(rows) * ROW + AXIS
    body = [_strip(row, axis, i * ROW) for i, row in enumerate(rows)]
    marks = _time_ticks(axis, len(rows) * ROW, 0)
    return _chart(title, axis.width, height, [*marks, *body])


def _strip(row: Strip, axis: Axis, top: float) -> Safe:
    y = top + (ROW - BAR) / 2
    begin_x = round(axis.x(axis.known), 2)
    ground = el(
        "rect", {"class": "ground", "x": begin_x, "y": y, "width": WIDTH - begin_x - RIGHT, "height": BAR, "rx": 2}
    )
    label = el(
        "text",
        {"class": "name", "x": LABELS - 8, "y": y + 12, "text-anchor": "end"},
        _cut(row.label),
        el("title", {}, row.label),
    )
    bars = []
    begin = 0
    for i in range(1, len(row.cells) + 1):
        if i < len(row.cells) and row.cells[i] == row.cells[begin]:
            continue
        kind, words = row.cells[begin]
        if kind:
            x, right = axis.x(begin), axis.x(i)
            since, until = (figures.clock(axis.at_ms(step), True) for step in (begin, i))
            told = f"{row.label}, {since} to {until}: {words}"
            # Half a unit more, so that there is no gap between cells.
            size = {"x": round(x, 2), "y": y, "width": round(right - x + 0.4, 2), "height": BAR}
            bars.append(el("rect", {"class": kind, **size}, el("title", {}, told)))
        begin = i
    return el("g", {}, label, ground, *bars)


def lines(
    title: str, axis: Axis, shown: Sequence[Line], words: Callable[[float | None], str], binary: bool = False
) -> Safe:
    """Lines over time, from zero on; the first one that is no limit has its area filled. binary: they are bytes."""
    known = [value for line in shown for value in line.values if value is not None]
    top = nice(max(known, default=0), binary)
    y = _height(top)
    grid = _grid(axis, top, words)
    drawn = [
        el("path", {"class": f"line {line.kind}", "d": _path(line.values, axis, y)}, el("title", {}, line.label))
        for line in shown
    ]
    first = next((line for line in shown if line.kind != "limit"), None)
    area = [el("path", {"class": f"area {first.kind}", "d": _area(first.values, axis, y, FLOOR)})] if first else []
    return _chart(title, axis.width, HEIGHT, [*grid, *_time_ticks(axis, FLOOR, TOP), *area, *drawn])


def foretold(title: str, axis: Axis, one: Row, words: Callable[[float | None], str], binary: bool) -> Safe:
    """What was, the limit, and the straight line towards it; `axis` is that of what was."""
    ahead = -(-(one["drawn_until_ms"] - axis.until_ms) // axis.step_ms)
    long = replace(axis, steps=axis.steps + ahead)
    trend = one["trend"] or []
    values: list[float | int | None] = [*one["values"], *([None] * ahead)]
    known = [value for value in (*values, one["limit"], *(value for _, value in trend)) if value is not None]
    top = nice(max(known, default=0), binary)
    y = _height(top)
    now_x, limit_y = round(long.x(axis.steps), 1), round(y(one["limit"] or 0), 1)
    drawn = [
        el("path", {"class": "area series-1", "d": _area(values, long, y, FLOOR)}),
        el("line", {"class": "now", "x1": now_x, "x2": now_x, "y1": TOP, "y2": FLOOR}, el("title", {}, "the end")),
        el("path", {"class": "line limit", "d": f"M{long.left} {limit_y}H{long.width - RIGHT}"}),
        el("path", {"class": "line series-1", "d": _path(values, long, y)}),
    ]
    if trend:
        (x1, y1), (x2, y2) = ((long.x((at - long.since_ms) / long.step_ms), y(value)) for at, value in trend)
        drawn.append(el("path", {"class": "line trend", "d": f"M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}"}))
        if one["hits_at_ms"] is not None and trend[1][0] >= one["hits_at_ms"] - 1:
            drawn.append(el("circle", {"class": "hit", "cx": round(x2, 1), "cy": round(y2, 1), "r": 4}))
    marks = [*_grid(long, top, words), *_time_ticks(long, FLOOR, TOP)]
    return _chart(title, long.width, HEIGHT, [*marks, *drawn])


def _height(top: float) -> Callable[[float], float]:
    return lambda value: FLOOR - value / top * (FLOOR - TOP)


def _grid(axis: Axis, top: float, words: Callable[[float | None], str]) -> list[Safe]:
    y = _height(top)
    found = []
    for part in (0.0, 0.5, 1.0):
        at = y(top * part)
        found.append(el("line", {"class": "grid", "x1": axis.left, "x2": axis.width - RIGHT, "y1": at, "y2": at}))
        found.append(
            el("text", {"class": "tick", "x": axis.left - 7, "y": at + 4, "text-anchor": "end"}, words(top * part))
        )
    return found


def _runs(values: Values) -> list[list[tuple[int, float]]]:
    """What is known, cut where nothing is known for long."""
    found: list[list[tuple[int, float]]] = []
    last = -GAP_MAX - 1
    for i, value in enumerate(values):
        if value is None:
            continue
        if i - last > GAP_MAX:
            found.append([])
        found[-1].append((i, value))
        last = i
    return found


def _path(values: Values, axis: Axis, y: Callable[[float], float]) -> str:
    """A line for each run; one value alone is a dot."""
    return "".join(f"M{_points(run, axis, y)}{'h0' if len(run) == 1 else ''}" for run in _runs(values)) or "M0 0"


def _area(values: Values, axis: Axis, y: Callable[[float], float], floor: float) -> str:
    found = ""
    for run in _runs(values):
        begin, end = (axis.x(run[at][0] + 0.5) for at in (0, -1))
        found += f"M{begin:.1f} {floor}L{_points(run, axis, y)}L{end:.1f} {floor}Z"
    return found or "M0 0"


def _points(run: list[tuple[int, float]], axis: Axis, y: Callable[[float], float]) -> str:
    return "L".join(f"{axis.x(i + 0.5):.1f} {y(value):.1f}" for i, value in run)


def _time_ticks(axis: Axis, floor: float, top: float) -> list[Safe]:
    found = []
    long = axis.until_ms - axis.since_ms > 86_400_000
    ticks = axis.ticks()
    fine = any(at_ms % 60_000 for at_ms in ticks)  # else two of them would have the same words
    for at_ms in ticks:
        x = axis.x((at_ms - axis.since_ms) / axis.step_ms)
        anchor = "end" if x > axis.width - RIGHT - 20 else "middle"
        text = figures.moment(at_ms, axis.until_ms) if long else figures.clock(at_ms, fine)
        found.append(el("line", {"class": "grid", "x1": round(x, 1), "x2": round(x, 1), "y1": top, "y2": floor + 4}))
        found.append(el("text", {"class": "tick", "x": round(x, 1), "y": floor + 17, "text-anchor": anchor}, text))
    return found


def _chart(title: str, width: float, height: float, parts: Sequence[Safe]) -> Safe:
    frame = {"class": "chart", "viewBox": f"0 0 {width:g} {height:g}", "role": "img", "aria-label": title}
    return el("svg", {**frame, "xmlns": "http://www.w3.org/2000/svg"}, together(*parts))


def _cut(label: str) -> str:
    return label if len(label) <= LETTERS_MAX else label[: LETTERS_MAX - 1] + "…"


def nice(value: float, binary: bool = False) -> float:
    """The next round number, for the top of an axis."""
    if value <= 0:
        return 1.0
    base, steps = (
        (1024, (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)) if binary else (10, (1, 1.5, 2, 3, 4, 5, 6, 8, 10))
    )
    size = 1.0
    while size * base < value:
        size *= base
    while size > value:
        size /= base
    return next((size * step for step in steps if size * step >= value), value)
