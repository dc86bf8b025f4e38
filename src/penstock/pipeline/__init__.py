"""The command line of the pipeline: `penstock pipeline flow|archive|replay|advise|report`, one file per verb.

A verb's file has one function with typer's annotations; command.py puts them together. What the verbs share (options, a
Spark session, errors as one line) is in common.py. Nothing here imports penstock.spark at the top: the rest of the
command line starts without pyspark, and works where it is not installed.
Not here: the work itself (penstock.spark).
"""
