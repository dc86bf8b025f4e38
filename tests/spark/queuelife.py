"""One life of a streaming query on a queue, a process: python queuelife.py CHECKPOINT URI QUEUE SPOOL ROWS POINT COUNT.

It runs until its sink has COUNT rows, or ends with exit code 9 at POINT, a moment of tests/unit/spark/queuefake.py, as
if killed. The checkpoint is a file: what Spark would have in its logs, and what the sink has.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from penstock.client.uri import parse_uri
from penstock.spark.options import Options
from tests.unit.spark.queuefake import MicroBatches

KILLED = 9


class Life(MicroBatches):
    """Its end is the process's end: no `finally` runs, no socket is closed politely."""

    def __init__(self, checkpoint: Path, options: Options) -> None:
        super().__init__(options)
        self._checkpoint = checkpoint
        if checkpoint.exists():
            state = json.loads(checkpoint.read_text())
            self.offset_log = [(start, end) for start, end in state["offsets"]]
            self.commit_log = state["commits"]
            self.sink = {int(batch): rows for batch, rows in state["sink"].items()}

    def save(self) -> None:
        state = {"offsets": self.offset_log, "commits": self.commit_log, "sink": self.sink}
        self._checkpoint.write_text(json.dumps(state))

    def crash(self, name: str) -> None:
        self.save()
        os._exit(KILLED)


def main(checkpoint: str, uri: str, queue: str, spool: str, rows: str, point: str, count: str) -> None:
    options = Options(uri=parse_uri(uri), queue=queue, spool_dir=spool, max_records=int(rows))
    life = Life(Path(checkpoint), options)
    life.crash_at = point or None
    life.start()
    while life.trigger() or point or len(life.rows) < int(count):
        pass
    assert life.reader is not None
    life.reader.stop()
    life.save()


if __name__ == "__main__":
    main(*sys.argv[1:])
