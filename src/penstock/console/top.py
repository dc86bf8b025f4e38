"""`penstock top`: what blocks what, live in the terminal. Those that were blocked most in the last minute are on top.

Keys: q ends, b r m n sort by blocked time, rate, mailbox or name, space stops and goes on.
Not here: how a verdict is found (flow/); one look and an exit code (why.py).
"""

from __future__ import annotations

import contextlib
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator
from typing import Annotated, Final

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from penstock.console.label import labels
from penstock.console.picture import printable
from penstock.console.site import DEFAULT_URL, Json, Row, Saying, Site, SiteError, UrlOption, row, rows

SORTS: Final = {"b": "blocked", "r": "rate", "m": "mailbox", "n": "name"}
ROWS_WITHOUT: Final = 9  # of the screen: what is above and below the table
VERDICTS_MAX: Final = 5
INTERVAL_S_MIN: Final = 0.2  # asking more often would be a load of its own


class Line:
    """One stage as a row."""

    __slots__ = ("blocked_by", "credit", "for_s", "kind", "mailbox", "messages", "name", "rate", "share")

    def __init__(self, stage: Row, called: dict[str, str], rate: float, credit: str) -> None:
        """Stages have the names of `called`, by id."""
        id_ = str(stage.get("id"))
        self.name = called.get(id_, id_)
        self.kind = str(stage.get("kind"))
        self.share = number(stage.get("share_1m"))
        self.for_s = stage.get("blocked_for_s")
        named = [_reason(one, called) for one in rows(stage.get("blocked_by") or [])]
        self.blocked_by = ", ".join(named) or ("confirms held" if stage.get("saturated") else "")
        self.mailbox = int(number(stage.get("mailbox")))
        self.messages = stage.get("messages")
        self.rate = rate
        self.credit = credit


def lines(now: Row, before: Row | None) -> list[Line]:
    """The stages of a snapshot; rates are since the one before."""
    took_s = (number(now.get("at_ns")) - number(before.get("at_ns"))) / 1e9 if before is not None else 0.0
    old = {one.get("id"): one for one in rows(before.get("stages"))} if before is not None else {}
    least: dict[Json, Row] = {}  # of a stage's outgoing links the one that is nearest to its end
    for link in rows(now.get("links")):
        upstream = link.get("upstream")
        if upstream not in least or number(link.get("credit")) < number(least[upstream].get("credit")):
            least[upstream] = link
    found, stages = [], rows(now.get("stages"))
    called = labels(stages)
    for stage in stages:
        earlier = old.get(stage.get("id"))
        rate = (
            (number(stage.get("received")) - number(earlier.get("received"))) / took_s
            if earlier and took_s > 0
            else 0.0
        )
        link = least.get(stage.get("id"), {})
        credit = f"{link.get('credit')}/{link.get('initial')}" if link else ""
        found.append(Line(stage, called, max(0.0, rate), credit))
    return found


def _reason(reason: Row, called: dict[str, str]) -> str:
    stage = reason.get("stage")
    if stage is not None:
        return called.get(str(stage), str(stage))
    return str(reason.get("reason") or f"{reason.get('alarm')} alarm")


def ordered(found: list[Line], sort: str) -> list[Line]:
    keys = {
        "blocked": lambda line: (-line.share, -number(line.for_s), line.name),
        "rate": lambda line: (-line.rate, 0.0, line.name),
        "mailbox": lambda line: (-line.mailbox, 0.0, line.name),
        "name": lambda line: (0.0, 0.0, line.name),
    }
    return sorted(found, key=keys[sort])


def top(
    url: UrlOption = DEFAULT_URL,
    interval: Annotated[float, typer.Option(help="Seconds between looks.")] = 1.0,
    sort: Annotated[str, typer.Option(help="blocked, rate, mailbox or name.")] = "blocked",
    once: Annotated[bool, typer.Option("--once", help="Show it once and end; also when this is no terminal.")] = False,
) -> None:
    """Show the stages live: for which share of the last minute and for how long now they are blocked, and by what."""
    with Saying("top"):
        if sort not in SORTS.values():
            raise SiteError(f"--sort is one of {', '.join(SORTS.values())}, not {sort!r}")
        site = Site(url)
        console = Console()
        first = _look(site)
        if once or not (console.is_terminal and sys.stdin.isatty()):
            time.sleep(max(INTERVAL_S_MIN, interval))  # a rate needs two looks
            console.print(picture(_look(site), first, sort, console.height, site.shown))
            return
        with contextlib.suppress(KeyboardInterrupt):
            _run(site, console, first, sort, max(INTERVAL_S_MIN, interval))


def _run(site: Site, console: Console, before: Row, sort: str, interval_s: float) -> None:
    held = False
    now: Row = before
    trouble = ""
    with Live(console=console, screen=True, auto_refresh=False) as live, _single_keys():
        while True:
            live.update(picture(now, before, sort, console.height, site.shown, held, trouble), refresh=True)
            key = _key(interval_s)
            if key == "q":
                return
            sort = SORTS.get(key, sort)
            held = not held if key == " " else held
            if key or held:
                continue
            try:
                before, now, trouble = now, _look(site), ""
            except SiteError as error:  # it may come back: an operator watches a restart too
                trouble = str(error)


def picture(
    now: Row, before: Row | None, sort: str, height: int, shown: str, held: bool = False, trouble: str = ""
) -> RenderableType:
    found = ordered(lines(now, before), sort)
    verdicts = rows(now.get("verdicts") or [])
    room = max(3, height - ROWS_WITHOUT - min(len(verdicts), VERDICTS_MAX))
    blocked = sum(line.for_s is not None for line in found)
    state = "[stopped] " if held else ""
    held_back = f"{len(verdicts)} connection{'' if len(verdicts) == 1 else 's'} held back"
    head = Text(f"{state}{shown}  {len(found)} stages, {blocked} blocked, {held_back}")
    if trouble:
        head.append(f"\n{trouble}", style="red")
    for alarm in rows(now.get("alarms") or []):
        head.append(f"\nalarm: {alarm.get('source')}: {alarm.get('reason')}", style="red")
    table = Table(box=None, pad_edge=False, expand=True)
    table.add_column("stage", ratio=3, min_width=18, overflow="ellipsis", no_wrap=True)
    for name in ("1m", "now", "rate/s", "mailbox", "credit", "messages"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("waits for", ratio=2, min_width=12, overflow="ellipsis", no_wrap=True)
    for line in found[:room]:
        table.add_row(
            Text(printable(line.name)),
            f"{line.share:.0%}",
            duration(number(line.for_s)) if line.for_s is not None else "",
            f"{line.rate:,.0f}",
            f"{line.mailbox:,}",
            line.credit,
            f"{int(number(line.messages)):,}" if line.messages is not None else "",
            Text(printable(line.blocked_by)),
            style="yellow" if line.for_s is not None else "",
        )
    parts: list[RenderableType] = [head, Text(), table]
    if len(found) > room:
        parts.append(Text(f"… and {len(found) - room} more", style="dim"))
    parts += [Text(), *(Text(printable(str(one.get("sentence")))) for one in verdicts[:VERDICTS_MAX])]
    parts.append(Text("q end  b blocked  r rate  m mailbox  n name  space stop", style="dim"))
    return Group(*parts)


def duration(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min"


def number(value: Json) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _look(site: Site) -> Row:
    return row(site.get("flow"))


@contextlib.contextmanager
def _single_keys() -> Iterator[None]:
    """Keys come one by one, without Enter; as before afterwards."""
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    tty.setcbreak(terminal)
    try:
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def _key(timeout_s: float) -> str:
    """The key that was pressed within this time, or none."""
    ready, _, _ = select.select([sys.stdin], [], [], timeout_s)
    return sys.stdin.read(1) if ready else ""
