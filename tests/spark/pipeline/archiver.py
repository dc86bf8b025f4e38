"""The driver that a test of archives kills: python -m tests.spark.pipeline.archiver URI STREAM QUEUE DIRECTORY.

Two archives side by side in one session, DIRECTORY/stream and DIRECTORY/queue, in small batches: one JVM is started
instead of two, which is most of what such a test takes.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from pyspark.sql import SparkSession

from penstock.spark.archive.job import Archive, Wanted
from penstock.spark.session import local_session

ROWS = 10  # of a batch: so few that hundreds are left when the other archive has its first


def run(spark: SparkSession, wanted: Wanted) -> None:
    job = Archive(wanted, threading.Event(), print, print)
    assert job.prepare()
    job.run(spark)


def main(uri: str, stream: str, queue: str, directory: Path) -> None:
    spark = local_session("archiver", 2, "768m")
    runs = [
        threading.Thread(target=run, args=(spark, Wanted(uri=uri, to=to, stream=one, queue=other, rows_max=ROWS)))
        for to, one, other in ((directory / "stream", stream, None), (directory / "queue", None, queue))
    ]
    for one in runs:
        one.start()
    for one in runs:
        one.join()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]))
