"""Unsealing: what sealed files say, at a start: segments and compacted files of bodies.

Their end is read, where the tables are; only if that is damaged, all of the file. Contents are not looked at then: each
has a checksum and is checked when it is read for a consumer.
Place in the chain: inside recovery.py.
Not here: the tables (index.py), writing such files (sealed.py).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable

from penstock.store.bodies import Moved
from penstock.store.files import Files
from penstock.store.index import (
    TRAILER_BYTES,
    KnownState,
    Seal,
    decode_index,
    decode_moved,
    decode_producers,
    decode_seal,
    decode_states,
    decode_trailer,
)
from penstock.store.log import LEVEL_SHIFT, DamagedBytes, Extent, QueueLog, StoredFile
from penstock.store.record import (
    BATCH,
    BODIES,
    BODY,
    COMPACTED,
    FILE_HEAD_BYTES,
    INDEX,
    MARKS,
    MOVED,
    SEAL,
    SEGMENT,
    STATES,
    Damage,
    Marks,
    Record,
    check_file_head,
    decode_body,
)
from penstock.store.replay import Replay, Traces
from penstock.store.scan import FileScan


class ReadSegment:
    __slots__ = ("bytes", "extents", "marks", "messages", "read_bytes", "seal", "states", "whole")

    def __init__(self) -> None:
        self.seal = Seal()
        self.extents: dict[tuple[int, int], Extent] = {}  # by queue and priority
        self.states: dict[int, KnownState] = {}
        self.marks: dict[int, Marks] = {}  # of producers, by queue
        self.whole = False  # all states are there
        self.bytes = 0
        self.read_bytes = 0
        self.messages = 0


class ReadBodies:
    __slots__ = ("bytes", "moved", "seal")

    def __init__(self) -> None:
        self.seal = Seal()
        self.moved: Moved | None = None  # it is an ordinary file of bodies
        self.bytes = 0


# Segments.


def read_segment(files: Files, file: StoredFile, traces: Traces, tick: Callable[[int, int], None]) -> ReadSegment:
    descriptor = files.open(file.path)
    try:
        size = files.size(descriptor)
        head = files.read(descriptor, FILE_HEAD_BYTES, 0)
        try:
            check_file_head(head, SEGMENT, file.number)
        except Damage as damage:
            traces.damages.append(DamagedBytes(file.path, 0, len(head), str(damage)))
        segment = _read_segment_end(files, descriptor, size, file)
        if segment is None:
            segment = _walk_segment(files, descriptor, size, file, traces, tick)
        segment.bytes = size
        return segment
    finally:
        files.close(descriptor)


def _read_segment_end(files: Files, descriptor: int, size: int, file: StoredFile) -> ReadSegment | None:
    """None if anything is wrong with it."""
    index_at = _index_at(files, descriptor, size)
    if not index_at:
        return None
    segment = ReadSegment()
    scan = FileScan(files, descriptor, size, index_at)
    ended = False
    try:
        for record in scan:
            if ended or scan.damaged:
                return None
            if record.kind == INDEX:
                for queue, part in decode_index(scan.buf, record, file):
                    _enter(segment, queue, part)
            elif record.kind == STATES:
                decode_states(scan.buf, record, segment.states)
            elif record.kind == MARKS:
                decode_producers(scan.buf, record, segment.marks)
            elif record.kind == SEAL:
                segment.seal = decode_seal(scan.buf, record)
                ended = True
            else:
                return None
    except Damage:
        return None
    if not ended or scan.cut or segment.seal.index_at != index_at:
        return None
    segment.whole = True
    segment.messages = segment.seal.messages
    segment.read_bytes = size - index_at
    return segment


def _index_at(files: Files, descriptor: int, size: int) -> int:
    """Where the file says that its index begins; 0 if that cannot be."""
    trailer = files.read(descriptor, TRAILER_BYTES, max(0, size - TRAILER_BYTES))
    if len(trailer) < TRAILER_BYTES:
        return 0
    at = decode_trailer(trailer)
    return at if FILE_HEAD_BYTES < at < size else 0


def _enter(segment: ReadSegment, queue: int, part: Extent) -> None:
    positions = part.starts or part.large_positions
    if not positions:
        return
    known = segment.extents.get((queue, positions[0] >> LEVEL_SHIFT))
    if known is not None:
        known.extend(part)
    elif part.starts:
        segment.extents[queue, part.level()] = part


def _walk_segment(
    files: Files, descriptor: int, size: int, file: StoredFile, traces: Traces, tick: Callable[[int, int], None]
) -> ReadSegment:
    """All records from the beginning on. States that are not all there leave a queue with everything that is found."""
    segment = ReadSegment()
    scan = FileScan(files, descriptor, size)
    replay = Replay(file, scan, traces)
    logs: dict[int, QueueLog] = {}
    seals: list[Seal] = []
    for record in scan:
        replay.look_back()
        try:
            if record.kind == BATCH:
                batch = replay.batch(record)
                log = logs.setdefault(batch.queue, QueueLog(batch.queue, ""))
                replay.append(traces.of(batch.queue), log, batch)
            elif record.kind == STATES:
                decode_states(scan.buf, record, segment.states)
            elif record.kind == MARKS:
                decode_producers(scan.buf, record, segment.marks)
            elif record.kind == SEAL:
                seals.append(decode_seal(scan.buf, record))
            elif record.kind != INDEX:
                raise Damage(f"a record of kind {record.kind} is in the wrong file")
        except Damage as damage:
            replay.damage(record.offset, record.end() - record.offset, str(damage))
        tick(scan.base + record.offset, replay.messages)
    replay.look_back()
    if scan.cut:
        replay.damage(scan.cut - scan.base, size - scan.cut, "no record to the end of the file")
    if seals:
        segment.seal = seals[-1]
        segment.whole = bool(seals[-1].index_at) and not scan.damaged and not scan.cut
    if segment.whole and _index_at(files, descriptor, size) != segment.seal.index_at:
        replay.damage(size - TRAILER_BYTES - scan.base, TRAILER_BYTES, "the trailer is wrong")
    segment.extents = {
        (queue, level): extents[0] for queue, log in logs.items() for level, extents in log.extents.items()
    }
    segment.read_bytes = size
    segment.messages = replay.messages
    return segment


# Bodies.


def read_bodies(files: Files, file: StoredFile, traces: Traces) -> ReadBodies:
    """An ordinary file is not looked into: its bodies are found by what refers to them."""
    read = ReadBodies()
    descriptor = files.open(file.path)
    try:
        read.bytes = files.size(descriptor)
        head = files.read(descriptor, FILE_HEAD_BYTES, 0)
        if _compacted(head, file, read.bytes, traces) and not _read_moved(files, descriptor, file, read):
            _walk_moved(files, descriptor, file, read, traces)
        return read
    finally:
        files.close(descriptor)


def _compacted(head: bytes, file: StoredFile, size: int, traces: Traces) -> bool:
    try:
        check_file_head(head, BODIES, file.number)
        return False
    except Damage as damage:
        wrong = DamagedBytes(file.path, 0, len(head), str(damage))
    try:
        check_file_head(head, COMPACTED, file.number)
    except Damage:
        if size:  # an empty one had its name before its first bytes
            traces.damages.append(wrong)
        return True  # it can still be told by its seals: an ordinary file has none
    return True


def _read_moved(files: Files, descriptor: int, file: StoredFile, read: ReadBodies) -> bool:
    index_at = _index_at(files, descriptor, read.bytes)
    if not index_at:
        return False
    numbers, names, offsets = array("I"), array("Q"), array("Q")
    scan = FileScan(files, descriptor, read.bytes, index_at)
    seal: Seal | None = None
    try:
        for record in scan:
            if seal is not None or scan.damaged:
                return False
            if record.kind == MOVED:
                decode_moved(scan.buf, record, numbers, names, offsets)
            elif record.kind == SEAL:
                seal = decode_seal(scan.buf, record)
            else:
                return False
    except Damage:
        return False
    if seal is None or scan.cut or seal.index_at != index_at:
        return False
    read.seal = seal
    read.moved = Moved(file, numbers, names, offsets)
    return True


def _walk_moved(files: Files, descriptor: int, file: StoredFile, read: ReadBodies, traces: Traces) -> None:
    """The bodies themselves say by which names they are known."""
    scan = FileScan(files, descriptor, read.bytes)
    bodies: list[tuple[int, int, int]] = []
    for record in scan:
        try:
            if record.kind == BODY:
                bodies.append(_body(scan, record))
            elif record.kind == SEAL:
                read.seal = decode_seal(scan.buf, record)
        except Damage as damage:
            traces.damages.append(
                DamagedBytes(file.path, scan.base + record.offset, record.end() - record.offset, str(damage))
            )
    traces.damages += [DamagedBytes(file.path, offset, size, why) for offset, size, why in scan.damaged]
    if scan.cut:
        traces.damages.append(
            DamagedBytes(file.path, scan.cut, read.bytes - scan.cut, "no record to the end of the file")
        )
    bodies = sorted(body for body in bodies if body[0] != file.number)
    if bodies or read.seal.replaces:
        read.moved = Moved(
            file,
            array("I", [number for number, _, _ in bodies]),
            array("Q", [name for _, name, _ in bodies]),
            array("Q", [offset for _, _, offset in bodies]),
        )


def _body(scan: FileScan, record: Record) -> tuple[int, int, int]:
    """The file and offset it is known by, and its offset here."""
    _, number, name = decode_body(scan.buf, record)
    return number, name, scan.base + record.offset
