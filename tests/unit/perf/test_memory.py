"""Memory: what is resident now, and the highest in between; a process that is gone has none."""

import os
import subprocess
import sys

import pytest

from penstock.perf.cpu import PROC, family
from penstock.perf.memory import MemoryWatch, resident_bytes

pytestmark = pytest.mark.skipif(not (PROC / "self" / "status").exists(), reason="there is no /proc here")
PEAK_BYTES = 64_000_000


def test_a_process_has_resident_memory_and_one_that_is_gone_has_none():
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    assert resident_bytes(os.getpid()) > 1_000_000
    assert resident_bytes(gone.pid) == 0
    assert resident_bytes(None) == 0


def test_children_count_with_their_parent():
    command = [sys.executable, "-c", "print(flush=True); input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()  # it runs
        assert child.pid in family(os.getpid())
        child.communicate(b"\n")


def test_a_peak_is_seen_although_it_is_over():
    program = f"print(flush=True); input(); bytearray(b'x') * {PEAK_BYTES}; print(flush=True); input()"
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdout.readline()  # it runs
        before = resident_bytes(child.pid)
        with MemoryWatch(child.pid) as watch:
            child.stdin.write(b"\n")
            child.stdin.flush()
            child.stdout.readline()  # it has had its peak
        child.communicate(b"\n")
    assert watch.highest_bytes > before + PEAK_BYTES // 2
