"""The replay: a table back to an exchange, each key in order, resumable (`penstock pipeline replay`).

job.py runs Spark's job and tells how it gets on, table.py finds the rows, plan.py puts them into lanes and in order,
lane.py publishes one lane inside a task, state.py is the checkpoint.
"""
