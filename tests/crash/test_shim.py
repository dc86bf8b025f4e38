"""The disks of the crash tests lose exactly what they are meant to. What is durable is seen by the next disk."""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path

import pytest

from tests.crash.shim import FaultyFiles


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """The directory of the broker's files."""
    path = tmp_path / "data" / "store"
    path.mkdir(parents=True)
    return path


def disk(store: Path, seed: int = 0) -> FaultyFiles:
    """The disk after a power loss, if there was one before."""
    return FaultyFiles(store.parent, store.parent.parent / "disk", random.Random(seed))


def content(store: Path, name: str) -> bytes:
    files = disk(store)
    descriptor = files.open(store / name)
    try:
        return files.read(descriptor, 1 << 20, 0)
    finally:
        files.close(descriptor)


def made(files: FaultyFiles, path: Path, data: bytes = b"") -> int:
    """A file whose name and content are synced."""
    descriptor = files.create(path)
    files.write(descriptor, [data], 0)
    files.sync(descriptor)
    files.sync_directory(path.parent)
    return descriptor


def test_what_was_synced_is_there(store: Path) -> None:
    made(disk(store), store / "a", b"12345")
    assert content(store, "a") == b"12345"


def test_what_was_not_synced_is_seen_by_the_broker_and_then_lost(store: Path) -> None:
    files = disk(store)
    descriptor = made(files, store / "a", b"12345")
    files.write(descriptor, [b"67", b"8"], 5)
    assert files.read(descriptor, 100, 0) == b"12345678"
    assert files.size(descriptor) == 8
    assert content(store, "a") == b"12345"


def test_a_truncation_that_was_not_synced_is_undone(store: Path) -> None:
    files = disk(store)
    descriptor = made(files, store / "a", b"12345")
    files.truncate(descriptor, 2)
    assert files.read(descriptor, 100, 0) == b"12"
    assert content(store, "a") == b"12345"


def test_a_truncation_and_what_was_written_behind_it_are_synced_in_their_order(store: Path) -> None:
    files = disk(store)
    descriptor = made(files, store / "a", b"12345")
    files.truncate(descriptor, 1)
    files.write(descriptor, [b"x"], 3)
    files.sync(descriptor)
    assert content(store, "a") == b"1\0\0x"


def test_a_file_whose_name_was_not_synced_is_lost(store: Path) -> None:
    files = disk(store)
    descriptor = files.create(store / "a")
    files.write(descriptor, [b"12345"], 0)
    files.sync(descriptor)
    assert files.names(store) == ["a"]
    assert disk(store).names(store) == []


def test_a_rename_or_a_removal_that_was_not_synced_is_undone(store: Path) -> None:
    files = disk(store)
    made(files, store / "a", b"1")
    made(files, store / "b", b"2")
    files.rename(store / "a", store / "c")
    files.remove(store / "b")
    assert files.names(store) == ["c"]
    assert disk(store).names(store) == ["a", "b"]


def test_a_rename_over_another_file_is_durable_with_its_directory(store: Path) -> None:
    files = disk(store)
    made(files, store / "a", b"old")
    made(files, store / "a.new", b"new")
    files.rename(store / "a.new", store / "a")
    files.sync_directory(store)
    assert disk(store).names(store) == ["a"]
    assert content(store, "a") == b"new"


def test_at_a_cut_any_sectors_of_what_was_not_synced_are_there(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.crash.shim.die", lambda: None)
    seen: set[tuple[bool, ...]] = set()
    for seed in range(200):
        files = disk(store, seed)
        descriptor = made(files, store / "a")
        files.truncate(descriptor, 0)
        files.sync(descriptor)
        files.write(descriptor, [b"x" * 512 * 3], 0)
        files.cut()
        found = content(store, "a").ljust(512 * 3, b"\0")
        seen.add(tuple(found[at : at + 512] == b"x" * 512 for at in range(0, len(found), 512)))
    assert len(seen) == 8


def test_a_full_disk_takes_what_fits_and_refuses_the_rest_until_it_is_well(store: Path) -> None:
    files = disk(store)
    descriptor = made(files, store / "a")
    files.obey("full 3")
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        files.write(descriptor, [b"12345"], 0)
    assert files.read(descriptor, 100, 0) == b"123"
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        files.create(store / "b")
    files.obey("well")
    files.write(descriptor, [b"12345"], 0)
    files.sync(descriptor)
    assert content(store, "a") == b"12345"


def test_after_a_failed_sync_a_good_one_means_nothing_for_what_was_written_before(store: Path) -> None:
    for seed in range(20):
        files = disk(store, seed)
        descriptor = made(files, store / "a")
        files.truncate(descriptor, 0)
        files.sync(descriptor)
        files.write(descriptor, [b"12345"], 0)
        files.obey("sync fails 1")
        with pytest.raises(OSError, match=os.strerror(errno.EIO)):
            files.sync(descriptor)
        files.sync(descriptor)
        if content(store, "a") == b"":
            return
    pytest.fail("the cache never forgot anything")


def test_the_process_dies_before_or_behind_the_nth_operation(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Died(Exception):
        pass

    def die() -> None:
        raise Died

    monkeypatch.setattr("tests.crash.shim.die", die)
    files = disk(store)
    for name in "abcd":
        made(files, store / name)
    files.obey("die before remove 2")
    files.remove(store / "a")
    with pytest.raises(Died):
        files.remove(store / "b")
    assert files.names(store) == ["b", "c", "d"]
    files.obey("die behind remove 1")
    with pytest.raises(Died):
        files.remove(store / "b")
    assert files.names(store) == ["c", "d"]
