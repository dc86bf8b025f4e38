"""The flow job: the events of a broker into the tables of the flow.

    job.py       the streaming query: start, watch, start again, stop; compaction, retention and the page after commits
    batch.py     one micro-batch: events -> derive -> check -> one commit
    recent.py    what the next windows begin with, in memory
    plans.py     the tables' functions for rows that are here: plans made anew, or once for all batches
    slots.py     files that a plan reads whenever it runs
    gathered.py  many small DataFrames by one job of Spark
    own.py       sessions with the settings that few rows, or many, do well with
    lookups.py   what PySpark asks its JVM for again and again, asked for once
    page.py      page.json
    progress.py  the line for operators
    rebuild.py   all tables from all events again
    pieces.py    a million events of it at a time

Not here: what the tables are (spark/tables/), where they lie (spark/ledger/).
"""

from penstock.spark.flowjob.job import FlowJob, FlowSettings, config
from penstock.spark.flowjob.rebuild import rebuild

__all__ = ["FlowJob", "FlowSettings", "config", "rebuild"]
