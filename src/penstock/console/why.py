"""`penstock why`: what holds connections back, since when, and what helps. The verdicts of GET /api/flow.

Exit code: 0 nothing is held back, 1 something is, 2 it could not be told.
Not here: how a verdict is found (flow/), the live view (top.py).
"""

from __future__ import annotations

import json
from typing import Annotated, Final

import typer

from penstock.console.label import labels
from penstock.console.picture import printable
from penstock.console.site import DEFAULT_URL, Json, JsonOption, Row, Saying, Site, UrlOption, row, rows

HELD: Final = 1
UNKNOWN: Final = 2


def why(
    name: Annotated[str | None, typer.Argument(help="Only what has this in its connection, user or chain.")] = None,
    url: UrlOption = DEFAULT_URL,
    as_json: JsonOption = False,
) -> None:
    """Say what blocks what: one verdict per connection that is held back. Exit code 0: none; 1: some; 2: no answer."""
    with Saying("why", UNKNOWN):
        flow = row(Site(url).get("flow"))
        verdicts = [one for one in rows(flow.get("verdicts")) if name is None or concerns(one, name)]
    if as_json:
        print(json.dumps({"blocked": bool(verdicts), "verdicts": verdicts}, indent=2, ensure_ascii=False))
    else:
        print(told(verdicts, rows(flow.get("alarms")), labels(rows(flow.get("stages"))), name))
    if verdicts:
        raise typer.Exit(HELD)


def told(verdicts: list[Row], alarms: list[Row], called: dict[str, str], name: str | None = None) -> str:
    """For people; stages have the names of `called`, by id."""
    lines = [f"alarm: {one.get('source')}: {one.get('reason')}" for one in alarms]
    if not verdicts:
        lines.append("Nothing is held back." if name is None else f"Nothing with '{name}' in it is held back.")
        return "\n".join(lines)
    count = len(verdicts)
    lines.append(f"{count} connection{'s are' if count > 1 else ' is'} held back.")
    for verdict in verdicts:
        lines += ["", str(verdict["sentence"])]
        chain = verdict.get("chain")
        if isinstance(chain, list):
            lines.append("  chain: " + " waits for ".join(called.get(str(one), str(one)) for one in chain))
        for knob in rows(verdict.get("knobs") or []):
            lines.append("  " + _knob(knob))
    return "\n".join(map(printable, lines))


def _knob(knob: Row) -> str:
    setting, value, advice = knob.get("setting"), knob.get("value"), knob.get("advice")
    if str(setting) in str(advice):  # it says it all
        return str(advice)
    present = f" (now {value})" if value not in (None, "") else ""
    return f"{setting}{present}: {advice}" if setting else str(advice)


def concerns(verdict: Row, name: str) -> bool:
    chain = verdict.get("chain")
    words: list[Json] = [verdict.get(key) for key in ("name", "connection", "user", "bottleneck")]
    return any(name in str(word) for word in words + (chain if isinstance(chain, list) else []))
