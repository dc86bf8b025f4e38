"""Shim: disks in place of penstock.store.files.Files that lose, refuse and delay what real ones may.

PowerlessFiles is a disk with a volatile cache, as POSIX allows it at its worst. The broker works on a mirror of its
files, which has everything it did; the data directory itself has only what was synced:

- bytes written to a file get there with the sync of that file;
- names that were made, changed or removed, with the sync of their directory: a file whose name was never synced is
  lost, however often the file itself was, and one that was removed is back.

So kill -9 of the process is a power loss. `cut` is one too, where the disk had begun to write by itself: a random
choice of the unsynced sectors is there, in no order, and some of the latest names.

FaultyFiles is the same disk with faults, that come and go as it is told: full, failing, slow, or deadly: the process is
killed at the nth operation of a kind. After a failed sync the cache has forgotten what it did not write, as Linux does,
so that a second sync would succeed and mean nothing.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
import shutil
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from penstock.store.files import Files

SECTOR_BYTES: Final = 512
Written = tuple[int, bytes]  # offset and data; below 0, the file is cut or stretched to -1 - offset


class Inode:
    """A file, whatever its name: what of it is only in the cache, and the durable file that a sync writes to."""

    __slots__ = ("cached", "durable", "hidden", "in_flight", "syncing")

    def __init__(self, durable: int, hidden: Path | None) -> None:
        self.durable = durable  # a descriptor
        self.hidden = hidden  # where the durable file is as long as no name of it is durable
        self.cached: list[Written] = []  # since the last sync, in order
        self.in_flight: list[Written] = []  # of the sync that is under way
        self.syncing = threading.Lock()

    def __del__(self) -> None:
        os.close(self.durable)


class Change:
    """Of the names in a directory, not synced yet."""

    __slots__ = ("inode", "new", "old")

    def __init__(self, old: Path | None, new: Path | None, inode: Inode | None) -> None:
        self.old = old  # None: the file is made
        self.new = new  # None: the file is removed
        self.inode = inode

    def directories(self) -> set[Path]:
        return {path.parent for path in (self.old, self.new) if path is not None}


class PowerlessFiles(Files):
    __slots__ = ("_by_descriptor", "_changes", "_data", "_hidden", "_inodes", "_lock", "_made", "_mirror", "dice")

    def __init__(self, data: Path, scratch: Path, dice: random.Random) -> None:
        """`scratch` is emptied; it must be on the file system of `data`, and not in it."""
        self._data = data
        self._mirror = scratch / "mirror"
        self._hidden = scratch / "hidden"
        self.dice = dice
        self._lock = threading.RLock()
        self._inodes: dict[int, Inode] = {}  # by the mirror's inode number
        self._by_descriptor: dict[int, Inode] = {}
        self._changes: list[Change] = []
        self._made = 0
        shutil.rmtree(scratch, ignore_errors=True)
        self._hidden.mkdir(parents=True)
        shutil.copytree(data, self._mirror)
        for path in self._mirror.glob("*/**/*"):  # not the definitions: SQLite has its own files, at the top
            if path.is_file():
                durable = os.open(self._data / path.relative_to(self._mirror), os.O_RDWR | os.O_CLOEXEC)
                self._inodes[path.stat().st_ino] = Inode(durable, None)

    # One file.

    def create(self, path: Path) -> int:
        with self._lock:
            there = self._mirrored(path).exists()
            descriptor = super().create(self._mirrored(path))
            if not there:
                self._made += 1
                hidden = self._hidden / str(self._made)
                inode = Inode(super().create(hidden), hidden)
                self._inodes[os.fstat(descriptor).st_ino] = inode
                self._changes.append(Change(None, path, inode))
            self._by_descriptor[descriptor] = self._inodes[os.fstat(descriptor).st_ino]
            return descriptor

    def open(self, path: Path) -> int:
        with self._lock:
            descriptor = super().open(self._mirrored(path))
            self._by_descriptor[descriptor] = self._inodes[os.fstat(descriptor).st_ino]
            return descriptor

    def write(self, descriptor: int, buffers: Sequence[bytes | memoryview], offset: int) -> None:
        data = b"".join(buffers)
        with self._lock:
            super().write(descriptor, [data], offset)
            self._by_descriptor[descriptor].cached.append((offset, data))

    def write_direct(self, descriptor: int, blocks: memoryview, offset: int) -> None:
        self.write(descriptor, [blocks], offset)  # a disk has a cache without the kernel's too

    def truncate(self, descriptor: int, size: int) -> None:
        with self._lock:
            super().truncate(descriptor, size)
            self._by_descriptor[descriptor].cached.append((-1 - size, b""))

    def sync(self, descriptor: int) -> None:
        with self._lock:
            inode = self._by_descriptor[descriptor]
        with inode.syncing:
            with self._lock:
                inode.in_flight, inode.cached = inode.cached, []
            self._turn_the_platter()
            with self._lock:
                for offset, data in inode.in_flight:
                    _put(inode.durable, offset, data)
                inode.in_flight = []

    def close(self, descriptor: int) -> None:
        with self._lock:
            self._by_descriptor.pop(descriptor)
            super().close(descriptor)

    # Directories.

    def make_directory(self, path: Path) -> None:
        super().make_directory(self._mirrored(path))
        super().make_directory(path)

    def names(self, path: Path) -> list[str]:
        return super().names(self._mirrored(path))

    def rename(self, old: Path, new: Path) -> None:
        with self._lock:
            super().rename(self._mirrored(old), self._mirrored(new))
            self._changes.append(Change(old, new, None))

    def remove(self, path: Path) -> None:
        with self._lock:
            if self._mirrored(path).exists():
                super().remove(self._mirrored(path))
                self._changes.append(Change(path, None, None))

    def sync_directory(self, path: Path) -> None:
        self._turn_the_platter()
        with self._lock:
            for change in [one for one in self._changes if path in one.directories()]:
                self._make_durable(change)

    # The power.

    def cut(self) -> None:
        """The power fails, and the disk had begun to write what nobody had asked it to sync."""
        with self._lock:
            for inode in self._inodes.values():
                self._write_some(inode)
            for change in self._changes[: self.dice.randint(0, len(self._changes))]:
                self._make_durable(change)
            die()

    def _write_some(self, inode: Inode) -> None:
        """Nothing, everything, or any sectors in any order."""
        waiting = [*inode.in_flight, *inode.cached]
        share = self.dice.choice((0.0, 1.0, self.dice.random()))
        pieces = [piece for offset, data in waiting for piece in _sectors(offset, data)]
        chosen = [piece for piece in pieces if share == 1.0 or self.dice.random() < share]
        if share < 1.0:
            self.dice.shuffle(chosen)
        for offset, data in chosen:
            _put(inode.durable, offset, data)

    def _make_durable(self, change: Change) -> None:
        self._changes.remove(change)
        if change.old is None:
            assert change.inode is not None
            assert change.new is not None
            assert change.inode.hidden is not None
            os.rename(change.inode.hidden, change.new)
            change.inode.hidden = None
        elif change.new is None:
            change.old.unlink(missing_ok=True)
        else:
            os.rename(change.old, change.new)

    def _turn_the_platter(self) -> None:
        """A sync takes time, in which the power may fail."""
        time.sleep(self.dice.choice((0.0, 0.0002, 0.001)))

    def _mirrored(self, path: Path) -> Path:
        return self._mirror / path.relative_to(self._data)


class FaultyFiles(PowerlessFiles):
    """With faults, by order: see `obey`."""

    __slots__ = ("_deadly", "_failing", "_failing_syncs", "_lying", "_room", "_slow_s")

    def __init__(self, data: Path, scratch: Path, dice: random.Random) -> None:
        super().__init__(data, scratch, dice)
        self._room: int | None = None  # bytes until the disk is full; None: no end
        self._failing = False
        self._failing_syncs = 0
        self._slow_s = 0.0
        self._lying = False
        self._deadly: dict[str, tuple[int, bool]] = {}  # which of the next kills, and whether when it is done

    def obey(self, order: str) -> None:
        """`full BYTES`, `write fails`, `sync fails TIMES`, `slow SECONDS`, `well` (all of these are over),
        `lie` (every sync says it is done, and is not), `die before|behind OPERATION NTH`, `cut`."""
        with self._lock:
            match order.split():
                case ["full", room]:
                    self._room = int(room)
                case ["write", "fails"]:
                    self._failing = True
                case ["sync", "fails", times]:
                    self._failing_syncs = int(times)
                case ["slow", seconds]:
                    self._slow_s = float(seconds)
                case ["die", ("before" | "behind") as when, operation, nth]:
                    self._deadly[operation] = int(nth), when == "behind"
                case ["lie"]:
                    self._lying = True
                case ["cut"]:
                    self.cut()
                case ["well"]:
                    self._room, self._failing, self._failing_syncs, self._slow_s = None, False, 0, 0.0
                case _:
                    raise ValueError(order)

    @contextlib.contextmanager
    def _operation(self, name: str) -> Iterator[None]:
        with self._lock:
            left, behind = self._deadly.get(name, (0, False))
            self._deadly[name] = left - 1, behind
        if left == 1 and not behind:
            die()
        yield
        if left == 1:
            die()

    def create(self, path: Path) -> int:
        with self._operation("create"):
            if self._room == 0 and not self._mirrored(path).exists():
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return super().create(path)

    def write(self, descriptor: int, buffers: Sequence[bytes | memoryview], offset: int) -> None:
        data = b"".join(buffers)
        with self._operation("write"), self._lock:
            if self._failing:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            if self._room is not None:
                fits = min(self._room, len(data))
                self._room -= fits
                super().write(descriptor, [data[:fits]], offset)
                if fits < len(data):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                return
            super().write(descriptor, [data], offset)

    def sync(self, descriptor: int) -> None:
        with self._operation("sync"):
            self._drag()
            if self._sync_fails():
                with self._lock:  # some pages were written, none is remembered as dirty
                    inode = self._by_descriptor[descriptor]
                    self._write_some(inode)
                    inode.cached = []
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            if not self._lying:
                super().sync(descriptor)

    def sync_directory(self, path: Path) -> None:
        with self._operation("sync_directory"):
            self._drag()
            if self._sync_fails():
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            super().sync_directory(path)

    def truncate(self, descriptor: int, size: int) -> None:
        with self._operation("truncate"):
            super().truncate(descriptor, size)

    def rename(self, old: Path, new: Path) -> None:
        with self._operation("rename"):
            super().rename(old, new)

    def remove(self, path: Path) -> None:
        with self._operation("remove"):
            super().remove(path)

    def _sync_fails(self) -> bool:
        with self._lock:
            if self._failing_syncs:
                self._failing_syncs -= 1
                return True
            return False

    def _drag(self) -> None:
        if self._slow_s:
            time.sleep(self._slow_s)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _sectors(offset: int, data: bytes) -> Iterator[Written]:
    """Cut at the borders of sectors."""
    if offset < 0:
        yield offset, data
        return
    at = 0
    while at < len(data):
        end = at + SECTOR_BYTES - (offset + at) % SECTOR_BYTES
        yield offset + at, data[at:end]
        at = end


def _put(descriptor: int, offset: int, data: bytes) -> None:
    if offset < 0:
        os.ftruncate(descriptor, -1 - offset)
        return
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, offset)
        offset += written
        view = view[written:]
