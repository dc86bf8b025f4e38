"""`penstock why`: what holds connections back, since when, and what helps. The verdicts of GET /api/flow.

Exit code: 0 nothing is held back, 1 something is, 2 it could not be told: no answer, or nothing has the given name.
Not here: how a verdict is found (flow/), the live view (top.py).
"""

from __future__ import annotations

import json
from typing import Annotated, Final

import typer

from penstock.console.label import labels
from penstock.console.picture import printable
from penstock.console.site import (
    DEFAULT_URL,
    Answers,
    Json,
    JsonOption,
    Row,
    Saying,
    Site,
    SiteError,
    UrlOption,
    row,
    rows,
)

HELD: Final = 1
UNKNOWN: Final = 2
ENDS: Final = ("store", "alarm memory", "alarm disk", "alarm store")  # of chains, that are there or may come any time


def why(
    name: Annotated[str | None, typer.Argument(help="Only what has this in its connection, user or chain.")] = None,
    url: UrlOption = DEFAULT_URL,
    as_json: JsonOption = False,
) -> None:
    """Say what blocks what: one verdict per connection that is held back. Exit code 0: none; 1: some; 2: unknown."""
    with Saying("why", UNKNOWN):
        site = Site(url)
        flow = row(site.get("flow"))
        verdicts = [one for one in rows(flow.get("verdicts")) if name is None or concerns(one, name)]
        if name is not None and not verdicts and not is_known(site, flow, name):
            raise SiteError(f"no connection, user or queue has '{name}' in its name")  # mistyped, it is not all right
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
    return _in_any(name, words + (chain if isinstance(chain, list) else []))


def is_known(site: Answers, flow: Row, name: str) -> bool:
    """Whether a verdict could have this in it. `flow` has only stages that did something within the last minute."""
    stages = rows(flow.get("stages"))
    if _in_any(name, [*ENDS, *(stage.get(key) for stage in stages for key in ("id", "name", "client_name", "user"))]):
        return True
    connections = rows(site.get("connections", columns="name,user,user_provided_name"))
    if _in_any(name.removeprefix("connection "), [word for one in connections for word in one.values()]):
        return True
    bare = name.removeprefix("consumers of ").removeprefix("queue ").rpartition("/")[2]  # without its vhost
    return bool(row(site.get("queues", page="1", page_size="1", name=bare, columns="name")).get("filtered_count"))


def _in_any(name: str, words: list[Json]) -> bool:
    return any(isinstance(word, str) and name in word for word in words)
