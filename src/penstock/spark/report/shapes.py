"""Shapes: what the report's sections are made of: a table, a figure, a badge; always with a name that can be read out.

Place: opening.py and sections.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.flow.verdict import RESOURCES
from penstock.spark.report.markup import Child, Safe, el


def table(
    caption: str,
    heads: Sequence[str],
    rows: Sequence[Sequence[Child]],
    empty: str = "None.",
    unseen: bool = True,
) -> Safe:
    """A head that begins with # is of numbers; the caption is read out, and seen where no heading says the same."""
    kinds = ["number" if head.startswith("#") else None for head in heads]
    top = [el("th", {"scope": "col", "class": kind}, head.lstrip("#")) for head, kind in zip(heads, kinds)]
    lines = [el("tr", {}, *(el("td", {"class": kind}, cell) for cell, kind in zip(row, kinds))) for row in rows]
    if not lines:
        lines = [el("tr", {}, el("td", {"colspan": len(heads), "class": "muted"}, empty))]
    whole = el(
        "table",
        {},
        el("caption", {"class": "unseen" if unseen else None}, caption),
        el("thead", {}, el("tr", {}, *top)),
        el("tbody", {}, *lines),
    )
    return el("div", {"class": "scroll", "tabindex": "0", "role": "region", "aria-label": caption}, whole)


def behind(table: Safe, is_open: bool = False) -> Safe:
    return el("details", {"open": is_open}, el("summary", {}, "As a table"), table)


def section(id_: str, title: str, *content: Child, about: str = "") -> Safe:
    note = el("p", {"class": "muted"}, about) if about else None
    return el(
        "section",
        {"id": id_, "aria-labelledby": f"{id_}-title"},
        el("h2", {"id": f"{id_}-title"}, title),
        note,
        *content,
    )


def chart_frame(drawn: Safe) -> Safe:
    """On narrow screens it is scrolled, with the keyboard too."""
    return el("div", {"class": "chart-scroll", "tabindex": "0", "role": "group", "aria-label": "Chart"}, drawn)


def badge(cause: str) -> Safe:
    return el("span", {"class": f"badge {cause_class(cause)}"}, cause)


def cause_class(cause: str) -> str:
    """Its class; a cause that nobody knows has the colour of the unknown."""
    return f"cause-{(cause if cause in RESOURCES else 'unknown').replace(' ', '-')}"


def figure(title: str, words: str, drawn: Safe, legend: Safe | None = None) -> Safe:
    caption = el("figcaption", {}, el("h3", {}, title), el("span", {"class": "muted"}, words), legend)
    return el("figure", {}, caption, chart_frame(drawn))
