"""GET /api/flow/tables: what the pipeline's file says, or why there is nothing to say."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.management.tables import FILE_BYTES_MAX
from tests.management.web import Web
from tests.wire.live import LiveBroker


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tables")


@pytest.fixture(scope="module")
def broker(directory: Path) -> Iterator[LiveBroker]:
    with LiveBroker({"management.tables": str(directory)}) as live:
        yield live


@pytest.fixture
def file(directory: Path) -> Iterator[Path]:
    path = directory / "page.json"
    yield path
    path.unlink(missing_ok=True)


def sheet(**ranges: object) -> str:
    return json.dumps({"version": 1, "made_ms": 5, "ranges": ranges})


def test_without_a_pipeline_it_says_how_to_get_one():
    with LiveBroker() as live:
        client = Web(f"http://127.0.0.1:{live.manage()}")
        answer = client.get("flow/tables?range=15m")
        client.close()
    assert (answer["version"], answer["range"], answer["digest"]) == (1, "15m", None)
    assert "penstock up" in answer["reason"]
    assert "management.tables" in answer["reason"]


def test_a_pipeline_that_has_written_nothing_yet_is_told(web: Web):
    answer = web.get("flow/tables")
    assert answer["digest"] is None
    assert "nothing yet" in answer["reason"]


def test_the_range_that_is_asked_for_is_answered_as_it_stands_in_the_file(web: Web, file: Path):
    file.write_text(sheet(**{"15m": {"steps": 1}, "1h": {"steps": 2, "sentences": ["held <back>"]}}))
    assert web.get("flow/tables") == {
        "version": 1,
        "range": "1h",
        "digest": {"steps": 2, "sentences": ["held <back>"]},
    }
    assert web.get("flow/tables?range=15m")["digest"] == {"steps": 1}
    missing = web.get("flow/tables?range=24h")
    assert (missing["digest"], "nothing yet" in missing["reason"]) == (None, True)
    wrong = web.ask("GET", "flow/tables?range=2h")
    assert (wrong.status, wrong.reason) == (400, "'range' is one of 15m, 1h, 24h")


def test_a_new_file_is_seen_at_once(web: Web, file: Path):
    for number in range(5):
        new = file.with_name("page.json.new")
        new.write_text(sheet(**{"1h": {"number": number}}))
        new.replace(file)
        assert web.get("flow/tables")["digest"] == {"number": number}


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"version": 1}', '{"version": 1, "ranges": {"1h": {"half": }}}', "\xff"]
)
def test_a_file_that_is_not_the_pipelines_is_said_to_be_so(web: Web, file: Path, text: str):
    file.write_bytes(text.encode("latin-1"))
    answer = web.ask("GET", "flow/tables")
    assert answer.status == 503
    assert "page.json" in answer.reason


def test_a_file_that_is_too_large_is_not_read(web: Web, file: Path):
    with file.open("wb") as written:
        written.truncate(FILE_BYTES_MAX + 1)
    answer = web.ask("GET", "flow/tables")
    assert answer.status == 503
    assert str(FILE_BYTES_MAX) in answer.reason
