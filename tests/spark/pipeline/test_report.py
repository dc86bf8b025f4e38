"""The report: a digest of the tables says what happened; the file that shows it needs nothing else and runs nothing."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from datetime import datetime, timedelta
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from penstock.pipeline.command import pipeline
from penstock.spark.flowjob.own import large_session
from penstock.spark.ledger import Ledger, append
from penstock.spark.report.cells import rows_of
from penstock.spark.report.contents import KINDS, LISTINGS
from penstock.spark.report.digest import BYTES_MAX, digest, encoded, read_advice
from penstock.spark.report.frame import COLUMNS, ms_of, steps_of
from penstock.spark.report.gauges import QUALITY_MAX
from penstock.spark.report.html import page
from penstock.spark.report.page import PageWriter
from penstock.spark.report.svg import LABELS, Axis, Line, level, lines
from penstock.spark.report.words import advised_for, lasting
from penstock.spark.tables.quality import RULES
from penstock.spark.tables.schema import TABLES
from tests.spark.pipeline.story import ADVICE, CONNECTIONS, END, LASTING, Rows, arrow, channel, story, write

HOUR = timedelta(hours=1)
PAGE_BYTES_MAX = 1 << 20


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("story")
    write(path, story())
    return path


@pytest.fixture(scope="module")
def told(root: Path) -> dict[str, Any]:
    return digest(Ledger(root), END - HOUR, END, 10.0)


def by(rows: list[dict[str, Any]], key: str, value: str) -> dict[str, Any]:
    return next(row for row in rows if row[key] == value)


def minute(value: dict[str, Any], at_ms: int) -> float:
    return (at_ms - value["since_ms"]) / 60_000


# The digest.


def test_the_summary_says_who_was_held_back_by_what_for_how_long_and_what_helps(told: dict[str, Any]):
    first, *others = told["summary"]
    assert first["text"] == "Within 1 h, 3 publishers were held back."
    store = by(others, "cause", "store")
    assert store["text"].startswith(
        "`orders-api` and `billing` were held back by queue `orders`, which waited for the disk: 12 min"
    )
    assert store["chain"] == ["orders-api", "channel 1 of orders-api", "queue orders", "store"]
    assert (minute(told, store["began_ms"]), minute(told, store["ended_ms"])) == (6, 21)
    assert store["help"][0] == "a disk that syncs faster"
    assert not store["now"]
    saturated = by(others, "cause", "saturated")
    assert saturated["now"]
    assert "waited for the consumers of queue `orders`" in saturated["text"]
    assert "as was every publisher" in by(others, "cause", "memory")["text"]
    assert by(others, "cause", "queue")["bottleneck"] == "queue thumbnails"


def test_verdicts_say_of_each_client_when_and_by_what_it_was_held_back(told: dict[str, Any]):
    orders = by(told["verdicts"], "name", "orders-api")
    assert set(orders["by_cause_s"]) == {"store", "saturated"}
    at = [0, 10, 24, 45, 59]  # minutes
    steps = [m * 60 // int(told["step_s"]) for m in at]
    assert [orders["causes"][i] for i in steps] == ["", "store", "", "saturated", "saturated"]
    assert all((orders["share"][i] > 0.5) == bool(orders["causes"][i]) for i in steps)
    assert sum(orders["by_cause_s"].values()) == pytest.approx(orders["held_s"], abs=0.01)


def test_the_timeline_has_every_blocked_stage_in_the_order_of_the_chain(told: dict[str, Any]):
    kinds = [one["kind"] for one in told["stages"]]
    assert kinds == sorted(kinds, key=["connection", "channel", "queue", "store"].index)
    queue = by(told["stages"], "label", "queue orders")
    blocked = [i * told["step_s"] / 60 for i, share in enumerate(queue["share"]) if share]
    assert (min(blocked), max(blocked)) == (6, pytest.approx(21 - told["step_s"] / 60))
    assert not any(one["label"].startswith("channel 10.0") for one in told["stages"])


def test_the_heat_map_says_who_waited_for_whom_and_how_long(told: dict[str, Any]):
    heat = told["heat"]
    cells = {(heat["upstream"][up], heat["downstream"][down]): s for up, down, s, _ in heat["cells"]}
    assert cells["queue orders", "store"] == pytest.approx(cells["channel 1 of orders-api", "queue orders"])
    assert cells["billing", "memory alarm"] > 0
    assert ("store", "queue orders") not in cells


def test_blockers_depth_syncs_and_resources_are_summed_up(told: dict[str, Any]):
    assert told["blockers"][0]["bottleneck"] == "store"
    assert (told["blockers"][0]["connections"], told["blockers"][0]["present_s"]) == (2, 900.0)
    orders = told["depth"][0]
    assert (orders["stage"], orders["limit"], orders["consumers"]) == ("queue orders", 8000, 2)
    assert orders["limit_share"] > 1
    rows = [row for row in story()["depth"] if row["stage"] == "queue orders"]
    assert orders["messages_max"] == max(orders["messages"]) == max(row["messages_max"] for row in rows)
    assert orders["messages_last"] == rows[-1]["messages_last"] > 9000
    slow = told["syncs"]["p99_ms"][int(10 * 60 / told["step_s"])]
    quick = told["syncs"]["p99_ms"][-1]
    assert slow > 10 * quick
    assert max(told["resources"]["memory_used_bytes"]) > 1_600_000_000
    assert told["resources"]["memory_limit_bytes"][0] == 1_600_000_000


def test_forecasts_that_come_true_first_come_first(told: dict[str, Any]):
    assert [(one["subject"], one["unit"]) for one in told["forecasts"]] == [
        ("queue mail.out", "messages"),
        ("queue mail.out", "bytes"),
        ("memory", "bytes"),
        ("disk", "bytes"),
    ]
    assert told["forecasts"][0]["hits_at_ms"] == ms_of(END + timedelta(minutes=12))
    assert told["forecasts"][3]["hits_at_ms"] is None


def test_a_forecast_has_what_was_and_a_straight_line_to_where_it_hits_its_limit(told: dict[str, Any]):
    end = ms_of(END)
    messages, _, memory, disk = told["forecasts"]
    assert messages["values"][-1] == 7300
    assert messages["values"][-7] == 7300 - 3.75 * 120  # steps of 20 s
    # It is fitted to the last 300 s, goes on to the limit, and there is room beside that.
    assert messages["trend"] == [[end - 300_000, 6175.0], [end + 720_000, 10_000.0]]
    assert end + 720_000 < messages["drawn_until_ms"] <= end + 3_600_000
    # A limit that is too far away is not on the chart; the line goes on to the rim.
    assert memory["drawn_until_ms"] == end + 3_600_000
    assert memory["trend"][1] == [end + 3_600_000, 610e6 + 11_000 * 3600]
    assert disk["trend"][1][0] == disk["drawn_until_ms"] == end + 900_000


def test_tables_of_before_units_have_forecasts_all_the_same(tmp_path: Path):
    window = END - timedelta(seconds=10)
    known = {"window": window, "value": 3e9, "limit": 4e9, "slope_per_s": 0.0}
    rows: Rows = {"forecast": [{**known, "subject": subject} for subject in ("queue q", "memory")]}
    found = digest(write(tmp_path, rows), END - HOUR, END, 10.0)
    assert {one["subject"]: one["unit"] for one in found["forecasts"]} == {"queue q": "messages", "memory": "bytes"}
    words = Seen(page(found, 0)).words
    assert "Memory does not reach its limit of 3.7 GiB" in words
    assert "Queue q does not reach its limit of 4,000,000,000" in words


def test_every_column_that_is_shown_is_in_the_rows_and_of_a_known_kind(root: Path):
    found = digest(Ledger(root), END - HOUR, END, 10.0, advice=ADVICE)
    axis = Axis(found["since_ms"], round(found["step_s"] * 1000), found["steps"])
    for name, listing in LISTINGS.items():
        row = rows_of(found, name, axis)[0]
        for column in listing.columns:
            assert column.kind in KINDS
            assert column.kind == "foretold" or column.field in row, (name, column.field)
    assert found["parts"] == json.loads(json.dumps(found["parts"]))


def test_failures_of_checks_come_first_with_an_example(told: dict[str, Any]):
    worst = told["quality"][0]
    assert (worst["table"], worst["failures"], worst["rows"]) == ("events", 1, 21_600)
    assert "sneeze" in worst["example"]


def test_what_is_blocked_at_the_end_is_what_the_newest_window_says(root: Path, told: dict[str, Any]):
    assert told["open"] == [
        {"stage": "queue orders", "cause": "consumers of queue orders", "began_ms": ms_of(END - timedelta(minutes=18))}
    ]
    before = digest(Ledger(root), END - HOUR, END - timedelta(seconds=10), 10.0)
    assert before["open"] == []


@pytest.fixture
def idle(tmp_path: Path) -> Ledger:
    """Tables of six hours in which a broker that does nothing is looked at twice."""
    ends = (END - 6 * HOUR, END - timedelta(seconds=10))
    return write(tmp_path / "idle", {"resources": [{"window": window, "connections": 1} for window in ends]})


def test_a_stretch_without_rows_says_that_nothing_was_held_back(idle: Ledger, tmp_path: Path):
    quiet = digest(idle, END - 5 * HOUR, END - 2 * HOUR, 10.0)
    assert quiet["summary"][0]["text"] == "Nothing was held back within 3 h."
    assert (quiet["known_s"], quiet["steps"] * quiet["step_s"]) == (10_800.0, 10_800.0)
    assert quiet["stages"] == quiet["verdicts"] == quiet["longest"] == quiet["depth"] == []
    assert "Nothing was held back" in page(quiet, 0)
    file = tmp_path / "report.html"
    code, out, err = run("--tables", str(idle.root), "--to", str(file), "--since", "3h", "--until", "2h")
    assert (code, err) == (0, "")
    assert out == f"{file}: 2026-03-04 10:00 to 2026-03-04 13:00 UTC. Nothing was held back within 3 h.\n"


def test_of_a_time_before_the_tables_begin_there_is_no_report(root: Path, tmp_path: Path):
    file = tmp_path / "report.html"
    for until in ("2020-01-01", "2026-03-04T14:00", "1h"):
        code, out, err = run("--tables", str(root), "--to", str(file), "--until", until)
        assert (code, out) == (1, "")
        assert err == f"penstock: --until {until}: the tables know 2026-03-04T14:00 to 2026-03-04T15:00 UTC only\n"
    assert not file.exists()
    code, out, _ = run("--tables", str(root), "--to", str(file), "--since", "5h", "--until", "2026-03-04T14:05")
    assert (code, out.partition(": ")[2]) == (
        0,
        "2026-03-04 14:00 to 2026-03-04 14:05 UTC. Nothing was held back within 5 min.\n",
    )


def test_of_a_day_of_which_the_tables_have_an_hour_shares_are_of_the_hour(root: Path, told: dict[str, Any]):
    day = digest(Ledger(root), END - 24 * HOUR, END, 10.0)
    assert (day["known_s"], day["summary"][0]) == (3600.0, told["summary"][0])
    assert [one["text"] for one in day["summary"]] == [one["text"] for one in told["summary"]]
    assert [one["saturated_share"] for one in day["depth"]] == [one["saturated_share"] for one in told["depth"]]
    # What is not known looks like nothing at all, not like a stage that was never blocked.
    grounds = [re.findall(r'class="ground" x="([\d.]+)"', page(one, 0))[0] for one in (told, day)]
    assert (float(grounds[0]), float(grounds[1]) > 900) == (LABELS, True)


def test_a_client_that_comes_back_is_one_client(tmp_path: Path):
    rows: Rows = {"verdicts": [], "chains": []}
    for i in range(30):
        window = END - timedelta(seconds=10 * (30 - i))
        id_ = f"connection 10.0.0.5:{50_000 + i} -> 10.0.0.1:5672"
        rows["verdicts"].append(
            {"window": window, "connection": id_, "client": "worker", "cause": "queue", "bottleneck": "queue q"}
            | {"chain": [id_, channel(id_), "queue q"], "share": 0.5}
        )
        rows["chains"].append(
            {"window": window, "upstream": channel(id_), "downstream": "queue q", "blocked_us": 5_000_000, "blocks": 1}
        )
    found = digest(write(tmp_path, rows), END - timedelta(minutes=5), END, 10.0)
    assert [(one["name"], one["held_s"]) for one in found["verdicts"]] == [("worker", 150.0)]
    assert [(one["label"], one["blocked_s"]) for one in found["stages"]] == [("channel 1 of worker", 150.0)]


def test_a_client_of_several_connections_is_held_back_for_as_long_as_the_worst_of_them(tmp_path: Path):
    rows: Rows = {"verdicts": [], "blockers": [], "chains": []}
    # The first is held back all the time, the others half of it; the last two by a channel of their own.
    ids = [f"connection 10.0.0.5:{50_000 + n} -> 10.0.0.1:5672" for n in range(4)]
    behind = (("queue", "queue a"), ("queue", "queue b"), ("channel", channel(ids[2])), ("channel", channel(ids[3])))
    for i in range(30):
        window = END - timedelta(seconds=10 * (30 - i))
        for n, (id_, (cause, bottleneck)) in enumerate(zip(ids, behind, strict=True)):
            share = 0.5 if n else 1.0
            judged = {"window": window, "cause": cause, "bottleneck": bottleneck}
            known = {"connection": id_, "client": "worker", "chain": [id_, bottleneck], "share": share}
            rows["verdicts"].append({**judged, **known})
            rows["blockers"].append({**judged, "connections": 1, "blocked_us": int(share * 10_000_000)})
            if i % 2:
                wait = {"upstream": channel(id_), "downstream": "queue c", "blocked_us": 10_000_000, "blocks": 1}
                rows["chains"].append({"window": window, **wait})
    found = digest(write(tmp_path, rows), END - HOUR, END, 10.0)
    (worker,) = found["verdicts"]
    assert (worker["name"], worker["held_s"], worker["cause"]) == ("worker", 300.0, "queue")
    assert worker["by_cause_s"] == {"channel": 75.0, "queue": 225.0}
    assert sum(worker["share"]) * found["step_s"] == 300.0
    label = "channel 1 of worker"
    blockers = {one["bottleneck"]: one for one in found["blockers"]}
    fields = ("connections", "blocked_s", "present_s")
    assert {name: tuple(one[field] for field in fields) for name, one in blockers.items()} == {
        "queue a": (1, 300.0, 300.0),
        "queue b": (1, 150.0, 300.0),
        label: (2, 300.0, 300.0),
    }
    assert {one["bottleneck"]: one["held_s"] for one in found["summary"][1:]} == {
        "queue a": 300.0,
        "queue b": 150.0,
        label: 150.0,
    }
    # Its channels were blocked in every other window, all at once.
    assert [(one["label"], one["blocked_s"]) for one in found["stages"]] == [(label, 150.0)]


def test_a_queue_that_is_sampled_now_and_then_did_nothing_the_rest_of_the_time(tmp_path: Path):
    row = {"stage": "queue q", "saturated_share": 1.0, "blocked_share": 0.5, "received_rate": 360.0, "sent_rate": None}
    once = write(tmp_path / "once", {"depth": [{"window": END - timedelta(minutes=30), **row}]})
    (queue,) = digest(once, END - HOUR, END, 10.0)["depth"]
    assert (queue["saturated_share"], queue["blocked_share"]) == (round(10 / 3600, 4), round(5 / 3600, 4))
    assert (queue["received_rate"], queue["sent_rate"]) == (1.0, None)
    times = [END - timedelta(minutes=10 * n) for n in range(1, 145)]
    seldom = write(tmp_path / "seldom", {"depth": [{"window": window, **row} for window in times]})
    (queue,) = digest(seldom, END - 24 * HOUR, END, 10.0)["depth"]
    assert (queue["saturated_share"], queue["blocked_share"], queue["received_rate"]) == (0.0167, 0.0083, 6.0)


def test_a_client_that_calls_itself_store_is_not_the_store(tmp_path: Path):
    id_ = CONNECTIONS["billing"]
    window = END - timedelta(seconds=10)
    rows: Rows = {
        "verdicts": [{"window": window, "connection": id_, "client": "store", "cause": "store", "bottleneck": "store"}],
        "chains": [{"window": window, "upstream": id_, "downstream": "store", "blocked_us": 10, "blocks": 1}],
    }
    found = digest(write(tmp_path, rows), END - HOUR, END, 10.0)
    assert found["heat"]["upstream"] == ["client store"]
    assert found["heat"]["downstream"] == ["store"]


def test_a_client_that_was_blocked_for_too_short_to_be_judged_has_its_name_all_the_same(tmp_path: Path):
    id_ = CONNECTIONS["billing"]
    window = END - timedelta(seconds=10)
    rows: Rows = {
        "samples": [{"window": window, "stage": id_, "client": "importer"}],
        "chains": [{"window": window, "upstream": id_, "downstream": channel(id_), "blocked_us": 10, "blocks": 1}],
    }
    found = digest(write(tmp_path, rows), END - HOUR, END, 10.0)
    assert (found["heat"]["upstream"], found["heat"]["downstream"]) == (["importer"], ["channel 1 of importer"])


def test_whatever_is_in_the_tables_a_digest_stays_small(tmp_path: Path):
    name = "ü" * 255
    rows: Rows = {
        "verdicts": [],
        "chains": [],
        "depth": [],
        "blocks": [],
        "blockers": [],
        "quality": [],
        "forecast": [],
    }
    for i in range(2000):
        window = END - timedelta(seconds=10 * (1 + i % 300))
        id_ = f"connection 10.0.{i // 250}.{i % 250}:50000 -> 10.0.0.1:5672"
        queue = f"queue {i} {name}"
        rows["verdicts"].append(
            {"window": window, "connection": id_, "client": f"{i} {name}", "cause": "queue", "bottleneck": queue}
            | {"chain": [id_, channel(id_), queue], "share": float("nan") if i % 7 == 0 else 0.123456789}
        )
        rows["chains"].append(
            {"window": window, "upstream": channel(id_), "downstream": queue, "blocked_us": 1 + i, "blocks": 1}
        )
        rows["depth"].append(
            {
                "window": window,
                "stage": queue,
                "messages_max": 10**12 + i,
                "messages_last": 1,
                "saturated_share": float("inf"),
            }
        )
        rows["blocks"].append(
            {"window": window, "stage": queue, "cause": "store", "root": "store", "longest_us": i, "count": 1}
        )
        rows["blockers"].append(
            {"window": window, "bottleneck": queue, "cause": "queue", "connections": 1, "blocked_us": 5}
        )
        rows["quality"].append(
            {"window": window, "table": f"t{i}", "rule": name, "rows": 1, "failures": 1, "example": name * 4}
        )
        rows["forecast"].append(
            {"window": window, "subject": queue, "value": 1.0, "limit": 2.0, "slope_per_s": float("nan")}
        )
    ledger = write(tmp_path, rows)
    advice = {"sentence": name * 30, "options": [{"why": name} for _ in range(60)]}
    found = digest(ledger, END - HOUR, END, 10.0, advice=advice)
    text = encoded(found)
    assert len(text) <= BYTES_MAX
    assert found["verdicts"]
    assert found["advice"] == advice or "too large" in found["advice"]["unreadable"]
    assert {name: len(found[name]) + more for name, more in found["left_out"].items()} == {
        "stages": 2000,
        "verdicts": 2000,
        "depth": 2000,
    }
    PageWriter(ledger, tmp_path).write()
    assert (tmp_path / "page.json").stat().st_size <= PAGE_BYTES_MAX
    assert "<main>" in page(found, 0)


def test_rows_that_spark_wrote_give_the_same_digest(
    spark: SparkSession, root: Path, told: dict[str, Any], tmp_path: Path
):
    source = Ledger(root)
    with Ledger(tmp_path).writing() as ledger:
        changes = [append(table, source.read(large_session(spark), table)) for table in ("verdicts", "syncs")]
        ledger.commit(0, changes, query="spark", window_s=10.0)
    found = digest(Ledger(tmp_path), END - HOUR, END, 10.0)
    assert {part: found[part] for part in ("summary", "verdicts", "syncs")} == {
        part: told[part] for part in ("summary", "verdicts", "syncs")
    }


@pytest.mark.parametrize("seconds", [1, 59, 60, 900, 3600, 5400, 86_400, 7 * 86_400, 400 * 86_400])
@pytest.mark.parametrize("window_s", [1.0, 2.5, 10.0, 60.0])
def test_steps_are_whole_windows_that_hold_the_stretch_and_end_with_it(seconds: int, window_s: float):
    until = ms_of(END)
    steps = steps_of(until - seconds * 1000, until, window_s, 180)
    assert steps.count <= 180
    assert steps.step_ms % steps.window_ms == 0
    assert steps.since_ms <= until - seconds * 1000
    assert steps.since_ms + steps.step_ms > until - seconds * 1000
    assert steps.until_ms - until < steps.window_ms
    slices = list(steps.slices())
    assert slices[0][0] == steps.since_ms
    assert slices[-1][1] == steps.until_ms
    assert all(one[1] == other[0] for one, other in pairwise(slices))


def test_every_column_that_is_read_is_in_the_tables():
    for table, columns in COLUMNS.items():
        assert set(columns) <= {name for name, _, _ in TABLES[table].columns}, table


def test_levels_and_durations_are_in_words():
    assert [level(share) for share in (0.0, 0.001, 0.3, 0.5, 0.7, 1.0)] == [
        "", "level-1", "level-2", "level-3", "level-4", "level-5"
    ]  # fmt: skip
    assert [lasting(seconds) for seconds, _ in LASTING] == [text for _, text in LASTING]


def test_moments_below_a_chart_are_told_apart_and_nothing_is_drawn_where_nothing_is_known():
    axis = Axis(ms_of(END), 1000, 100)
    gone = [1.0, 2.0, *[None] * 50, 3.0, *[None] * 47]
    drawn = lines("", axis, [Line("messages", gone, "series-1")], str)
    words = re.findall(r'class="tick"[^>]*text-anchor="(?:middle|end)">(\d\d:[^<]+)<', drawn)
    assert len(words) == len(set(words)) > 2
    for kind in ("area", "line"):
        path = re.search(rf'class="{kind} series-1" d="([^"]+)"', drawn)
        assert path is not None
        assert path[1].count("M") == 2, path[1]


# The page's file.


def test_the_page_s_file_has_three_ranges_and_sums_up_only_what_may_have_changed(root: Path, tmp_path: Path):
    now = [0.0]
    advice = tmp_path / "advice.json"
    advice.write_text('{"sentence": "more credit"}')
    writer = PageWriter(Ledger(root), tmp_path, clock=lambda: now[0])
    seen = []
    for at, sentence in ((0.0, "more credit"), (5.0, "less"), (20.0, "none"), (200.0, "all")):
        now[0] = at
        advice.write_text(json.dumps({"sentence": sentence}))
        assert writer.write()
        sheet = json.loads((tmp_path / "page.json").read_bytes())
        assert sheet["version"] == 1
        seen.append([sheet["ranges"][name]["advice"]["sentence"] for name in ("15m", "1h", "24h")])
    assert seen == [
        ["more credit"] * 3,
        ["less", "more credit", "more credit"],
        ["none", "none", "more credit"],
        ["all"] * 3,
    ]
    assert not list(tmp_path.glob(".page*"))
    ranges = json.loads((tmp_path / "page.json").read_bytes())["ranges"]
    assert {name: round(one["steps"] * one["step_s"]) for name, one in ranges.items()} == {
        "15m": 900,
        "1h": 3600,
        "24h": 86_400,
    }


def test_a_range_that_cannot_be_summed_up_stays_as_it_was_and_the_others_go_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    hours_ago = [{"window": END - 6 * HOUR, "stage": "queue q", "messages_max": 1}]
    with Ledger(tmp_path).writing() as ledger:
        ledger.commit(0, [append("depth", arrow("depth", hours_ago))], query="story", window_s=10.0)
        (part,) = ledger.files("depth")
        ledger.commit(1, [append(table, arrow(table, rows)) for table, rows in story().items()], query="story")
    now = [0.0]
    writer = PageWriter(Ledger(tmp_path), tmp_path, clock=lambda: now[0])
    whole = part.read_bytes()

    def written(at_s: float, content: bytes) -> list[str]:
        """What the ranges in the file say when it is written then, and the part is this."""
        now[0] = at_s
        part.write_bytes(content)
        (tmp_path / "advice.json").write_text(json.dumps({"sentence": f"at {at_s:g}"}))
        assert writer.write()
        ranges = json.loads((tmp_path / "page.json").read_bytes())["ranges"]
        return [one["advice"]["sentence"] for one in ranges.values()]

    assert written(0, whole) == ["at 0"] * 3
    torn = whole[: len(whole) // 2]
    assert written(200, torn) == ["at 200", "at 200", "at 0"]
    assert written(400, torn) == ["at 400", "at 400", "at 0"]
    # It is not tried again before it is due.
    assert written(405, whole) == ["at 405", "at 400", "at 0"]
    assert written(600, whole) == ["at 600"] * 3
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith(f"{part} is damaged: ")
    assert "\n" not in line
    assert not any(record.exc_info for record in caplog.records)


def test_where_no_range_can_be_summed_up_there_is_no_file(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    ledger = write(tmp_path, {"depth": [{"window": END - timedelta(seconds=10), "stage": "queue q"}]})
    (part,) = ledger.files("depth")
    part.unlink()
    writer = PageWriter(ledger, tmp_path)
    assert not writer.write(whole=True)
    assert not writer.write(whole=True)
    assert not (tmp_path / "page.json").exists()
    assert len(caplog.records) == 1


def test_tables_without_rows_make_no_file(tmp_path: Path):
    with Ledger(tmp_path).writing() as ledger:
        ledger.commit(0, [], query="q", window_s=10.0)
        assert not PageWriter(ledger, tmp_path).write()
    assert not (tmp_path / "page.json").exists()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "advice.json is broken: it is no JSON object."),
        ("[1]", "advice.json is broken: it is no JSON object."),
        ("{", "advice.json is broken: it is no JSON object."),
        ("[" * 60_000, "advice.json is broken: it is no JSON object."),
        ('{"a": "' + "x" * 70_000 + '"}', "advice.json is too large to be shown: 70,009 bytes, at most 65,536."),
    ],
)
def test_advice_that_cannot_be_shown_is_told_as_that_and_not_as_none(root: Path, tmp_path: Path, text: str, why: str):
    assert read_advice(tmp_path) is None
    (tmp_path / "advice.json").write_text(text)
    found = digest(Ledger(root), END - HOUR, END, 10.0, advice=read_advice(tmp_path))
    assert found["advised"] == ""
    seen = Seen(page(found, 0)).words
    assert f"There is advice, but {why}" in seen
    assert "None yet: " not in seen
    assert "None is better." not in seen


# The file.


class Seen(HTMLParser):
    """Which elements and attributes a browser would see, and what is read."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.words = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.words += data


EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>`&amp;"


@pytest.fixture
def evil(tmp_path: Path) -> Path:
    rows = story()
    for table in rows.values():
        for row in table:
            for name, value in row.items():
                if isinstance(value, str) and name not in ("cause", "resource"):
                    row[name] = value.replace("orders-api", EVIL).replace("queue orders", f"queue {EVIL}")
                elif isinstance(value, list):
                    row[name] = [one.replace("queue orders", f"queue {EVIL}") for one in value]
    write(tmp_path, rows)
    (tmp_path / "advice.json").write_text(
        json.dumps({"sentence": EVIL, "options": [{"settings": {EVIL: EVIL}, "why": EVIL}]})
    )
    return tmp_path


def test_names_in_the_report_are_names_and_never_markup(evil: Path):
    text = page(digest(Ledger(evil), END - HOUR, END, 10.0, advice=read_advice(evil)), 0)
    seen = Seen(text)
    assert not {"script", "img", "iframe", "link", "object", "form", "base", "a"} & set(seen.tags)
    assert not [name for name, _ in seen.attributes if name.startswith("on") or name in ("src", "href", "style")]
    assert "<script>alert(1)</script>" in seen.words
    assert ("http-equiv", "Content-Security-Policy") in seen.attributes
    assert ("content", "default-src 'none'; style-src 'unsafe-inline'") in seen.attributes
    assert re.findall(r"https?://[^\"]+", text.replace("http://www.w3.org/2000/svg", "")) == []
    assert "url(" not in text
    assert "@import" not in text


def test_the_report_says_it_all_in_words_too(root: Path, told: dict[str, Any]):
    seen = Seen(page(told, ms_of(END)))
    words = re.sub(r"\s+", " ", seen.words)
    assert "Within 1 h, 3 publishers were held back." in words
    assert "Queue mail.out reaches its limit of 10,000 at 15:12, in 12 min, at this trend" in words
    assert "Queue mail.out reaches its limit of 64.0 MiB at 15:32" in words
    assert "42.0 MiB now, +11.7 KiB/s" in words
    assert "4 March 2026, 14:00 to 15:00 UTC" in words
    assert "What helps: a disk that syncs faster" in words
    charts = [value for name, value in seen.attributes if name == "aria-label"]
    assert any(one.startswith("Blocks over time of 8 stages") for one in charts)
    assert any(one.startswith("Who was held back when") and "orders-api 28 min" in one for one in charts)
    assert seen.tags.count("svg") == seen.attributes.count(("role", "img"))
    assert seen.tags.count("table") == seen.tags.count("caption")
    assert seen.tags.count("h1") == 1


SECTIONS = (
    "summary", "verdicts", "timeline", "heat", "blockers", "depth", "syncs", "resources", "forecasts", "advice",
    "single", "quality",
)  # fmt: skip


def test_the_report_has_every_section_and_in_them_who_blocked_whom_and_what_was_advised_and_measured(root: Path):
    text = page(digest(Ledger(root), END - HOUR, END, 10.0, advice=ADVICE), 0)
    parts = {one.partition('"')[0]: Seen(one.partition(">")[2]) for one in text.split('<section id="')[1:]}
    assert tuple(parts) == SECTIONS
    titles = [value for name, value in parts["heat"].attributes if name == "title"]
    assert "queue orders waited for store: 12 min 16 s, 3,873 blocks" in titles
    assert parts["heat"].tags.count("td") == len(titles) + parts["heat"].words.count("·")
    said = parts["advice"].words
    sentence = ADVICE["sentence"].replace("`", "")
    assert sentence in parts["summary"].words
    made = "Made 2026-03-04 14:02 UTC, for throughput, of orders only: 1 publisher, persistent messages of 100 bytes, "
    assert f"{sentence}advice {made}" in parts["summary"].words
    for words in (
        made,
        sentence,
        "credit.queue_store=2000,500 41,000180 ms",  # as it is
        "credit.queue_store=8000,2000 credit.channel_queue=800,400 53,800142 ms",
        "No credit makes the consumers of queue orders faster.",
        "Set: credit.queue_store=8000,2000 credit.channel_queue=800,400",
        ADVICE["applied"]["sentence"],
        "before40,21096 ms–3,86082 %202 MiB",
        "after51,94071 ms–3,87041 %210 MiB",
    ):
        assert words in said
    assert "again" not in said


def test_advice_says_for_what_it_is():
    assert advised_for({"goal": "latency", "scenario": "1 publisher"}) == "for latency, of: 1 publisher"
    assert advised_for({"goal": "balanced"}) == "for a balance"
    assert not advised_for({})


def test_there_is_room_for_every_rule_that_is_said_to_hold():
    assert sum(map(len, RULES.values())) < QUALITY_MAX


def test_what_was_tried_and_taken_back_is_not_told_as_set(root: Path):
    applied = {**ADVICE["applied"], "rolled_back": True, "worse": "less throughput"}
    found = digest(Ledger(root), END - HOUR, END, 10.0, advice={**ADVICE, "applied": applied})
    tried = "Tried: credit.queue_store=8000,2000 credit.channel_queue=800,400"
    assert found["advised"].replace("`", "").startswith(f"{tried}. That was worse (less throughput), so the old values")
    parts = {one.partition('"')[0]: Seen(one.partition(">")[2]) for one in page(found, 0).split('<section id="')[1:]}
    assert tried in parts["summary"].words
    assert ADVICE["sentence"].replace("`", "") not in parts["summary"].words
    assert tried in parts["advice"].words
    assert "Set: " not in parts["advice"].words


# The command.


def run(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(pipeline(), ["report", *arguments])
    return done.exit_code, done.stdout, done.stderr


def test_the_command_writes_the_file_and_says_what_is_in_it(root: Path, tmp_path: Path):
    file = tmp_path / "report.html"
    code, out, err = run("--tables", str(root), "--to", str(file))
    assert (code, err) == (0, "")
    assert out == f"{file}: 2026-03-04 14:00 to 2026-03-04 15:00 UTC. Within 1 h, 3 publishers were held back.\n"
    code, out, _ = run("--tables", str(root), "--to", str(file), "--since", "10m", "--until", "2026-03-04T14:35+00:00")
    assert (code, out.partition(": ")[2]) == (
        0,
        "2026-03-04 14:25 to 2026-03-04 14:35 UTC. Within 10 min, one publisher was held back.\n",
    )
    assert "camera-3" in file.read_text("utf-8")
    code, out, err = run(
        "--tables", str(root), "--to", str(file), "--since", "0001-01-01", "--until", "9999-12-31T23:59:59"
    )
    assert (code, err) == (0, "")
    assert out == f"{file}: 2026-03-04 14:00 to 2026-03-04 15:00 UTC. Within 1 h, 3 publishers were held back.\n"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--since", "5x"), "--since 5x: not a time"),
        (("--since", "10"), "--since 10: not a time"),
        (("--since", "99999999d"), "more than ten years"),
        (("--since", "2027-01-01"), "not before the end"),
        (("--until", "soon"), "--until soon: not a time"),
        (("--until", "0001-01-01"), "--until 0001-01-01: the tables know 2026-03-04T14:00"),
        (("--until", "0001-01-01", "--since", "3660d"), "--until 0001-01-01: the tables know 2026-03-04T14:00"),
        (("--until", "3660d", "--since", "3660d"), "--until 3660d: the tables know 2026-03-04T14:00"),
        (("--until", "0001-01-01T00:00+01:00"), "not a time"),
        (("--since", "0001-01-01T00:00+01:00"), "not a time"),
        (("--to", "/proc/none/report.html"), "/proc/none/report.html: No such file"),
        (("--tables", "/proc/none"), "there are no tables in /proc/none"),
    ],
)
def test_a_mistake_is_told_in_one_line(root: Path, arguments: tuple[str, ...], line: str):
    code, out, err = run("--tables", str(root), *arguments)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert err.startswith("penstock: ")
    assert line in err


def test_a_report_needs_no_java(root: Path, tmp_path: Path):
    file = tmp_path / "report.html"
    command = [sys.executable, "-m", "penstock", "pipeline", "report", "--tables", str(root), "--to", str(file)]
    bare = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"} | {"PATH": str(tmp_path)}
    done = subprocess.run(command, env=bare, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert file.read_text("utf-8").startswith("<!doctype html>")


def test_a_moment_is_of_utc(root: Path, tmp_path: Path):
    found = digest(Ledger(root), datetime.fromisoformat("2026-03-04T16:00+02:00"), END, 10.0)
    assert found["since_ms"] == ms_of(END - HOUR)
