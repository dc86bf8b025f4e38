"""The archive: a stream or a queue as Parquet, every message one row, exactly once (`penstock pipeline archive`).

job.py runs the query, rows.py says what a row has, files.py is the directory and what counts in it, origin.py knows the
stream again, compact.py merges small files. terms.py and wait.py are shared with the replay: what the runs on one
directory agree on, a broker that is away.
"""
