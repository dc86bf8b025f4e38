"""Sections: the parts of the report below its opening, each from its part of the digest. A chart has a table behind it.

Place: html.py puts them together.  Not here: drawing (svg.py), tables and figures as such (shapes.py).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from penstock.spark.report import figures, svg
from penstock.spark.report.frame import Row
from penstock.spark.report.markup import Child, Safe, el, said, together
from penstock.spark.report.opening import foretold
from penstock.spark.report.shapes import badge, behind, cause_class, chart_frame, figure, section, table
from penstock.spark.report.svg import Axis, Line, Strip
from penstock.spark.report.words import lasting

QUEUES_DRAWN: Final = 6
HALF: Final = 500  # wide: charts of which two are beside each other
HEAT_LEVELS: Final = 5
MEASURED: Final = {"before": "before", "after": "after", "again": "with the old values again"}


def verdicts(digest: Row, axis: Axis) -> Safe:
    found = digest["verdicts"]
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
    listed = table(
        "Verdicts",
        ("Who", "User", "Vhost", "Mostly by", "Bottleneck", "#Held back", "Causes"),
        [
            (
                one["name"],
                one["user"],
                one["vhost"],
                badge(one["cause"]),
                one["bottleneck"],
                lasting(one["held_s"]),
                ", ".join(f"{cause} {lasting(seconds)}" for cause, seconds in one["by_cause_s"].items()),
            )
            for one in found
        ],
        "Nobody was held back.",
    )
    chart = together(legend, chart_frame(svg.strips(title, axis, rows))) if found else None
    return section("verdicts", "Who was held back", chart, listed, _more(digest, "verdicts"))


def timeline(digest: Row, axis: Axis) -> Safe:
    found = digest["stages"]
    about = "The stronger the colour, the larger the part of the step in which a stage was blocked."
    if not found:
        return section("timeline", "Blocks over time", el("p", {}, "No stage was blocked."))
    rows = [
        Strip(
            one["label"],
            [(svg.level(share), f"blocked about {_tenth(share)}") if share > 0 else ("", "") for share in one["share"]],
        )
        for one in found
    ]
    worst = max(found, key=lambda one: one["blocked_s"])
    title = f"Blocks over time of {len(found)} stages; most of all {worst['label']}, {lasting(worst['blocked_s'])}"
    listed = table(
        "Blocked stages",
        ("Stage", "Kind", "#Blocked", "#Blocks"),
        [(one["label"], one["kind"], lasting(one["blocked_s"]), figures.count(one["blocks"])) for one in found],
    )
    return section(
        "timeline",
        "Blocks over time",
        chart_frame(svg.strips(title, axis, rows)),
        _more(digest, "stages"),
        behind(listed),
        about=about,
    )


def _tenth(share: float) -> str:
    """Rough, so that cells beside each other are one."""
    return f"{max(1, round(share * 10)) * 10} % of the time"


def _more(digest: Row, name: str) -> Safe | None:
    more = digest["left_out"].get(name, 0)
    return el("p", {"class": "muted"}, f"{more} more are in the tables.") if more else None


def heat(digest: Row) -> Safe:
    """A table is a heat map that can be read out."""
    found = digest["heat"]
    if not found["cells"]:
        return section("heat", "Who blocked whom", el("p", {}, "Nobody."))
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
    caption = "Time blocked: who waited (rows) for whom (columns)"
    grid = el(
        "table",
        {"class": "heat"},
        el("caption", {}, caption),
        el("thead", {}, el("tr", {}, el("th", {"scope": "col"}, "waited for →"), *head)),
        el("tbody", {}, *lines),
    )
    return section(
        "heat",
        "Who blocked whom",
        el("div", {"class": "scroll", "tabindex": "0", "role": "region", "aria-label": caption}, grid),
    )


def _heat_cell(cell: tuple[float, int] | None, most: float, up: str, down: str) -> Safe:
    if cell is None:
        return el("td", {"class": "none"}, "·")
    seconds, blocks = cell
    level = max(1, round(seconds / most * HEAT_LEVELS))
    title = f"{up} waited for {down}: {lasting(seconds)}, {figures.count(blocks)} blocks"
    return el("td", {"class": f"level-{level}", "title": title}, lasting(seconds))


def blockers(digest: Row) -> Safe:
    listed = table(
        "Top blockers",
        ("Bottleneck", "Cause", "#Time it cost", "#Held somebody back", "#Connections at once"),
        [
            (
                one["bottleneck"] or "unknown",
                badge(one["cause"]),
                lasting(one["blocked_s"]),
                lasting(one["present_s"]),
                figures.count(one["connections"]),
            )
            for one in digest["blockers"]
        ],
        "Nothing held anybody back.",
    )
    about = "What they cost is the time of all connections together, so it may be more than has passed."
    return section("blockers", "Top blockers", listed, about=about)


def depth(digest: Row, axis: Axis) -> Safe:
    found = digest["depth"]
    half = replace(axis, width=HALF)
    drawn = []
    for one in found[:QUEUES_DRAWN]:
        shown = [Line("messages", one["messages"], "series-1")]
        limit = f", limit {figures.count(one['limit'])}" if one["limit"] else ""
        if one["limit"]:
            shown.append(Line("limit", [one["limit"]] * axis.steps, "limit"))
        words = f"{figures.count(one['messages_last'])} at the end, {figures.count(one['messages_max'])} at most{limit}"
        chart = svg.lines(f"Messages in {one['stage']}: {words}", half, shown, figures.short)
        drawn.append(figure(one["stage"], words, chart))
    listed = table(
        "Queues",
        ("Queue", "#Messages", "#At most", "#Limit", "#Of it", "#Saturated", "#Blocked", "#In", "#Out", "#Consumers"),
        [
            (
                one["stage"],
                figures.count(one["messages_last"]),
                figures.count(one["messages_max"]),
                figures.count(one["limit"]),
                figures.percent(one["limit_share"]),
                figures.percent(one["saturated_share"]),
                figures.percent(one["blocked_share"]),
                figures.rate(one["received_rate"]),
                figures.rate(one["sent_rate"]),
                figures.count(one["consumers"]),
            )
            for one in found
        ],
        "No queue was sampled.",
    )
    return section(
        "depth", "Queues and their limits", el("div", {"class": "grid-2"}, *drawn), listed, _more(digest, "depth")
    )


def syncs(digest: Row, axis: Axis) -> Safe:
    found = digest["syncs"]
    known = [value for value in found["p99_ms"] if value is not None]
    if not known:
        return section("syncs", "Syncs of the store", el("p", {}, "The store had nothing to sync."))
    shown = [Line(name, found[f"{name}_ms"], f"series-{i}") for i, name in enumerate(("p50", "p95", "p99"), 1)]
    usual = sorted(value for value in found["p50_ms"] if value is not None)
    words = (
        f"half of them within {figures.ms(usual[len(usual) // 2])}, p99 of the worst window {figures.ms(max(known))}"
    )
    legend = el("ul", {"class": "legend"}, *(el("li", {}, el("i", {"class": line.kind}), line.label) for line in shown))
    rows = [
        (
            figures.moment(axis.at_ms(i), axis.until_ms),
            figures.count(found["count"][i]),
            *(figures.ms(found[f"{name}_ms"][i]) for name in ("p50", "p95", "p99", "longest")),
        )
        for i in range(axis.steps)
        if found["count"][i]
    ]
    listed = table("Syncs", ("From", "#Syncs", "#p50", "#p95", "#p99", "#Longest"), rows)
    chart = svg.lines(f"Time of a sync: {words}", axis, shown, figures.ms)
    return section("syncs", "Syncs of the store", figure("Time per sync", words, chart, legend), behind(listed))


def resources(digest: Row, axis: Axis) -> Safe:
    found = digest["resources"]
    half = replace(axis, width=HALF)
    drawn = []
    for title, name, limit in (
        ("Memory", "memory_used_bytes", "memory_limit_bytes"),
        ("Disk free", "disk_free_bytes", "disk_limit_bytes"),
    ):
        last = next((value for value in reversed(found[name]) if value is not None), None)
        bound = next((value for value in reversed(found[limit]) if value is not None), None)
        if last is None:
            continue
        side = "alarm above" if name.startswith("memory") else "alarm below"
        words = f"{figures.size(last)} at the end, {side} {figures.size(bound)}"
        shown = [Line(title, found[name], "series-1"), Line("limit", found[limit], "limit")]
        drawn.append(figure(title, words, svg.lines(f"{title}: {words}", half, shown, figures.size, binary=True)))
    content = el("div", {"class": "grid-2"}, *drawn) if drawn else el("p", {}, "Not sampled.")
    return section("resources", "Memory and disk", content)


def forecasts(digest: Row, axis: Axis) -> Safe:
    rows = [(said(foretold(one, axis)), figures.percent(one["r2"])) for one in digest["forecasts"]]
    about = "A straight line through the last minutes. How well it fits says how much to believe it."
    return section(
        "forecasts",
        "Forecasts",
        table("Forecasts", ("At this trend", "#Fit"), rows, "Nothing has a limit."),
        about=about,
    )


def longest(digest: Row, axis: Axis) -> Safe:
    rows = [
        (
            figures.moment(one["began_ms"], axis.until_ms, seconds=True),
            one["stage"],
            one["cause"],
            one["root"],
            lasting(one["longest_s"]),
            one["closed_by"],
        )
        for one in digest["longest"]
    ]
    listed = table(
        "Longest blocks", ("Began", "Stage", "Waited for", "Bottleneck", "#Took", "Ended by"), rows, unseen=False
    )
    now = [(one["stage"], one["cause"], figures.moment(one["began_ms"], axis.until_ms)) for one in digest["open"]]
    blocked = table("Blocked at the end", ("Stage", "Waits for", "Since"), now, "Nothing.", unseen=False)
    return section("longest", "Single blocks", blocked, listed)


def quality(digest: Row) -> Safe:
    rows = [
        (
            one["table"],
            one["rule"],
            figures.count(one["rows"]),
            figures.count(one["failures"]),
            el("code", {}, one["example"]) if one["example"] else "",
        )
        for one in digest["quality"]
    ]
    failed = sum(1 for one in digest["quality"] if one["failures"])
    words = (
        f"{failed} of {len(rows)} checks failed for some rows."
        if failed
        else f"All {len(rows)} checks hold for every row."
    )
    listed = table("Checks", ("Table", "What must be true", "#Rows", "#Failures", "Example"), rows)
    return section(
        "quality",
        "Quality of the tables",
        el("p", {}, words if rows else "Nothing was checked."),
        listed if failed else behind(listed),
    )


# What to set.


def advice(digest: Row) -> Safe:
    found = digest["advice"]
    if not found:
        return section(
            "advice",
            "Advice",
            el("p", {}, "None yet: ", el("code", {}, "penstock pipeline advise"), " looks for better settings."),
        )
    options = [_option(one) for one in _listed(found.get("options")) if isinstance(one, dict)]
    current = found.get("current")
    if isinstance(current, dict):
        options.insert(0, _option({**current, "why": "as it is"}))
    listed = table(
        "Settings", ("Settings", "#Messages per second", "#p99", "#Memory", "Why"), options, "None is better."
    )
    others = [str(one) for name in ("cures", "notes") for one in _listed(found.get(name))]
    return section(
        "advice",
        "Advice",
        el("p", {}, said(str(found.get("sentence") or ""))),
        listed,
        el("ul", {}, *(el("li", {}, said(one)) for one in others)) if others else None,
        _measured(found),
    )


def _option(one: dict[str, Any]) -> tuple[Child, ...]:
    settings = one.get("settings")
    named = settings.items() if isinstance(settings, dict) else ()
    texts = [el("code", {}, f"{name}={value}") for name, value in named]
    why = " ".join(str(one[name]) for name in ("change", "why") if one.get(name))
    return (
        together(*(together(text, " ") for text in texts)),
        figures.count(_number(one.get("throughput"))),
        figures.ms(_number(one.get("p99_ms"))),
        figures.size(_number(one.get("memory_bytes"))),
        said(why),
    )


def _measured(found: dict[str, Any]) -> Safe | None:
    """What --apply set, what came of it, and the figures of that."""
    measured, applied = found.get("measured"), found.get("applied")
    if not isinstance(measured, dict):
        return None
    rows = [
        (
            words,
            figures.count(_number(one.get("throughput"))),
            figures.ms(_number(one.get("confirm_ms")) or None),  # 0: there were none
            figures.ms(_number(one.get("stay_ms")) or None),
            figures.count(_number(one.get("held"))),
            figures.percent(_number(one.get("blocked"))),
            figures.size(_number(one.get("memory_bytes"))),
        )
        for when, words in MEASURED.items()
        if isinstance(one := measured.get(when), dict)
    ]
    heads = ("When", "#Messages per second", "#To a confirm", "#In the broker", "#Held", "#Blocked", "#Memory")
    listed = table("Measured", heads, rows)
    if not isinstance(applied, dict):
        return listed
    settings = applied.get("settings")
    named = settings.items() if isinstance(settings, dict) else ()
    texts = [el("code", {}, f"{name}={value}") for name, value in named]
    return together(
        el("p", {}, "Set: ", *(together(text, " ") for text in texts)),
        el("p", {}, said(str(applied.get("sentence") or ""))),
        listed,
    )


def _listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
