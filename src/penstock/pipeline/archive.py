"""`penstock pipeline archive`: a stream or a queue to Parquet files, every message exactly once.

Upstream: command.py.  Downstream: spark/archive/job.py.
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

INTERRUPTED = "interrupted: not all that was there is archived; the next run goes on"


def archive(
    to: Annotated[Path, typer.Option(help="The directory: table, checkpoint and all; executors must see the same.")],
    uri: UriOption = DEFAULT_URI,
    stream: Annotated[str | None, typer.Option(help="The stream, plain or partitioned, to archive.")] = None,
    queue: Annotated[str | None, typer.Option(help="The queue to archive: what is archived is acked.")] = None,
    columns: Annotated[
        str | None, typer.Option(help="Which columns of the source, as body,routing_key,timestamp; all by default.")
    ] = None,
    partition_by: Annotated[
        str | None, typer.Option(help="Directories by day, hour (of the timestamp) or columns, as day,routing_key.")
    ] = None,
    json: Annotated[
        str | None, typer.Option(help="Parse bodies to columns: a schema, as 'id long, amount double', or infer.")
    ] = None,
    keep_body: Annotated[bool, typer.Option(help="With --json: keep the bodies that were parsed too.")] = False,
    follow: Annotated[bool, typer.Option(help="Go on until told to stop; else end when all is archived.")] = False,
    every: Annotated[
        float | None, typer.Option(help="With --follow: seconds between two batches; 10 by default.")
    ] = None,
    max_rows_per_trigger: Annotated[
        int | None, typer.Option(help="Rows of one batch at most; 1000000 of a stream, 250000 of a queue.")
    ] = None,
    start: Annotated[
        str, typer.Option(help="Where a stream's new archive begins: earliest, latest, an offset.")
    ] = "earliest",
    allow_gaps: Annotated[
        bool, typer.Option(help="Of a stream: go on where retention has removed what was not read.")
    ] = False,
    compact: Annotated[bool, typer.Option(help="Merge small files.")] = True,
    master: MasterOption = DEFAULT_MASTER,
    memory: MemoryOption = DEFAULT_MEMORY,
) -> None:
    """Archive a stream or a queue as Parquet, every message exactly once; started again it goes on."""
    with one_line():
        from penstock.spark.archive.job import Archive, Wanted
        from penstock.spark.jvm import ended_by
        from penstock.spark.session import LONG_LIVED, opened

        stopping = Stopping()
        wanted = Wanted(
            uri=uri,
            to=to,
            stream=stream,
            queue=queue,
            columns=columns,
            partition_by=partition_by,
            json=json,
            keep_body=keep_body,
            follow=follow,
            every_s=every,
            rows_max=max_rows_per_trigger,
            start=start,
            allow_gaps=allow_gaps,
            compact=compact,
        )
        job = Archive(wanted, stopping.event, say, warn)
        try:
            if job.prepare():
                with (
                    ended_by(stopping.event),
                    opened("penstock archive", master, memory, **LONG_LIVED) as spark,
                ):
                    stopping.listen()
                    spark.sparkContext.setLogLevel("OFF")  # what fails is told in a line, without Java's pages
                    job.run(spark)
        finally:
            job.close()
        if not follow and not job.finished:
            fail(INTERRUPTED)  # whoever waits for the end of the work must not take this for it
