"""`penstock pipeline advise`: which settings would serve the measured load better, why, and what they did if applied.

Upstream: command.py.  Downstream: spark/advice/; console/site.py for the running broker.
Spark is stopped before anything is applied: it must not take the cores that are measured.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer
from rich.box import SIMPLE
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from penstock.client.uri import parse_uri
from penstock.console.picture import printable
from penstock.console.site import JsonOption, Site, SiteError
from penstock.pipeline.common import (
    DEFAULT_MASTER,
    DEFAULT_MEMORY,
    DEFAULT_TABLES,
    DEFAULT_URI,
    MasterOption,
    MemoryOption,
    TablesOption,
    UriOption,
    fail,
    hush_py4j,
    one_line,
    span_s,
)
from penstock.pipeline.stopping import SIGNALS, Stopping

HTTP_PORT = 15672
SETTINGS_MAX = 100_000
GOALS = ("throughput", "latency", "memory", "balanced")
STALE_S = 600.0  # a broker that works tells something every ten seconds, and the pipeline takes ten more


def advise(
    uri: UriOption = DEFAULT_URI,
    tables: TablesOption = DEFAULT_TABLES,
    since: Annotated[str, typer.Option(help="How much of the newest in the tables: 30s, 15m, 1h, 7d.")] = "10m",
    subject: Annotated[str, typer.Option("--for", help="Only the load of this connection or queue.")] = "",
    settings: Annotated[int, typer.Option(help="How many settings are simulated.")] = 2000,
    goal: Annotated[str, typer.Option(help="throughput, latency, memory or balanced.")] = "balanced",
    apply: Annotated[bool, typer.Option("--apply", help="Set the best at run time and measure the change.")] = False,
    measure: Annotated[
        str, typer.Option(help="With --apply: how long is measured, before and after: 10s, 1m.")
    ] = "10s",
    rollback: Annotated[
        bool,
        typer.Option(
            "--rollback-if-worse/--keep", help="With --apply: set the old values again if it was measured to be worse."
        ),
    ] = True,
    undo: Annotated[bool, typer.Option("--undo", help="Set back what --apply set last; nothing else.")] = False,
    stale: Annotated[
        bool, typer.Option("--stale", help="Go by tables whose newest is older than ten minutes.")
    ] = False,
    management: Annotated[
        str | None,
        typer.Option(
            envvar="PENSTOCK_URL",
            help="The broker's HTTP API, http://user:password@host:port; by default port 15672 on the host of --uri.",
        ),
    ] = None,
    given: Annotated[
        list[str] | None,
        typer.Option("--set", help="section.key=value: what is set, where the HTTP API cannot be asked."),
    ] = None,
    master: MasterOption = DEFAULT_MASTER,
    memory: MemoryOption = DEFAULT_MEMORY,
    as_json: JsonOption = False,
) -> None:
    """Say which credit, prefetch and watermarks would serve the measured load better, and why."""
    with one_line():
        over_s, measure_s = _seconds("--since", since), _seconds("--measure", measure)
        if goal not in GOALS:
            fail(f"--goal {goal}: there are {', '.join(GOALS)}")
        if not 2 <= settings <= SETTINGS_MAX:
            fail(f"--settings {settings}: 2 to {SETTINGS_MAX}")
        known = _given(given or [])
        from penstock.spark.advice.adviser import advise as run
        from penstock.spark.advice.adviser import study, write
        from penstock.spark.advice.applied import Diary, now_ms
        from penstock.spark.advice.clients import ask
        from penstock.spark.advice.load import check_given
        from penstock.spark.ledger import Ledger
        from penstock.spark.session import opened

        began_ms = now_ms()
        try:
            site, clients = _site(uri, management), None
            diary = Diary(tables, site.shown)
            notes: list[str] = []
            if undo:
                print(printable(diary.undo(site)))
                return
            check_given(known)
            ledger = Ledger(tables)
            newest = _newest(tables, ledger.newest())
            try:
                clients = ask(site)
            except SiteError as error:
                if error.status or management is not None or apply:
                    raise
                if not known:
                    hint = "--management says where its HTTP API is; without one, --set what is set"
                    raise SiteError(f"{error}; {hint}") from None
                notes.append(f"{error}; so what --set does not say is taken to be the default")
            if clients is not None and not stale:
                _check_age(tables, newest)
            found = study(ledger, over_s, subject, clients, known, diary.last_touch())
            with ExitStack() as stack:
                steps = stack.enter_context(_steps())
                spark = stack.enter_context(opened("penstock advise", master, memory))
                steps.listen()
                advice = run(spark, found, goal, settings, steps)
            document = advice.document([*notes, *diary.notes(advice.to_apply)])
            write(tables, document)
            if not as_json:
                _show(document)
            if apply and advice.to_apply:
                document |= _applied(site, advice.to_apply, goal, measure_s, rollback, diary)
                write(tables, document)
            if as_json:
                print(json.dumps(document, ensure_ascii=False, indent=2))
            elif apply:
                _show_change(document)
        except SiteError as error:
            fail(str(error))
        except KeyboardInterrupt:
            print(f"penstock: interrupted: {_left(Diary(tables), began_ms, undo)}", file=sys.stderr)
            raise typer.Exit(130) from None


def _left(diary: Any, began_ms: int, undo: bool) -> str:
    """How an interruption leaves the settings."""
    from penstock.spark.advice.applied import shown
    from penstock.spark.advice.change import UNDO

    if undo and any(one.at_ms >= began_ms for one in diary.changes()):
        return "what was set is set back"
    if undo:
        return "some settings may be set back already; --undo again does the rest"
    kept = diary.kept_since(began_ms)
    if kept is None:
        return "the settings are as they were"
    return printable(f"what was set stays set: {shown(kept.settings)}; back with: {UNDO}")


def _newest(tables: Path, newest: datetime | None) -> datetime:
    """What is of no use is said before anybody is asked and anything is started."""
    if newest is None:
        fail(f"the tables in {tables} are empty: `penstock pipeline flow` fills them while the broker works")
    if not os.access(tables, os.W_OK):
        fail(f"{tables} cannot be written to: what is advised and what is set are noted there")
    return newest


def _check_age(tables: Path, newest: datetime) -> None:
    """Settings and windows of now, and a load of then, do not belong together."""
    age_s = (datetime.now(UTC) - newest).total_seconds()
    if age_s > STALE_S:
        fail(
            f"the newest in {tables} is of {newest:%Y-%m-%d %H:%M} UTC, {age_s / 60:,.0f} minutes ago: does "
            "`penstock pipeline flow` run? --stale goes by it all the same"
        )


def _site(uri: str, management: str | None) -> Site:
    """The running broker's HTTP API: the one that was named, or the usual one on the host of the address."""
    if management is not None:
        return Site(management)
    address = parse_uri(uri)
    host = f"[{address.host}]" if ":" in address.host else address.host
    return Site(f"http://{quote(address.user, safe='')}:{quote(address.password, safe='')}@{host}:{HTTP_PORT}")


def _applied(
    site: Site, wanted: dict[str, str], goal: str, measure_s: float, rollback: bool, diary: Any
) -> dict[str, object]:
    from penstock.spark.advice.change import apply

    with _steps() as steps:

        def watch(what: str, done: float, whole: float) -> None:
            steps(f"measured {what}", done, whole)

        return apply(site, wanted, goal, measure_s, rollback, watch, diary=diary).document()


class _Steps:
    """One line of progress for each thing that is under way; and where a stop that was asked for is heard."""

    def __init__(self, progress: Progress, stopping: Stopping) -> None:
        self._progress = progress
        self._stopping = stopping
        self._tasks: dict[str, TaskID] = {}

    def listen(self) -> None:
        """Again, after Spark has started."""
        hush_py4j()
        self._stopping.listen()

    def __call__(self, what: str, done: float, whole: float) -> None:
        if self._stopping.event.is_set():
            raise KeyboardInterrupt
        if what not in self._tasks:
            self._tasks[what] = self._progress.add_task(what, total=whole)
        self._progress.update(self._tasks[what], completed=done, total=whole)


@contextmanager
def _steps() -> Iterator[_Steps]:
    """Progress on stderr, and only where somebody looks.

    Signals are heard between steps: in the middle of a call to Spark they would print pages.
    """
    console = Console(stderr=True)
    before = [(number, signal.getsignal(number)) for number in SIGNALS]
    stopping = Stopping()
    try:
        with Progress(
            TextColumn("{task.description:>16}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
            transient=True,
        ) as progress:
            yield _Steps(progress, stopping)
    finally:
        for number, handler in before:
            signal.signal(number, handler)


def _show(document: dict[str, Any]) -> None:
    """The document for people; the report and the page show the same."""
    from penstock.spark.advice.words import bytes_in_words

    console = Console(highlight=False)
    console.print(f"Load: {document['scenario']}.", markup=False)
    table = Table(box=SIMPLE, pad_edge=False)
    for column in ("", "setting"):
        table.add_column(column, no_wrap=True)
    for column in ("messages/s", "p99", "held"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_row("measured", "as it is", f"{document['observed']['throughput']:,.0f}", "", "")
    rows = [{**document["current"], "name": "predicted", "settings": {}}, *document["options"]]
    own = document["applies"]
    if own is not None and own["settings"] != document["options"][0]["settings"]:
        rows.append({**own, "name": "--apply sets"})
    for one in rows:
        shown = "\n".join(f"{name} = {value}" for name, value in one["settings"].items()) or "as it is"
        latency, size = _ms(one["p99_ms"]), bytes_in_words(one["memory_bytes"])
        table.add_row(one["name"], shown, f"{one['throughput']:,.0f}", latency, size)
    console.print(table)
    for one in document["options"]:
        console.print(printable(f"For {one['name']}: {one['why']}"), markup=False)
    if not document["options"]:
        console.print(printable(document["sentence"]), markup=False)
    for line in document["cures"]:
        console.print(printable(line), markup=False)
    if any("prefetch" in one["settings"] for one in document["options"]):
        console.print("Prefetch is set by consumers (basic.qos): it is advised here, and never applied.")
    for line in document["notes"]:
        console.print(printable(f"Note: {line}."), markup=False)
    console.print(
        f"{document['simulated']:,} settings simulated in {document['seconds']:.0f} s; what differs by less than "
        f"{100 * document['error']:.0f} % is taken for the same.",
        markup=False,
    )


def _show_change(document: dict[str, Any]) -> None:
    from penstock.spark.advice.knob import POLICY, is_marks, queue_of

    applied = document.get("applied")
    if applied is None:
        print("Nothing was set." + (" What is advised is for consumers to set." if document["options"] else ""))
        return
    settings = applied["settings"]
    policies = [POLICY + queue_of(name)[1] for name in settings if is_marks(name)]
    shown = ", ".join(f"{name} = {value}" for name, value in settings.items())
    lasts = ["Credit counts until the broker stops."] if len(policies) < len(settings) else []
    if policies:
        lasts.append(f"Marks are set by the policy {', '.join(policies)}, which stays until --undo.")
    if applied["rolled_back"]:
        print(printable(f"Tried: {shown}."))
    else:
        print(printable(f"Set: {shown}. {' '.join(lasts)}"))
    if "prefetch" in document["options"][0]["settings"]:
        print("Not set, as it is for consumers to set: prefetch.")
    print(printable(applied["sentence"]))


def _ms(value: float) -> str:
    return f"{value:,.0f} ms" if value >= 10 else f"{value:.2g} ms"


def _seconds(option: str, text: str) -> float:
    seconds = span_s(option, text)
    if not seconds:
        fail(f"{option} {text}: not a time; as in 30s, 15m, 1h, 7d")
    return seconds


def _given(texts: list[str]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            fail(f"--set {text}: it looks like credit.queue_store=2000,500")
        pairs[name.strip()] = value.strip()
    return pairs
