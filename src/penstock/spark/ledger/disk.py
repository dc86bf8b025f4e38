"""Disk: every step by which the ledger changes the disk, one function each.

A step is done, or it is not: a crash between any two of them is what tests/spark/pipeline/test_ledger.py tries.
Upstream: the modules beside it, archive/, replay/.  Not here: what is written, and in which order (ledger.py:commit).
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

UNFINISHED = ".new"  # how the name of a file ends that is not whole yet


def write(path: Path, content: bytes | memoryview) -> None:
    """A new file with this in it, synced."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(descriptor, view) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def put(path: Path, content: bytes) -> None:
    """The file has this in it, or what it had before, whatever happens in between."""
    beside = path.with_name(f"{path.name}{UNFINISHED}")
    write(beside, content)
    rename(beside, path)
    sync(path.parent)


def sync(path: Path) -> None:
    """What a file, or a directory's list of names, has in it survives a loss of power."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def rename(source: Path, target: Path) -> None:
    """Takes the place of what is there, at once."""
    os.replace(source, target)


def make_directory(path: Path) -> None:
    path.mkdir(parents=True, exist_ok=True)


def remove(path: Path) -> None:
    """Gone; it may be gone already."""
    path.unlink(missing_ok=True)


def remove_tree(path: Path) -> None:
    """A directory with all that is in it; it may be gone already."""
    shutil.rmtree(path, ignore_errors=True)


def remove_empty(path: Path) -> None:
    """A directory that has nothing in it any more."""
    try:
        path.rmdir()
    except OSError:
        return  # it has something in it
