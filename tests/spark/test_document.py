"""docs/spark.md, held to the code: every option with where it means something and its default, every column."""

from __future__ import annotations

from pathlib import Path

from penstock.spark.encoder import KNOWN
from penstock.spark.options import _TABLE, Options, Use
from penstock.spark.schema import message_schema
from penstock.spark.session import JAVA_OPTIONS, SETTINGS
from tests.unit.test_documents import references, rows_without_test, section, table_rows

PAGE = (Path(__file__).parents[2] / "docs" / "spark.md").read_text("utf-8")
LETTERS = {
    Use.STREAM: "S",
    Use.STREAM_BATCH: "s",
    Use.QUEUE: "Q",
    Use.QUEUE_BATCH: "q",
    Use.SINK: "W",
    Use.SINK_BATCH: "w",
}


def names(cell: str) -> list[str]:
    return [name.strip().strip("`") for name in cell.split(",")]


def test_every_option_has_a_row_that_says_where_it_means_something():
    rows = {name: row[1] for row in table_rows(section(PAGE, "Options"))[2:] for name in names(row[0])}
    uses = {name: " ".join(LETTERS[use] for use in Use if use in row.uses) for name, row in _TABLE.items()}
    assert rows == {name: "all" if where == "S s Q q W w" else where for name, where in uses.items()}


def test_the_defaults_of_the_options_are_those_of_the_code():
    rows = {name: row[2] for row in table_rows(section(PAGE, "Options"))[2:] for name in names(row[0])}
    # Slots: a dataclass keeps its defaults in the fields.
    defaults = {one.name: one.default for one in Options.__dataclass_fields__.values()}
    plain = {name: defaults[row.field] for name, row in _TABLE.items() if row.field in defaults}
    for name, default in plain.items():
        if isinstance(default, bool):
            assert rows[name] == str(default).lower(), name
        elif isinstance(default, int | str):
            assert rows[name] == str(default), name


def test_every_column_has_a_row_with_its_type_and_whether_it_is_published():
    rows = table_rows(section(PAGE, "Columns"))[2:]
    types = {name: row[1] for row in rows for name in names(row[0])}
    assert types == {field.name: field.dataType.simpleString() for field in message_schema()}
    published = {name for row in rows for name in names(row[0]) if row[3] != "no"}
    assert published == KNOWN.keys() - {"value"}


def test_every_promise_names_the_tests_that_show_it():
    promises = section(PAGE, "What holds")
    assert not list(rows_without_test(promises))
    assert len(references(promises)) >= 10


def test_every_setting_of_a_local_session_has_its_reason():
    assert all(reason for *_, reason in SETTINGS)
    assert all(reason for _, reason in JAVA_OPTIONS)
