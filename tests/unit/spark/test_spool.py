"""The spool: rows that survive a crash at any moment, and what it remembers of their messages."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

pa = pytest.importorskip("pyarrow")

from penstock.spark import spool as spool_module  # noqa: E402
from penstock.spark.identity import Identities  # noqa: E402
from penstock.spark.spool import Spool, SpoolError, SpoolInUse  # noqa: E402


def rows(*bodies: bytes):
    return [pa.record_batch({"body": pa.array(bodies, pa.binary())})]


def sequences(life: str, start: int, stop: int) -> Identities:
    identities = Identities()
    identities.add(life, start, stop)
    return identities


def ids(*given: bytes) -> Identities:
    identities = Identities()
    identities.ids = list(given)
    return identities


def bodies(path: Path) -> list[bytes]:
    with pa.memory_map(str(path)) as source, pa.ipc.open_file(source) as reader:
        return reader.read_all().column("body").to_pylist()


def reopen(spool: Spool) -> Spool:
    """As after kill -9: nothing is done but that the kernel lets go of the lock."""
    spool._lock.release()
    return Spool(spool.directory)


def test_a_file_is_there_after_a_restart_with_its_rows_and_identities(tmp_path: Path):
    spool = Spool(tmp_path / "a" / "b")
    spool.write(rows(b"x", b"y"), sequences("aa", 5, 7))
    spool.write(rows(b"z"), sequences("aa", 7, 8))
    again = reopen(spool)
    assert again.id == spool.id
    assert [(file.start, file.end) for file in again.files] == [(0, 2), (2, 3)]
    assert bodies(again.files[0].path) == [b"x", b"y"]
    assert (again.need_of_sequence("aa", 6), again.need_of_sequence("aa", 7)) == (2, 3)
    assert again.need_of_sequence("aa", 8) is None
    assert again.need_of_sequence("bb", 6) is None


def test_what_is_committed_is_known_after_its_file_is_gone_and_after_a_restart(tmp_path: Path):
    spool = Spool(tmp_path)
    spool.write(rows(b"x", b"y"), sequences("aa", 5, 7))
    spool.commit(2)
    spool.sweep()
    assert not list(tmp_path.glob("*.arrow"))
    for one in (spool, reopen(spool)):
        assert (one.committed, one.end) == (2, 2)
        assert one.need_of_sequence("aa", 6) == 0
        assert one.need_of_sequence("aa", 7) is None


def test_a_crash_between_commit_and_sweep_leaves_files_that_the_next_start_removes(tmp_path: Path):
    spool = Spool(tmp_path)
    spool.write(rows(b"x"), sequences("aa", 0, 1))
    spool.commit(1)
    again = reopen(spool)
    assert not again.files
    assert not list(tmp_path.glob("*.arrow"))
    assert again.need_of_sequence("aa", 0) == 0


def test_a_file_that_was_not_finished_is_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    spool = Spool(tmp_path)

    def fail(*names: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(spool_module, "_finish", fail)
        with pytest.raises(KeyboardInterrupt):
            spool.write(rows(b"x"), sequences("aa", 0, 1))
    again = reopen(spool)
    assert again.end == 0
    assert again.need_of_sequence("aa", 0) is None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lock", "state.json"]


def test_files_of_others_in_the_directory_are_left_alone(tmp_path: Path):
    names = ["notes.tmp", "1-2.arrow", "old.arrow", "mine.json"]
    for name in names:
        (tmp_path / name).write_text("mine")
    (tmp_path / "state.tmp").write_text("half a state")
    spool = reopen(Spool(tmp_path))
    spool.write(rows(b"x"), sequences("aa", 0, 1))
    spool.commit(1)
    spool.sweep()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*names, "lock", "state.json"])


def test_message_ids_are_known_from_the_file_and_after_it(tmp_path: Path):
    spool = Spool(tmp_path)
    spool.write(rows(b"x", b"y", b"z"), ids(b"one", b"", b"\xff\xfe"))
    again = reopen(spool)
    assert [again.need_of_id(one) for one in (b"one", b"\xff\xfe", b"two")] == [3, 3, None]
    again.commit(3)
    again.sweep()
    for one in (again, reopen(again)):
        assert [one.need_of_id(message_id) for message_id in (b"one", b"\xff\xfe", b"two")] == [0, 0, None]


def test_a_torn_end_of_the_remembered_ids_is_cut_and_its_file_tells_them_again(tmp_path: Path):
    spool = Spool(tmp_path)
    spool.write(rows(b"x"), ids(b"first"))
    spool.commit(1)
    spool.sweep()
    spool.write(rows(b"y"), ids(b"second"))
    # A crash while the ids of the second file were appended: the state did not follow.
    with (tmp_path / "ids").open("ab") as out:
        out.write(b"\x06sec")
    again = reopen(spool)
    assert (again.need_of_id(b"first"), again.need_of_id(b"second")) == (0, 2)
    again.commit(2)
    assert reopen(again).need_of_id(b"second") == 0


def test_of_message_ids_only_the_last_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(spool_module, "IDS_KEPT", 10)
    spool = Spool(tmp_path)
    for number in range(50):
        spool.write(rows(b"x"), ids(b"%d" % number))
        spool.commit(number + 1)
        spool.sweep()
    assert len(spool._ids) <= 20
    assert (tmp_path / "ids").stat().st_size <= 60
    for one in (spool, reopen(spool)):
        assert one.need_of_id(b"49") == 0
        assert one.need_of_id(b"40") == 0
        assert one.need_of_id(b"5") is None


def test_the_state_stays_small_however_many_gaps_there_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(spool_module, "RANGES_MAX", 10)
    spool = Spool(tmp_path)
    for number in range(100):
        spool.write(rows(b"x"), sequences("aa", 2 * number, 2 * number + 1))
        spool.commit(number + 1)
        spool.sweep()
    assert len(json.loads((tmp_path / "state.json").read_text())["lives"]["aa"]) == 10
    assert spool.need_of_sequence("aa", 198) == 0
    assert spool.need_of_sequence("aa", 0) is None


def test_a_second_query_on_a_spool_is_refused_in_words(tmp_path: Path):
    with_lock = Spool(tmp_path)
    with pytest.raises(SpoolInUse, match=rf"in use by process {os.getpid()}.*consumerName or spoolDir"):
        Spool(tmp_path)
    with_lock.close()
    Spool(tmp_path).close()


def test_a_row_that_ends_no_batch_cannot_be_committed(tmp_path: Path):
    spool = Spool(tmp_path)
    spool.write(rows(b"x", b"y"), sequences("aa", 0, 2))
    for row in (1, 3):
        with pytest.raises(SpoolError, match="not the end of a batch"):
            spool.commit(row)
    assert spool.committed == 0


def test_rows_that_are_not_there_are_an_error_that_says_what_is(tmp_path: Path):
    spool = Spool(tmp_path)
    spool.write(rows(b"x", b"y"), sequences("aa", 0, 2))
    assert [file.end for file in spool.between(0, 2)] == [2]
    assert spool.between(2, 2) == []
    with pytest.raises(SpoolError, match="does not have rows 2 to 5: it has rows 0 to 2"):
        spool.between(2, 5)


def test_a_damaged_spool_is_refused_and_says_what_is_wrong(tmp_path: Path):
    spool = Spool(tmp_path)
    for number in range(3):
        spool.write(rows(b"x"), sequences("aa", number, number + 1))
    spool.files[1].path.unlink()
    with pytest.raises(SpoolError, match="rows 1 to 2 are missing"):
        reopen(spool)
    (tmp_path / "state.json").unlink()
    with pytest.raises(SpoolError, match=r"no state\.json"):
        reopen(spool)
    (tmp_path / "state.json").write_text("{")
    with pytest.raises(SpoolError, match=r"state\.json cannot be read"):
        reopen(spool)


def test_bodies_on_disk_are_for_their_owner_only(tmp_path: Path):
    spool = Spool(tmp_path / "spool")
    assert spool.directory.stat().st_mode & 0o077 == 0
