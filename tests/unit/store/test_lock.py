"""DirectoryLock: one process per data directory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.store.lock import LOCK_FILE, DirectoryInUse, DirectoryLock


def test_a_directory_in_use_is_refused_and_the_process_named(tmp_path: Path) -> None:
    lock = DirectoryLock(tmp_path)
    with pytest.raises(DirectoryInUse) as told:
        DirectoryLock(tmp_path)
    assert str(told.value) == f"data directory {tmp_path} is in use by process {os.getpid()}"
    lock.release()
    DirectoryLock(tmp_path).release()


def test_a_lock_is_released_once_however_often_it_is_asked(tmp_path: Path) -> None:
    first = DirectoryLock(tmp_path)
    first.release()
    second = DirectoryLock(tmp_path)
    first.release()
    with pytest.raises(DirectoryInUse):
        DirectoryLock(tmp_path)
    second.release()


def test_a_killed_process_leaves_no_lock(tmp_path: Path) -> None:
    script = (
        "import os, pathlib, signal, sys\n"
        "from penstock.store.lock import DirectoryLock\n"
        "lock = DirectoryLock(pathlib.Path(sys.argv[1]))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False, timeout=120)
    assert (tmp_path / LOCK_FILE).read_text().strip().isdecimal()  # it had the lock
    DirectoryLock(tmp_path).release()


def test_a_directory_that_is_not_there_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(DirectoryInUse, match="No such file"):
        DirectoryLock(tmp_path / "none")
