"""HTML: a digest as one file that needs nothing else: style and charts inside, no script, no request to anybody.

It begins with sentences: what held whom back, for how long, what to do. Then the charts, each with its table. It is
read in light and dark and in print. Nothing in it can run: the file forbids scripts itself, and all names are escaped.
Place: pipeline/report.py.  Not here: where the numbers come from (digest.py), its parts (opening.py, sections.py).
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from penstock.spark.report import figures, opening
from penstock.spark.report.frame import Row, when
from penstock.spark.report.markup import Safe, el, together
from penstock.spark.report.sections import sections
from penstock.spark.report.svg import Axis

STYLE: Final = "report.css"  # beside this file
# Whatever a name says, it cannot run, and the file asks nobody.
POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"


def page(digest: Row, made_ms: int) -> str:
    """The whole file."""
    known = max(0.0, digest["steps"] - digest["known_s"] / digest["step_s"])
    axis = Axis(digest["since_ms"], round(digest["step_s"] * 1000), digest["steps"], known=known)
    span = figures.span(axis.since_ms, axis.until_ms)
    body = el(
        "body",
        {},
        el(
            "header",
            {},
            el("h1", {}, "Flow report"),
            el("p", {"class": "muted"}, span),
        ),
        el("main", {}, opening.summary(digest, axis), *sections(digest, axis)),
        el(
            "footer",
            {"class": "muted"},
            f"Made by Penstock on {when(made_ms):%Y-%m-%d} at {figures.clock(made_ms)} UTC "
            f"from windows of {digest['window_s']:g} s; a step of the charts is {digest['step_s']:g} s.",
        ),
    )
    head = el(
        "head",
        {},
        el("meta", {"charset": "utf-8"}),
        el("meta", {"http-equiv": "Content-Security-Policy", "content": POLICY}),
        el("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}),
        el("meta", {"name": "color-scheme", "content": "light dark"}),
        el("title", {}, f"Flow report, {span}"),
        el("style", {}, _style()),
    )
    return f'<!doctype html>\n<html lang="en">{together(head, body)}</html>\n'


def _style() -> Safe:
    return Safe(Path(__file__).with_name(STYLE).read_text("utf-8"))
