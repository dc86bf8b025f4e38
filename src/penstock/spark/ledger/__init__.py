"""The ledger: tables as Parquet files, and one small file that says which of them count.

A commit changes any number of tables in one atomic step: first the files are written and synced, then the manifest that
names them takes the place of the last one. Whoever reads sees the tables as of one commit, and never half of one.

    ROOT/events/day=2026-11-16/000000000042-0.parquet     a part: the rows of one day, written by commit 42
    ROOT/_ledger/manifest.json                            all parts that count, with their windows, rows and bytes
    ROOT/_ledger/lock                                     held by the one process that writes
    ROOT/_ledger/staging/                                 what Spark is just writing

ledger.py reads and commits, manifest.py is the small file, parts.py writes and reads Parquet, compact.py and retain.py
keep it small. disk.py has the steps whose order matters: what counts, and what goes. New files that do not count yet
are also written by pyarrow (compact.py) and by Spark (parts.py).
"""

from penstock.spark.ledger.change import Change, append, replace
from penstock.spark.ledger.ledger import Ledger

__all__ = ["Change", "Ledger", "append", "replace"]
