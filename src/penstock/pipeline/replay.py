"""`penstock pipeline replay`: a table back to an exchange, in order per key, paced by the broker's confirms.

Upstream: command.py.  Downstream: spark/replay/job.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.pipeline.common import (
    DEFAULT_MASTER,
    DEFAULT_MEMORY,
    DEFAULT_URI,
    MasterOption,
    MemoryOption,
    UriOption,
    fail,
    one_line,
    say,
    warn,
)
from penstock.pipeline.stopping import Stopping

WINDOW = 1000
GOES_ON = "the same command goes on"
ANEW = "without --checkpoint it begins anew"


def replay(
    table: Annotated[str, typer.Option("--from", help="A directory of Parquet, as archive makes it, or a table.")],
    exchange: Annotated[str, typer.Option(help="Where to publish; '' is the default exchange.")],
    uri: UriOption = DEFAULT_URI,
    routing_key: Annotated[
        str | None, typer.Option(help="The routing key of all messages; else each has the recorded one.")
    ] = None,
    key: Annotated[str, typer.Option(help="The column whose rows stay in order.")] = "routing_key",
    order_by: Annotated[
        str | None, typer.Option(help="The columns that say the order; offset,partition or else timestamp by default.")
    ] = None,
    where: Annotated[
        str | None, typer.Option(help="Only these rows, in SQL, as \"day = '2026-11-16' AND type = 'paid'\".")
    ] = None,
    body: Annotated[
        str, typer.Option(help="The column that is the message; json: the columns that are no property, as JSON.")
    ] = "body",
    speed: Annotated[
        float | None, typer.Option(help="1: as recorded, 2: twice as fast; full speed if left out.")
    ] = None,
    time: Annotated[
        str | None, typer.Option(help="With --speed: the column of recorded times; timestamp by default.")
    ] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Directory that remembers what is confirmed; the same command goes on there.")
    ] = None,
    lanes: Annotated[
        int | None, typer.Option(help="How many publish side by side; one for each core by default.")
    ] = None,
    window: Annotated[int, typer.Option(help="Messages of a lane that may wait for their confirm.")] = WINDOW,
    mandatory: Annotated[bool, typer.Option(help="A message that no queue takes is an error.")] = False,
    deduplicate: Annotated[
        bool, typer.Option(help="Number the messages, so that Penstock drops what is sent twice.")
    ] = True,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be sent, and send nothing.")] = False,
    master: MasterOption = DEFAULT_MASTER,
    memory: MemoryOption = DEFAULT_MEMORY,
) -> None:
    """Publish a table's rows to an exchange, each key in order; with --checkpoint it goes on where it ended."""
    with one_line():
        from penstock.spark.jvm import ended_by
        from penstock.spark.replay.job import Replay, Wanted
        from penstock.spark.session import opened

        stopping = Stopping()
        wanted = Wanted(
            uri=uri,
            table=table,
            exchange=exchange,
            routing_key=routing_key,
            key=key,
            order_by=order_by,
            where=where,
            body=body,
            speed=speed,
            time=time,
            checkpoint=checkpoint,
            lanes=lanes,
            window=window,
            mandatory=mandatory,
            deduplicate=deduplicate,
        )
        job = Replay(wanted, stopping.event, say, warn)
        try:
            if job.prepare(connect=not dry_run):
                with ended_by(stopping.event), opened("penstock replay", master, memory) as spark:
                    stopping.listen()
                    spark.sparkContext.setLogLevel("OFF")  # what fails is told in a line, without Java's pages
                    if dry_run:
                        job.show(spark)
                    else:
                        job.run(spark)
        finally:
            job.close()
        if dry_run and not stopping.event.is_set():
            return
        if dry_run:
            fail("interrupted")
        if job.left != 0:  # whoever waits for the end of the work must not take this for it
            left = f"{job.left} rows are left; " if job.left is not None else ""
            fail(f"interrupted: {left}{ANEW if checkpoint is None else GOES_ON}")
