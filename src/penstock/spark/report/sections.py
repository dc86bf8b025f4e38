"""Sections: the parts of the report below its opening, as contents.py lists them. A chart has a table behind it.

Place: html.py puts them together.  Not here: drawing (svg.py), tables and their cells (cells.py, shapes.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from penstock.spark.report import figures, svg
from penstock.spark.report.cells import listed, listing, settings
from penstock.spark.report.contents import PARTS, Chart, Part
from penstock.spark.report.digest import UNREADABLE
from penstock.spark.report.frame import Row
from penstock.spark.report.markup import Child, Safe, el, said, together
from penstock.spark.report.opening import foretold, made
from penstock.spark.report.shapes import cause_class, chart_frame, figure, section
from penstock.spark.report.svg import Axis, Line, Strip
from penstock.spark.report.trend import BYTES
from penstock.spark.report.words import lasting

HALF: Final = 500  # wide: charts of which two are beside each other
HALF_LEFT: Final = 80  # room for their numbers: on a phone the letters are larger
HEAT_LEVELS: Final = 5
AXES: Final[dict[str, Callable[[float | None], str]]] = {
    "count": figures.short,
    "ms": figures.ms,
    "bytes": figures.size,
}


def sections(digest: Row, axis: Axis) -> list[Safe]:
    return [section(part.id, part.title, *_CONTENT[part.id](digest, axis, part), about=part.about) for part in PARTS]


def _verdicts(digest: Row, axis: Axis, part: Part) -> list[Child]:
    found = digest["verdicts"]
    if not found:
        return [listing(digest, "verdicts", axis)]
    rows = [
        Strip(
            one["name"],
            [
                (f"{cause_class(cause)} {svg.level(share)}", f"{cause}, held back about {_tenth(share)}")
                if share > 0
                else ("", "")
                for share, cause in zip(one["share"], one["causes"])
            ],
        )
        for one in found
    ]
    causes = sorted({cause for one in found for cause in one["by_cause_s"]})
    legend = el(
        "ul", {"class": "legend"}, *(el("li", {}, el("i", {"class": cause_class(cause)}), cause) for cause in causes)
    )
    title = "Who was held back when, and by what: " + "; ".join(
        f"{one['name']} {lasting(one['held_s'])}" for one in found
    )
    chart = chart_frame(svg.strips(title, axis, rows))
    return [legend, chart, listing(digest, "verdicts", axis), _more(digest, "verdicts")]


def _timeline(digest: Row, axis: Axis, part: Part) -> list[Child]:
    found = digest["stages"]
    if not found:
        return [el("p", {}, part.nothing)]
    rows = [
        Strip(
            one["label"],
            [(svg.level(share), f"blocked about {_tenth(share)}") if share > 0 else ("", "") for share in one["share"]],
        )
        for one in found
    ]
    worst = max(found, key=lambda one: one["blocked_s"])
    title = f"Blocks over time of {len(found)} stages; most of all {worst['label']}, {lasting(worst['blocked_s'])}"
    return [chart_frame(svg.strips(title, axis, rows)), _more(digest, "stages"), listing(digest, "stages", axis)]


def _tenth(share: float) -> str:
    """Rough, so that cells beside each other are one."""
    return f"{max(1, round(share * 10)) * 10} % of the time"


def _more(digest: Row, name: str) -> Safe | None:
    more = digest["left_out"].get(name, 0)
    return el("p", {"class": "muted"}, f"{more} more are in the tables.") if more else None


def _heat(digest: Row, axis: Axis, part: Part) -> list[Child]:
    """A table is a heat map that can be read out."""
    found = digest["heat"]
    if not found["cells"]:
        return [el("p", {}, part.nothing)]
    most = max(cell[2] for cell in found["cells"]) or 1.0
    cells = {(up, down): (seconds, blocks) for up, down, seconds, blocks in found["cells"]}
    head = [el("th", {"scope": "col"}, el("span", {}, label)) for label in found["downstream"]]
    lines = [
        el(
            "tr",
            {},
            el("th", {"scope": "row"}, label),
            *(_heat_cell(cells.get((i, j)), most, label, other) for j, other in enumerate(found["downstream"])),
        )
        for i, label in enumerate(found["upstream"])
    ]
    grid = el(
        "table",
        {"class": "heat"},
        el("caption", {"class": "unseen"}, part.about),
        el("thead", {}, el("tr", {}, el("th", {"scope": "col"}, "waited for →"), *head)),
        el("tbody", {}, *lines),
    )
    return [el("div", {"class": "scroll", "tabindex": "0", "role": "region", "aria-label": part.about}, grid)]


def _heat_cell(cell: tuple[float, int] | None, most: float, up: str, down: str) -> Safe:
    if cell is None:
        return el("td", {"class": "none"}, "·")
    seconds, blocks = cell
    level = max(1, round(seconds / most * HEAT_LEVELS))
    title = f"{up} waited for {down}: {lasting(seconds)}, {figures.count(blocks)} blocks"
    return el("td", {"class": f"level-{level}", "title": title}, lasting(seconds))


def _blockers(digest: Row, axis: Axis, part: Part) -> list[Child]:
    return [listing(digest, "blockers", axis)]


def _depth(digest: Row, axis: Axis, part: Part) -> list[Child]:
    half = replace(axis, width=HALF, left=HALF_LEFT)
    drawn = []
    for one in digest["depth"][: part.drawn]:
        shown = [Line("messages", one["messages"], "series-1")]
        limit = f", limit {figures.count(one['limit'])}" if one["limit"] else ""
        if one["limit"]:
            shown.append(Line("limit", [one["limit"]] * axis.steps, "limit"))
        words = f"{figures.count(one['messages_last'])} at the end, {figures.count(one['messages_max'])} at most{limit}"
        chart = svg.lines(f"Messages in {one['stage']}: {words}", half, shown, figures.short)
        drawn.append(figure(one["stage"], words, chart))
    return [_pairs(drawn), listing(digest, "depth", axis), _more(digest, "depth")]


def _pairs(drawn: list[Safe]) -> Safe | None:
    return el("div", {"class": "grid-2"}, *drawn) if drawn else None


def _gauges(digest: Row, axis: Axis, part: Part) -> list[Child]:
    """The charts of contents.py: one alone is as wide as the page."""
    found = digest[part.id]
    wide = axis if len(part.charts) == 1 else replace(axis, width=HALF, left=HALF_LEFT)
    drawn = [_gauge(found, chart, wide) for chart in part.charts if _last(found[chart.series[0].field]) is not None]
    if not drawn:
        return [el("p", {}, part.nothing)]
    return [_pairs(drawn) if len(part.charts) > 1 else drawn[0], listing(digest, part.id, axis)]


def _gauge(found: Row, chart: Chart, axis: Axis) -> Safe:
    shown = [
        Line(one.label, found[one.field], "limit" if one.limit else f"series-{i}")
        for i, one in enumerate(chart.series, 1)
    ]
    words = AXES[chart.kind]
    ends = [(line, words(_last(line.values))) for line in shown]
    told = f"{chart.title}: " + ", ".join(f"{line.label} {end}" for line, end in ends)
    drawn = svg.lines(told, axis, shown, words, binary=chart.kind == "bytes")
    return figure(chart.title, chart.note, drawn, _legend([(line.kind, line.label, end) for line, end in ends]))


def _legend(lines: list[tuple[str, str, str]]) -> Safe:
    """Of each line its class, its name and its last value."""
    items = [el("li", {}, el("i", {"class": kind}), f"{label} ", el("b", {}, end)) for kind, label, end in lines]
    return el("ul", {"class": "legend"}, *items)


def _last(values: svg.Values) -> float | int | None:
    return next((value for value in reversed(values) if value is not None), None)


def _forecasts(digest: Row, axis: Axis, part: Part) -> list[Child]:
    half = replace(axis, width=HALF, left=HALF_LEFT)
    drawn = []
    for one in digest["forecasts"][: part.drawn]:
        binary = one["unit"] == BYTES
        words = figures.size if binary else figures.short
        lines = [("series-1", "Now", words(one["value"])), ("limit", "Limit", words(one["limit"]))]
        if one["trend"]:
            hits = "not reached" if one["hits_at_ms"] is None else figures.moment(one["hits_at_ms"], axis.until_ms)
            lines.append(("trend", "Trend", hits))
        chart = svg.foretold(foretold(one, axis).replace("`", ""), half, one, words, binary)
        drawn.append(figure(one["title"], "", chart, _legend(lines)))
    return [_pairs(drawn), listing(digest, "forecasts", axis)]


def _advice(digest: Row, axis: Axis, part: Part) -> list[Child]:
    found = digest["advice"]
    if not found:
        return [el("p", {}, "None yet: ", el("code", {}, "penstock pipeline advise"), " looks for better settings.")]
    if found.get(UNREADABLE):
        return [el("p", {}, "There is advice, but ", str(found[UNREADABLE]))]
    others = [str(one) for name in ("cures", "notes") for one in listed(found.get(name))]
    return [
        el("p", {"class": "muted"}, said(origin)) if (origin := made(digest)) else None,
        el("p", {}, said(str(found.get("sentence") or ""))),
        listing(digest, "settings", axis),
        el("ul", {}, *(el("li", {}, said(one)) for one in others)) if others else None,
        _applied(found.get("applied")),
        listing(digest, "measured", axis) if isinstance(found.get("measured"), dict) else None,
    ]


def _applied(applied: object) -> Safe | None:
    """What --apply set, or only tried, and what came of it."""
    if not isinstance(applied, dict):
        return None
    verb = "Tried: " if applied.get("rolled_back") else "Set: "
    return together(
        el("p", {}, verb, settings(applied.get("settings"))),
        el("p", {}, said(str(applied.get("sentence") or ""))),
    )


def _single(digest: Row, axis: Axis, part: Part) -> list[Child]:
    return [listing(digest, "open", axis), listing(digest, "longest", axis)]


def _quality(digest: Row, axis: Axis, part: Part) -> list[Child]:
    checks = digest["quality"]
    if not checks:
        return [el("p", {}, part.nothing)]
    failed = sum(1 for one in checks if one["failures"])
    words = f"{failed} of {len(checks)} checks failed for some rows." if failed else f"All {len(checks)} checks hold."
    return [el("p", {}, words), listing(digest, "quality", axis, is_open=failed > 0)]


_CONTENT: Final[dict[str, Callable[[Row, Axis, Part], list[Child]]]] = {
    "verdicts": _verdicts,
    "timeline": _timeline,
    "heat": _heat,
    "blockers": _blockers,
    "depth": _depth,
    "syncs": _gauges,
    "resources": _gauges,
    "forecasts": _forecasts,
    "advice": _advice,
    "single": _single,
    "quality": _quality,
}
