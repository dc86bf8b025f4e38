"""Benchmarks are run by hand, weeks apart: what they import must still be there."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.wire.live import serve_environment

BENCH = Path(__file__).parents[2] / "bench"
# In one process, which costs a second: they share what they import.
IMPORT = "import importlib, sys\nfor name in sys.argv[1:]:\n    print(name)\n    importlib.import_module(name)\n"


@pytest.mark.skipif(find_spec("pyspark") is None, reason="some benchmarks need pyspark")
def test_every_benchmark_can_be_imported():
    names = sorted(path.stem for path in BENCH.glob("*.py"))
    command = [sys.executable, "-c", IMPORT, *names]
    run = subprocess.run(command, capture_output=True, text=True, cwd=BENCH, env=serve_environment(), check=False)
    assert run.returncode == 0, f"{run.stdout.split()[-1]}: {run.stderr}"
    assert run.stdout.split() == names
