"""Check: what is wrong with the words for the pipeline, before anything is started.

Upstream: command.py.  Downstream: spark/submission.py, and the disk, which is only looked at.
The pipeline refuses the same, but as a part of `penstock up` it would be started again and again for it.
Not here: what only a running broker can tell, such as tables of another broker (crew.py says why a part ends).
"""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryFile
from typing import Final

WINDOW_S_MAX: Final = 600  # the pipeline's bound: spark/tables/schema.py:LATE_MAX_S
OWN: Final = "_ledger"  # in the directory of the tables: what their writer keeps for itself
MANIFEST: Final = "manifest.json"


class Mistake(Exception):
    """Of the user's; the text is one line."""


def check_words(window_s: int, master: str, memory: str) -> None:
    """A Mistake where one of them makes no sense."""
    from penstock.spark.complaint import Complaint
    from penstock.spark.submission import check_master, check_memory

    if not 1 <= window_s <= WINDOW_S_MAX:
        raise Mistake(f"--window is 1 to {WINDOW_S_MAX} seconds, not {window_s}")
    try:
        check_master(master)
        check_memory(memory)
    except Complaint as error:
        raise Mistake(str(error)) from None


def check_tables(tables: Path, window_s: int) -> None:
    """A Mistake where they cannot be written, or have windows of another length. Nothing is made."""
    try:
        _check_place(tables / OWN)
        made = _window_s(tables / OWN / MANIFEST)
    except OSError as error:
        raise Mistake(f"the tables in {tables} cannot be written: {error.strerror or error}") from None
    if made is not None and made != window_s:
        raise Mistake(
            f"the tables in {tables} have windows of {made:g} s: say --window {made:g}, "
            f"or once penstock pipeline flow --tables {tables} --rebuild --window {window_s}"
        )


def _check_place(directory: Path) -> None:
    """That it can be written to, or made. OSError if not."""
    there = next(one for one in (directory, *directory.parents) if one.exists())
    if not there.is_dir():
        raise NotADirectoryError(None, f"{there} is not a directory")
    # Tried, not asked for: root may do everything, but not everywhere.
    with TemporaryFile(dir=there):
        pass


def _window_s(manifest: Path) -> float | None:
    """What the tables are sliced by; None: there are none yet."""
    try:
        window_s = json.loads(manifest.read_bytes())["window_s"]
        return None if window_s is None else float(window_s)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise Mistake(f"{manifest} is damaged: {error}") from None
