"""DefinitionStore on a real file and its real thread; the broker's thread is the test, which runs what was posted."""

from __future__ import annotations

import queue
import sqlite3
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from penstock.store.definitions import FILE_NAME, Definition, DefinitionError, DefinitionStore, read_definitions

TIMEOUT_S = 60.0


class BrokerThread:
    """What `post` is given; run by hand, as an event loop would between two calls of the broker."""

    def __init__(self) -> None:
        self._posted: queue.Queue[Callable[[], None]] = queue.Queue()

    def post(self, function: Callable[[], None]) -> None:
        self._posted.put(function)

    def run_until(self, condition: Callable[[], object]) -> None:
        while not condition():
            self._posted.get(timeout=TIMEOUT_S)()


class Desk:
    """A store with all its surroundings."""

    def __init__(self, directory: Path) -> None:
        self.thread = BrokerThread()
        self.failures: list[str] = []
        self.store = DefinitionStore(directory, self.thread.post, self.failures.append, retry_s=0.01)
        self.done: list[str] = []

    def commit(self) -> None:
        done: list[bool] = []
        self.store.after_commit(lambda: done.append(True))
        self.thread.run_until(lambda: done)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path)
    yield made
    made.store.close()


def names(directory: Path) -> list[tuple[str, ...]]:
    return [definition.key for definition in read_definitions(directory)]


def test_what_was_put_is_there_after_a_restart_in_the_order_it_was_made(tmp_path: Path) -> None:
    first = Desk(tmp_path)
    first.store.put("queue", ("/", "z"), {"name": "z", "arguments": {"n": 1, "f": 1.0, "none": None}})
    first.store.put("queue", ("/", "a"), {"name": "a"})
    first.commit()
    first.store.put("queue", ("/", "z"), {"name": "z", "durable": True})
    first.store.put("user", ("\udcff'\"",), {"name": "\udcff'\""})
    first.store.close()
    second = Desk(tmp_path)
    assert second.store.load() == [
        Definition("queue", ("/", "z"), {"name": "z", "durable": True}),
        Definition("queue", ("/", "a"), {"name": "a"}),
        Definition("user", ("\udcff'\"",), {"name": "\udcff'\""}),
    ]
    second.store.close()


def test_what_was_dropped_is_gone(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.store.put("queue", ("/", "a"), {})
    desk.store.put("queue", ("/", "b"), {})
    desk.commit()
    desk.store.drop("queue", ("/", "a"))
    desk.store.drop("queue", ("/", "never was"))
    desk.store.put("queue", ("/", "c"), {})
    desk.store.drop("queue", ("/", "c"))
    desk.store.close()
    assert names(tmp_path) == [("/", "b")]


def test_a_body_is_kept_as_it_was_when_it_was_put(desk: Desk, tmp_path: Path) -> None:
    body: dict = {"arguments": {}}
    desk.store.put("queue", ("/", "q"), body)
    body["arguments"]["later"] = 1
    desk.commit()
    assert read_definitions(tmp_path)[0].body == {"arguments": {}}


def test_after_commit_calls_back_only_when_it_is_on_disk(desk: Desk, tmp_path: Path) -> None:
    seen: list[list[tuple[str, ...]]] = []
    desk.store.put("queue", ("/", "q"), {})
    desk.store.after_commit(lambda: seen.append(names(tmp_path)))
    assert seen == []
    desk.thread.run_until(lambda: seen)
    assert seen == [[("/", "q")]]


def test_after_commit_calls_back_at_once_if_nothing_waits(desk: Desk) -> None:
    desk.store.after_commit(lambda: desk.done.append("at once"))
    assert desk.done == ["at once"]


def test_a_callback_may_put_and_wait_again(desk: Desk, tmp_path: Path) -> None:
    def again() -> None:
        desk.store.put("queue", ("/", "second"), {})
        desk.store.after_commit(lambda: desk.done.append("second"))

    desk.store.put("queue", ("/", "first"), {})
    desk.store.after_commit(again)
    desk.thread.run_until(lambda: desk.done)
    assert names(tmp_path) == [("/", "first"), ("/", "second")]


def test_changes_of_one_call_are_one_transaction(desk: Desk) -> None:
    for number in range(100):
        desk.store.put("queue", ("/", str(number)), {})
    desk.commit()
    assert desk.store.commits == 1


def test_what_comes_while_a_batch_is_written_shares_the_next_transaction(desk: Desk, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")  # so that the first batch stays in flight
        desk.store.put("queue", ("/", "first"), {})
        desk.store.after_commit(lambda: desk.done.append("first"))
        desk.thread.run_until(lambda: desk.failures)
        for number in range(50):  # each in a call of its own
            desk.store.put("queue", ("/", str(number)), {})
            desk.store.after_commit(partial(desk.done.append, str(number)))
        assert desk.done == []
        other.execute("ROLLBACK")
        desk.thread.run_until(lambda: len(desk.done) == 51)
    other.close()
    assert desk.store.commits == 2
    assert desk.done == ["first", *map(str, range(50))]


def test_a_failed_write_is_told_once_and_tried_again_until_it_works(desk: Desk, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        desk.store.put("queue", ("/", "q"), {})
        desk.store.after_commit(lambda: desk.done.append("written"))
        desk.thread.run_until(lambda: desk.failures)
        assert desk.failures == [f"{tmp_path / FILE_NAME}: database is locked"]
        assert desk.store.error == desk.failures[0]
        assert desk.done == []
        other.execute("ROLLBACK")
        desk.thread.run_until(lambda: desk.done)
    other.close()
    assert desk.failures == [f"{tmp_path / FILE_NAME}: database is locked", ""]
    assert desk.store.error == ""
    assert names(tmp_path) == [("/", "q")]


def test_a_file_moved_away_is_noticed_and_written_once_it_is_back(desk: Desk, tmp_path: Path) -> None:
    desk.store.put("queue", ("/", "first"), {})
    desk.commit()
    (tmp_path / FILE_NAME).rename(tmp_path / "elsewhere")
    desk.store.put("queue", ("/", "second"), {})
    desk.store.after_commit(lambda: desk.done.append("written"))
    desk.thread.run_until(lambda: desk.failures)
    assert desk.failures == [f"{tmp_path / FILE_NAME}: No such file or directory"]
    (tmp_path / FILE_NAME).touch()
    desk.thread.run_until(lambda: "another file" in desk.store.error)
    (tmp_path / "elsewhere").rename(tmp_path / FILE_NAME)
    desk.thread.run_until(lambda: desk.done)
    assert names(tmp_path) == [("/", "first"), ("/", "second")]


def test_a_full_disk_loses_nothing(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    database = desk.store._database
    pages = database.execute("PRAGMA page_count").fetchone()[0]
    database.execute(f"PRAGMA max_page_count = {pages + 2}")  # SQLite's own "disk is full"
    for number in range(20):
        desk.store.put("queue", ("/", f"q{number}"), {"arguments": {"x": "y" * 1000}})
    desk.store.after_commit(lambda: desk.done.append("written"))
    desk.thread.run_until(lambda: desk.failures)
    assert "full" in desk.failures[0]
    assert names(tmp_path) == []  # not one of them: a transaction is whole
    database.execute("PRAGMA max_page_count = 1000000")
    desk.thread.run_until(lambda: desk.done)
    assert len(names(tmp_path)) == 20
    desk.store.close()


def test_close_writes_what_waits(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.store.put("queue", ("/", "a"), {})
    desk.store.after_commit(lambda: desk.store.put("queue", ("/", "b"), {}))
    desk.store.close()
    assert names(tmp_path) == [("/", "a"), ("/", "b")]


def test_close_tells_what_it_could_not_write(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    with sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        desk.store.put("queue", ("/", "a"), {})
        desk.thread.run_until(lambda: desk.failures)
        desk.store.put("queue", ("/", "b"), {})
        desk.store.close()
        other.execute("ROLLBACK")
    other.close()
    assert desk.failures[-1] == f"{tmp_path / FILE_NAME}: 2 changes of definitions are lost"


@pytest.mark.parametrize(
    "content",
    [b"this is no database, but it is long enough to be taken for one" * 100, b"SQLite format 3\0" + b"\xff" * 5000],
)
def test_a_file_that_is_no_database_is_one_clear_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE_NAME).write_bytes(content)
    for use in (lambda: Desk(tmp_path), lambda: read_definitions(tmp_path)):
        with pytest.raises(DefinitionError, match=FILE_NAME) as told:
            use()
        assert "\n" not in str(told.value)
    assert (tmp_path / FILE_NAME).read_bytes() == content  # it is evidence


def damaged(directory: Path, statement: str) -> Path:
    desk = Desk(directory)
    desk.store.put("queue", ("/", "q"), {})
    desk.store.close()
    other = sqlite3.connect(directory / FILE_NAME, isolation_level=None)
    other.execute(statement)
    other.close()
    return directory


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("UPDATE definitions SET body = '{'", 'queue ["/", "q"] cannot be read'),
        ("UPDATE definitions SET body = '[]'", 'queue ["/", "q"] has the wrong shape'),
        ("UPDATE meta SET value = '2'", "it has format 2, written by a newer Penstock; this one knows format 1"),
        ("DELETE FROM meta", "it does not say its format"),
        ("DROP TABLE meta", "not one of Penstock's definitions"),
        ("DROP TABLE definitions", "no such table"),
    ],
)
def test_damage_is_told_with_the_path_and_the_reason(tmp_path: Path, statement: str, words: str) -> None:
    damaged(tmp_path, statement)
    with pytest.raises(DefinitionError) as told:
        read_definitions(tmp_path)
    assert str(told.value).startswith(f"{tmp_path / FILE_NAME}: ")
    assert words in str(told.value)


def test_a_damaged_page_is_found_at_the_start(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    for number in range(2000):
        desk.store.put("queue", ("/", f"q{number}"), {"name": f"q{number}"})
    desk.store.close()
    path = tmp_path / FILE_NAME
    content = bytearray(path.read_bytes())
    content[3 * 4096 : 4 * 4096] = b"\x07" * 4096
    path.write_bytes(content)
    with pytest.raises(DefinitionError, match=r"damaged|malformed"):
        Desk(tmp_path)


def test_no_file_is_no_definitions(tmp_path: Path) -> None:
    assert read_definitions(tmp_path) == []
    assert not list(tmp_path.iterdir())  # and looking makes none


def test_reading_does_not_disturb_a_store_that_writes(desk: Desk, tmp_path: Path) -> None:
    for number in range(20):
        desk.store.put("queue", ("/", str(number)), {})
        desk.commit()
        assert len(names(tmp_path)) == number + 1
    assert desk.failures == []
