"""Bodies: large contents, each once."""

from __future__ import annotations

import tempfile
from array import array
from pathlib import Path
from zlib import crc32

import pytest

from penstock.store.bodies import RECENT_BYTES_MAX, Bodies, Moved
from penstock.store.files import Files
from penstock.store.journal import Write
from penstock.store.log import StoredFile
from penstock.store.record import BODIES, COMPACTED, FILE_HEAD_BYTES, REFERENCE, check_file_head, decode_body
from tests.unit.store.scribe import records

PLACE = Path("store")


@pytest.fixture
def bodies() -> Bodies:
    bodies = Bodies(PLACE)
    bodies.begin(5)
    return bodies


def written(bodies: Bodies) -> bytes:
    """What the next piece of work writes, which must follow on what was written before."""
    data = b""
    for write in bodies.writes():
        data += put(write)
    return data


def put(write: Write) -> bytes:
    """What it writes, on a disk that only remembers."""
    with tempfile.TemporaryFile() as file:
        write.target.descriptor = file.fileno()
        write.put(Files())
        file.seek(write.offset)
        return file.read()


def test_a_body_is_found_where_its_reference_says(bodies: Bodies) -> None:
    contents = [b"first" * 1000, b"second" * 1000]
    placed = [bodies.place(content) for content in contents]
    raw = written(bodies)
    check_file_head(raw, BODIES, 5)
    for (reference, file, offset), content, record in zip(placed, contents, records(raw), strict=True):
        assert REFERENCE.unpack(reference)[:3] == (file, offset, len(content))
        assert (file, offset) == (5, record.offset)
        assert decode_body(raw, record) == (crc32(content), 5, offset)
        assert raw[record.data_at : record.end()] == content
    assert bodies.target is not None
    assert bodies.target.size == len(raw)


def test_the_same_content_is_written_once_also_in_a_later_piece_of_work(bodies: Bodies) -> None:
    content = bytes(5000)
    first = bodies.place(content)
    assert len(written(bodies)) > 5000
    assert bodies.place(content) == first
    assert written(bodies) == b""


def test_equal_contents_that_are_two_are_written_twice(bodies: Bodies) -> None:
    one, other = bytes(5000), bytes(bytearray(5000))
    assert one is not other
    assert bodies.place(one) != bodies.place(other)


def test_a_piece_of_work_goes_on_where_the_last_one_ended(bodies: Bodies) -> None:
    bodies.place(bytes(100))
    size = len(written(bodies))
    bodies.place(bytes(101))
    (write,) = bodies.writes()
    assert write.offset == size


def test_written_again_after_a_failure_it_is_the_same(bodies: Bodies) -> None:
    bodies.place(bytes(100))
    (write,) = bodies.writes()
    once = put(write)
    assert put(write) == once


def test_only_so_many_bytes_of_recent_contents_are_remembered(bodies: Bodies) -> None:
    first = bytes(RECENT_BYTES_MAX // 2)
    place = bodies.place(first)
    others = [bytes([at]) * (RECENT_BYTES_MAX // 2) for at in range(2)]
    for other in others:
        bodies.place(other)
    assert bodies.place(others[1])[2] == bodies.place(others[1])[2]
    assert bodies.place(first) != place
    assert len(bodies._recent) <= 2


def test_after_a_file_is_sealed_a_content_is_written_anew(bodies: Bodies) -> None:
    """The file may be dropped when nothing that was there at its sealing refers to it any more."""
    content = bytes(5000)
    bodies.place(content)
    written(bodies)
    target = bodies.seal()
    assert target is not None
    assert target.sealed
    assert bodies.written_bytes == 0
    bodies.begin(6)
    assert bodies.place(content)[1:] == (6, FILE_HEAD_BYTES)


def test_a_seal_with_nothing_written_seals_nothing() -> None:
    assert Bodies(PLACE).seal() is None


def test_bodies_are_located_in_their_own_file_or_where_they_were_moved(bodies: Bodies) -> None:
    assert bodies.locate(5, 16) == (PLACE / "bodies-0000000005", 16)
    file = StoredFile(COMPACTED, 9, PLACE / "bodies-0000000009")
    bodies.moved[9] = Moved(file, array("I", [3, 5, 5]), array("Q", [40, 16, 70]), array("Q", [100, 200, 300]))
    assert bodies.locate(5, 16) == (PLACE / "bodies-0000000005", 16)  # it is still there
    bodies.forget(5)
    assert bodies.locate(5, 16) == (file.path, 200)
    assert bodies.locate(5, 70) == (file.path, 300)
    assert bodies.locate(3, 40) == (file.path, 100)
    assert bodies.locate(3, 16) == (PLACE / "bodies-0000000003", 16)  # nowhere: where it would have been
    bodies.forget(9)
    assert bodies.locate(5, 70) == (PLACE / "bodies-0000000005", 70)
