"""Pieces: long writes, past the kernel's cache."""

from __future__ import annotations

import errno
import fcntl
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.store.files import BLOCK_BYTES, Files
from penstock.store.pieces import PIECE_BYTES, Pieces
from tests.unit.fakes import FakeDisk


class Refusing(Files):
    """A file system without O_DIRECT: it refuses the flag, or every such write."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, flag: bool) -> None:
        self.refused = self.begun = 0
        real_fcntl, real_pwrite = fcntl.fcntl, os.pwrite

        def set_flags(descriptor: int, command: int, argument: int = 0) -> int:
            if flag and command == fcntl.F_SETFL and argument & os.O_DIRECT:
                self.refuse()
            return real_fcntl(descriptor, command, argument)

        def pwrite(descriptor: int, data: memoryview, offset: int) -> int:
            if real_fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT:
                self.refuse()
            return real_pwrite(descriptor, data, offset)

        monkeypatch.setattr(fcntl, "fcntl", set_flags)
        monkeypatch.setattr(os, "pwrite", pwrite)

    def refuse(self) -> None:
        self.refused += 1
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    def begin_sync(self, descriptor: int, offset: int, size: int) -> None:
        self.begun += 1
        super().begin_sync(descriptor, offset, size)


@pytest.fixture
def pieces() -> Iterator[Pieces]:
    pieces = Pieces()
    yield pieces
    pieces.close()


@pytest.fixture
def file(tmp_path: Path) -> Iterator[int]:
    descriptor = os.open(tmp_path / "bodies-1", os.O_RDWR | os.O_CREAT)
    yield descriptor
    os.close(descriptor)


def content(descriptor: int) -> bytes:
    return os.pread(descriptor, os.fstat(descriptor).st_size + 1, 0)


@pytest.mark.parametrize("offset", [0, 1, 100, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 3 * PIECE_BYTES - 5])
@pytest.mark.parametrize(
    "size", [1, 50, BLOCK_BYTES, 3 * BLOCK_BYTES + 7, PIECE_BYTES - 1, PIECE_BYTES, 3 * PIECE_BYTES, 5_000_000]
)
def test_the_bytes_are_where_they_belong(pieces: Pieces, file: int, offset: int, size: int) -> None:
    before, data = random.Random(1).randbytes(offset), random.Random(2).randbytes(size)
    os.pwrite(file, before, 0)
    pieces.write(Files(), file, offset, [data])
    assert content(file) == before + data


def test_writes_follow_on_each_other_wherever_they_begin_and_end(pieces: Pieces, file: int) -> None:
    dice = random.Random(3)
    whole = b""
    for _ in range(20):
        parts = [dice.randbytes(dice.choice([1, 36, 4096, 65_536, 300_000])) for _ in range(dice.randrange(12))]
        for _ in range(2):  # written again it is the same
            pieces.write(Files(), file, len(whole), parts)
        whole += b"".join(parts)
        assert content(file) == whole


@pytest.mark.parametrize("flag", [True, False])
def test_a_file_system_that_refuses_gets_the_same_bytes(
    pieces: Pieces, file: int, flag: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, data = Refusing(monkeypatch, flag), random.Random(4).randbytes(2 * PIECE_BYTES + 5000)
    pieces.write(files, file, 0, [data])
    assert content(file) == data
    assert files.refused == files.begun == 3


def test_a_piece_that_fails_fails_the_write_and_the_next_one_is_whole(pieces: Pieces, tmp_path: Path) -> None:
    disk, data = FakeDisk(), random.Random(5).randbytes(6 * PIECE_BYTES + 5000)
    descriptor = disk.create(tmp_path / "bodies-1")
    disk.fail("write", "bodies", number=errno.ENOSPC)
    with pytest.raises(OSError, match="No space left"):
        pieces.write(disk, descriptor, 0, [data])
    assert disk.done["write", "bodies"] < 6  # it does not go on with what comes behind
    pieces.write(disk, descriptor, 0, [data])
    assert content(descriptor) == data
    disk.end()


def test_parts_that_cannot_be_made_leave_nothing_behind(pieces: Pieces, file: int) -> None:
    def parts() -> Iterator[bytes]:
        yield bytes(3 * PIECE_BYTES)
        raise ValueError

    for _ in range(3):
        with pytest.raises(ValueError):
            pieces.write(Files(), file, 0, parts())
    pieces.write(Files(), file, 0, [b"x" * 5 * PIECE_BYTES])
    assert content(file) == b"x" * 5 * PIECE_BYTES


def test_after_a_direct_write_the_descriptor_takes_any_bytes(file: int, pieces: Pieces) -> None:
    pieces.write(Files(), file, 0, [bytes(PIECE_BYTES)])
    os.pwrite(file, b"abc", 5)
    assert content(file)[4:9] == b"\0abc\0"


def test_it_can_be_closed_without_having_written_and_used_again(file: int) -> None:
    pieces = Pieces()
    pieces.close()
    for _ in range(2):
        pieces.write(Files(), file, 0, [b"y" * 10_000])
        pieces.close()
    assert content(file) == b"y" * 10_000
