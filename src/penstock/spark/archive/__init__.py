"""The archive: a stream or a queue as Parquet, every message one row, exactly once (`penstock pipeline archive`).

job.py runs the query, rows.py says what a row has, files.py is the directory and what counts in it, compact.py merges
small files, lock.py and wait.py are shared with the replay: one job per directory, a broker that is away.
"""
