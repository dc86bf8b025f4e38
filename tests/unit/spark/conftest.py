"""Without pyspark these tests are left out; tests/spark/test_installed.py puts one line into the summary."""

from importlib.util import find_spec

if find_spec("pyspark") is None:
    collect_ignore_glob = ["test_*.py"]
