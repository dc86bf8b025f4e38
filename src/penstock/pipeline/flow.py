"""`penstock pipeline flow`: the events stream into the tables of the flow, for ever, once, or all over again.

Upstream: command.py.  Downstream: spark/flowjob/.
"""

from __future__ import annotations

import logging
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Annotated, NoReturn

import typer

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
    one_line,
)
from penstock.pipeline.stopping import AT_ONCE_S, CUT_S, Cut, Told, listen

INTERRUPTED = "interrupted: the tables are as they were"
UNCHECKED = "interrupted: the tables are made anew, all but `quality`; --rebuild again makes it too"


def flow(
    uri: UriOption = DEFAULT_URI,
    tables: TablesOption = DEFAULT_TABLES,
    master: MasterOption = DEFAULT_MASTER,
    memory: MemoryOption = DEFAULT_MEMORY,
    window_s: Annotated[int, typer.Option("--window", help="Seconds of a window, 1 to 600.")] = 10,
    trigger_s: Annotated[float, typer.Option("--trigger", help="Seconds between two batches; 0: none.")] = 5.0,
    once: Annotated[bool, typer.Option("--once", help="Take what is there, and end.")] = False,
    rebuild: Annotated[
        bool,
        typer.Option(
            "--rebuild", help="Derive all tables from all events again, and end; what is older than the events goes."
        ),
    ] = False,
    archive: Annotated[
        Path | None,
        typer.Option("--from", help="With --rebuild: Parquet of an archive, instead of the tables' events."),
    ] = None,
    keep_days: Annotated[int, typer.Option(help="Days that derived tables are kept, at least 1.")] = 30,
    keep_event_days: Annotated[int, typer.Option(help="Days that events are kept, at least 1.")] = 7,
    progress_s: Annotated[
        float, typer.Option("--progress", help="Seconds between two lines of progress, above 0.")
    ] = 60.0,
) -> None:
    """Derive the tables of the flow from the broker's events until told to stop (SIGTERM, Ctrl-C)."""
    if archive is not None and not rebuild:
        fail("--from goes with --rebuild")
    listen(_give_up if rebuild or once else _leave)
    logging.basicConfig(stream=sys.stderr, format="%(asctime)s flow: %(message)s", datefmt="%H:%M:%S")
    logging.getLogger("penstock.spark").setLevel(logging.INFO)
    with one_line():
        from penstock.spark.flowjob import FlowJob, FlowSettings, config
        from penstock.spark.flowjob import rebuild as rebuild_tables
        from penstock.spark.jvm import ended_by
        from penstock.spark.ledger import Ledger
        from penstock.spark.session import opened

        settings = FlowSettings(
            uri, tables.absolute(), window_s, trigger_s, keep_days, keep_event_days, progress_s=progress_s
        )
        settings.check()
        told = Told()
        spark_of = opened("penstock flow", master, memory, **config(master))
        with Ledger(settings.tables).writing() as ledger, spark_of as spark:
            jvm = getattr(spark.sparkContext._gateway, "proc", None)
            listen(Cut(told, jvm, AT_ONCE_S if rebuild else CUT_S).hear)
            if rebuild:
                before = ledger.manifest().version
                with ended_by(told):
                    done = rebuild_tables(spark, ledger, window_s, archive)
                    failures = sum(done.failures.values())
                    print(f"rebuilt: {done.events:,} events, {done.rows:,} rows, {failures:,} quality failures")
                    return
                fail(INTERRUPTED if ledger.manifest().version == before else UNCHECKED)
            is_finished = False
            with ended_by(told):
                job = FlowJob(spark, ledger, settings, told)
                words = f"windows of {window_s} s, {'once' if once else f'every {trigger_s:g} s'}, Spark at {master}"
                job.run(once, lambda: print(f"pipeline ready: tables {settings.tables}, {words}", flush=True))
                is_finished = job.finished
            if once and not is_finished:
                fail("interrupted: not all that was there is in the tables; the next run goes on")


def _give_up(number: int, frame: FrameType | None) -> None:
    """While Spark starts. Whoever waits for the end of the work must not take this for it."""
    print(f"penstock: {INTERRUPTED}", file=sys.stderr)
    _end(1)


def _leave(number: int, frame: FrameType | None) -> None:
    """A signal while Spark starts: there is nothing to finish yet."""
    _end(0)


def _end(code: int) -> NoReturn:
    listen(signal.SIG_IGN)  # a second signal must not hit the clearing away
    # Not by an import: this may be in the middle of it.
    abandon = getattr(sys.modules.get("penstock.spark.session"), "abandon", None)
    if abandon is not None:
        abandon()
    sys.exit(code)
