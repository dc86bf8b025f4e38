"""The History page, as a person sees it: a broker whose pipeline has made tables of an hour, and their digest."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.site import Site, Visit
from tests.browser.test_manners import NARROWEST, OFFENCES
from tests.wire.waiting import LIMIT_S

pytest.importorskip("pyspark", reason="the pipeline's tables need it")

EVIL = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tables")


@pytest.fixture(scope="module")
def site(browser: Browser, tables: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    one = Site(tmp_path_factory.mktemp("site"), "--set", f"management.tables={tables}")
    yield one
    one.stop()
    assert " crash " not in one.log(), one.log()


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables of an hour that ends now, with what the advisor says of it, and page.json."""
    from penstock.spark.report.page import PageWriter
    from tests.spark.pipeline.story import ADVICE, WINDOW_S, story, write

    now_s = datetime.now(UTC).timestamp() // WINDOW_S * WINDOW_S
    root = tmp_path_factory.mktemp("ledger")
    (root / "advice.json").write_text(json.dumps(ADVICE))
    assert PageWriter(write(root, story(datetime.fromtimestamp(now_s, UTC))), root).write()
    return root


@pytest.fixture(scope="module")
def sheet(ledger: Path) -> dict[str, Any]:
    """What the pipeline has written; the ledger's own files are elsewhere than the broker looks."""
    found: dict[str, Any] = json.loads((ledger / "page.json").read_bytes())
    return found


@pytest.fixture(scope="module")
def report(ledger: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of the same tables, by the command."""
    file = tmp_path_factory.mktemp("report") / "report.html"
    command = [sys.executable, "-m", "penstock", "pipeline", "report", "--tables", str(ledger), "--to", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return file


@pytest.fixture
def shown(guest: Visit, tables: Path, sheet: dict[str, Any]) -> Page:
    """The page, open at a history that is there."""
    put(tables, sheet)
    guest.open("#/history", "History")
    expect(guest.page.locator(".verdict").first).to_be_visible()
    return guest.page


def put(tables: Path, sheet: dict[str, Any]) -> None:
    """As the pipeline does: the whole file at once."""
    new = tables / "new"
    new.write_text(json.dumps(sheet))
    new.replace(tables / "page.json")


def renewed(page: Page, tables: Path, sheet: dict[str, Any]) -> None:
    """The pipeline has written; the page looks at once, not only when its five seconds are over."""
    put(tables, sheet)
    page.evaluate("document.dispatchEvent(new CustomEvent('penstock:found'))")


def moved(sheet: dict[str, Any], minutes: int) -> dict[str, Any]:
    """As if it had been written then."""
    found: dict[str, Any] = json.loads(json.dumps(sheet))
    for one in found["ranges"].values():
        one["since_ms"] += minutes * 60_000
        one["until_ms"] += minutes * 60_000
    return found


def changed(sheet: dict[str, Any], old: str, new: str) -> dict[str, Any]:
    """The sheet with another word in place of one, wherever it stands."""
    text = json.dumps(sheet)
    assert old in text
    found: dict[str, Any] = json.loads(text.replace(old, json.dumps(new)[1:-1]))
    return found


def panel(page: Page, title: str):
    return page.get_by_role("region", name=title, exact=True).filter(has=page.get_by_role("heading", name=title))


def test_where_there_is_no_history_it_says_how_to_get_one_and_shows_it_when_it_is_there(
    guest: Visit, tables: Path, sheet: dict[str, Any]
):
    (tables / "page.json").unlink(missing_ok=True)
    page = guest.page
    page.get_by_role("link", name="History").click()
    expect(page.get_by_role("heading", level=1, name="History")).to_be_visible()
    empty = page.locator("#no-history")
    expect(empty).to_contain_text("written nothing yet")
    expect(empty).to_contain_text("penstock up")
    expect(empty).to_contain_text("penstock pipeline flow --tables DIR")
    put(tables, sheet)
    expect(page.locator(".verdict").first).to_be_visible()
    expect(empty).to_have_count(0)


def test_it_says_what_held_whom_back_for_how_long_and_what_helps(shown: Page):
    expect(shown.locator(".banner").first).to_contain_text("Within 1 h, 3 publishers were held back.")
    store = shown.locator('.verdict[data-cause="store"]')
    expect(store).to_contain_text("orders-api and billing were held back by queue orders, which waited for the disk")
    expect(store.get_by_role("list", name="Chain").get_by_role("listitem")).to_have_text(
        ["orders-api", "channel 1 of orders-api", "queue orders", "store"]
    )
    expect(store).to_contain_text("What helps: a disk that syncs faster")
    expect(shown.locator('.verdict[data-cause="saturated"]')).to_contain_text("until now")
    expect(shown.locator('.verdict[data-cause="forecast"] .sentence')).to_have_text(
        [
            re.compile(r"Queue mail\.out reaches its limit of 10,000 at (\S+ )?\d\d:\d\d, in 12 min"),
            re.compile(r"Queue mail\.out reaches its limit of 64\.0 MiB at (\S+ )?\d\d:\d\d, in 32 min"),
        ]
    )
    rows = panel(shown, "Who was held back").get_by_role("row")
    expect(rows.nth(1)).to_contain_text("orders-api")
    expect(rows.nth(1)).to_contain_text("saturated")


def test_the_timeline_the_heat_map_and_the_gauges_are_drawn(shown: Page):
    timeline = panel(shown, "Blocks over time")
    assert timeline.locator("svg .strip-ground").count() == 8
    assert timeline.locator("svg .cell").count() > 8
    timeline.get_by_text("As a table").click()
    expect(timeline.get_by_role("row", name=re.compile("queue orders"))).to_be_visible()
    heat = panel(shown, "Who blocked whom").get_by_role("table")
    expect(heat.get_by_role("row", name=re.compile("^queue orders"))).to_contain_text("12 min")
    assert "level-" in (heat.locator("td[title^='queue orders waited for store']").get_attribute("class") or "")
    for title in ("queue orders", "queue mail.out", "Time per sync", "Memory", "Disk"):
        chart = shown.locator("svg.chart").and_(shown.get_by_role("img", name=re.compile(f"^{re.escape(title)}: ")))
        expect(chart.locator("path.line").first).to_be_visible()
    expect(panel(shown, "Top blockers").get_by_role("row").nth(1)).to_contain_text("store")
    expect(panel(shown, "Single blocks").get_by_role("table", name="Still blocked")).to_contain_text(
        "consumers of queue orders"
    )
    expect(panel(shown, "Quality of the tables")).to_contain_text("1 of 3 checks failed")


def test_a_forecast_is_drawn_with_its_limit_and_the_line_towards_it(shown: Page):
    forecasts = panel(shown, "Forecasts")
    expect(forecasts.locator("figure h3")).to_have_text(
        ["queue mail.out, messages", "queue mail.out, bytes", "Memory in use", "Free space on the disk"]
    )
    for kind, count in (("series-1", 4), ("limit", 4), ("trend", 4)):
        expect(forecasts.locator(f"svg path.line.{kind}")).to_have_count(count)
    expect(forecasts.locator("svg circle.hit")).to_have_count(2)  # the others are too far away
    messages, size = forecasts.locator("figure").nth(0), forecasts.locator("figure").nth(1)
    expect(messages.locator(".legend")).to_contain_text(re.compile(r"Now 7,300.*Limit 10 k.*Trend .*\d\d:\d\d"))
    expect(size.locator(".legend")).to_contain_text("Limit 64.0 MiB")
    expect(size.get_by_role("img")).to_have_attribute(
        "aria-label", re.compile(r"Queue mail\.out reaches its limit of 64\.0 MiB at .*: 42\.0 MiB now, \+11\.7 KiB/s")
    )


def test_what_was_tried_and_taken_back_is_not_told_as_set(shown: Page, tables: Path, ledger: Path, tmp_path: Path):
    from penstock.spark.ledger import Ledger
    from penstock.spark.report.page import PageWriter
    from tests.spark.pipeline.story import ADVICE

    applied = {**ADVICE["applied"], "rolled_back": True, "worse": "less throughput"}
    (tmp_path / "advice.json").write_text(json.dumps({**ADVICE, "applied": applied}))
    assert PageWriter(Ledger(ledger), tmp_path).write()
    renewed(shown, tables, json.loads((tmp_path / "page.json").read_bytes()))
    tried = "Tried: credit.queue_store=8000,2000 credit.channel_queue=800,400"
    expect(panel(shown, "Advice")).to_contain_text(tried)
    expect(panel(shown, "Advice")).not_to_contain_text("Set: ")
    expect(shown.locator('.verdict[data-cause="advice"]')).to_contain_text(f"{tried}. That was worse (less throughput)")


def test_tables_of_another_version_are_told_to_be_so(shown: Page, tables: Path, sheet: dict[str, Any]):
    old = json.loads(json.dumps(sheet))
    for one in old["ranges"].values():
        del one["parts"]
    renewed(shown, tables, old)
    expect(shown.locator("#no-history")).to_contain_text("of another version: start it again")
    renewed(shown, tables, sheet)
    expect(shown.locator("#no-history")).to_have_count(0)


def test_advice_is_shown_with_what_was_set_and_measured(shown: Page, tables: Path, sheet: dict[str, Any]):
    from tests.spark.pipeline.story import ADVICE

    sentence = ADVICE["sentence"].replace("`", "")
    expect(shown.locator('.verdict[data-cause="advice"]')).to_contain_text(sentence)
    advice = panel(shown, "Advice")
    expect(advice).to_contain_text(sentence)
    made = re.compile(
        r"Made 2026-03-04 \d\d:\d\d, for throughput, of orders only: 1 publisher, persistent messages of "
    )
    expect(shown.locator('.verdict[data-cause="advice"]')).to_contain_text(made)
    expect(advice).to_contain_text(made)
    settings = advice.get_by_role("region", name="Settings").get_by_role("row")
    expect(settings.nth(1)).to_contain_text("credit.queue_store=2000,500")
    expect(settings.nth(2)).to_contain_text("credit.queue_store=8000,2000 credit.channel_queue=800,400")
    expect(settings.nth(2).get_by_role("cell").nth(1)).to_have_text("53,800")
    expect(advice).to_contain_text("No credit makes the consumers of queue orders faster.")
    expect(advice).to_contain_text("Set: credit.queue_store=8000,2000 credit.channel_queue=800,400")
    expect(advice).to_contain_text(ADVICE["applied"]["sentence"])
    measured = advice.get_by_role("region", name="Measured").get_by_role("row")
    expect(measured.nth(1).get_by_role("cell")).to_have_text(
        ["before", "40,210", "96 ms", "–", "3,860", "82 %", "202 MiB"]
    )
    expect(measured.nth(2).get_by_role("cell").nth(1)).to_have_text("51,940")
    expect(measured).to_have_count(3)
    without = json.loads(json.dumps(sheet))
    for one in without["ranges"].values():
        one["advice"] = None
    renewed(shown, tables, without)
    expect(advice).to_contain_text("None yet: penstock pipeline advise looks for better settings.")
    for one in without["ranges"].values():
        one |= {
            "advice": {"unreadable": "advice.json is broken."},
            "advised": "",
            "advised_for": "",
            "advised_ms": None,
        }
    renewed(shown, tables, without)
    expect(advice).to_contain_text("There is advice, but advice.json is broken.")
    expect(advice).not_to_contain_text("None yet")
    expect(shown.locator('.verdict[data-cause="advice"]')).to_have_count(0)


def test_another_range_is_chosen_with_the_keyboard_and_stays_after_a_reload(shown: Page):
    choice = shown.get_by_role("group", name="How far back")
    expect(choice.get_by_role("button", name="1 h", exact=True)).to_have_attribute("aria-pressed", "true")
    choice.get_by_role("button", name="24 h").focus()
    shown.keyboard.press("Enter")
    chart = shown.locator("svg.chart").and_(shown.get_by_role("img", name=re.compile("^Memory: ")))
    expect(chart).to_contain_text("−24 h")
    expect(shown).to_have_url(re.compile("range=24h"))
    shown.reload()
    expect(chart).to_contain_text("−24 h")
    expect(choice.get_by_role("button", name="24 h")).to_have_attribute("aria-pressed", "true")
    choice.get_by_role("button", name="15 min").click()
    expect(shown.locator(".banner").first).to_contain_text("Within 15 min, 3 publishers")


def test_arrow_keys_walk_along_the_timeline_and_say_what_was_there(shown: Page):
    strips = panel(shown, "Who was held back").locator("svg.strips")
    strips.focus()
    shown.keyboard.press("ArrowLeft")
    expect(strips).to_have_attribute("aria-label", re.compile(r"orders-api, .*\d\d:\d\d:\d\d: saturated, \d+ %$"))
    shown.keyboard.press("ArrowDown")
    expect(strips).to_have_attribute("aria-label", re.compile(r"billing, .*: not held back$"))
    strips.blur()
    expect(strips).to_have_attribute("aria-label", "Who was held back")


def test_what_is_new_is_shown_without_a_reload_and_nothing_folds_up(shown: Page, tables: Path, sheet: dict[str, Any]):
    timeline = panel(shown, "Blocks over time")
    timeline.get_by_text("As a table").click()
    renewed(shown, tables, changed(sheet, "billing", "ledger-job"))
    expect(panel(shown, "Who was held back")).to_contain_text("ledger-job")
    expect(timeline.get_by_role("row", name=re.compile("^ledger-job"))).to_be_visible()


def test_tables_that_have_not_grown_for_a_while_are_told_to_be_behind(shown: Page, tables: Path, sheet: dict[str, Any]):
    renewed(shown, tables, moved(sheet, minutes=-60))
    expect(shown.locator("#behind")).to_contain_text(re.compile(r"The tables end 1 h.* ago"))
    renewed(shown, tables, moved(sheet, minutes=60))
    expect(shown.locator("#behind")).to_have_count(0)


def test_names_become_no_markup(shown: Page, tables: Path, sheet: dict[str, Any]):
    renewed(shown, tables, changed(changed(sheet, "camera-3", EVIL), "queue orders", f"queue {EVIL}"))
    expect(panel(shown, "Who was held back")).to_contain_text(EVIL)
    expect(panel(shown, "Who blocked whom")).to_contain_text(f"queue {EVIL}")
    assert shown.locator("main img").count() == 0


def test_it_fits_a_phone_in_dark_colours_and_is_there_for_everybody(visit, shown: Page):
    one = visit(viewport=NARROWEST, color_scheme="dark").login()
    one.open("#/history", "History")
    expect(one.page.locator(".verdict").first).to_be_visible()
    assert one.page.evaluate(OFFENCES) == []
    assert one.page.evaluate("document.scrollingElement.scrollWidth - innerWidth") <= 0
    assert shown.evaluate(OFFENCES) == []


# The parts of a page: heading, charts, and of each table its caption, its columns and its cells.
CONTENTS = """
(sections) => sections.map((section) => {
  const text = (node) => node.textContent.replace(/\\s+/g, " ").trim();
  const all = (within, which) => [...within.querySelectorAll(which)].map(text);
  const tables = [...section.querySelectorAll("table")].map((table) => [
    all(table, "caption")[0],
    all(table, "thead th"),
    [...table.querySelectorAll("tbody tr")].map((row) => all(row, "th, td")),
  ]);
  return [all(section, "h2")[0], all(section, "figure h3"), section.querySelectorAll("svg").length, tables];
})
"""


# The module of the page that is open, and what it makes of some seconds.
LASTS = """
async (seconds) => {
  const source = document.querySelector("script[type=module]").src;
  const { duration } = await import(source.replace("main.js", "parts/format.js"));
  return seconds.map(duration);
}
"""


def test_the_page_says_how_long_something_lasted_as_the_report_does(shown: Page):
    from tests.spark.pipeline.story import LASTING

    assert shown.evaluate(LASTS, [seconds for seconds, _ in LASTING]) == [text for _, text in LASTING]


# Numbers at an axis of which the left part is outside of the drawing: 256 would be read as 56.
CUT = """
(ticks) => ticks.filter((tick) => tick.getBoundingClientRect().left < tick.ownerSVGElement.getBoundingClientRect().left)
  .map((tick) => tick.textContent)
"""


def test_the_page_and_the_report_show_the_same_charts_and_the_same_tables(
    visit, browser: Browser, tables: Path, sheet: dict[str, Any], report: Path
):
    put(tables, sheet)
    one = visit(timezone_id="UTC").login()  # as the file has it
    one.open("#/history", "History")
    expect(one.page.locator(".verdict").first).to_be_visible()
    folded = one.page.locator("[data-part] details:not([open])")
    while folded.count():
        folded.first.evaluate("(details) => { details.open = true; }")
    expect(one.page.locator("[data-part] details table")).to_have_count(4)
    opened = browser.new_page()
    opened.goto(report.as_uri())
    shown = one.page.locator("[data-part]").evaluate_all(CONTENTS)
    written = opened.locator("main > section:not(#summary)").evaluate_all(CONTENTS)
    opened.close()
    assert [part[:3] for part in shown] == [part[:3] for part in written]
    for (title, _, _, page), (_, _, _, file) in zip(shown, written, strict=True):
        assert [table[:2] for table in page] == [table[:2] for table in file], title
        for (caption, _, cells), (_, _, expected) in zip(page, file, strict=True):
            assert cells == expected, (title, caption)
    listed = {caption: heads for _, _, _, page in written for caption, heads, _ in page}
    assert {"User", "Vhost"} < set(listed["Verdicts"])
    assert {"Blocked", "Limit of bytes"} < set(listed["Queues"])
    assert "Ended by" in listed["Longest blocks"]


@pytest.mark.parametrize(("width", "scheme"), [(360, "dark"), (1280, "light")])
def test_the_report_that_the_command_wrote_opens_by_itself_and_asks_nobody(
    browser: Browser, report: Path, width: int, scheme: Any
):
    from tests.spark.pipeline.story import ADVICE

    context = browser.new_context(viewport={"width": width, "height": 740}, color_scheme=scheme)
    opened = context.new_page()
    told: list[str] = []
    asked: list[str] = []
    opened.on("console", lambda message: told.append(message.text))
    opened.on("request", lambda request: asked.append(request.url))
    opened.goto(report.as_uri())
    expect(opened.get_by_role("heading", level=1, name="Flow report")).to_be_visible()
    expect(opened.locator("#summary")).to_contain_text("which waited for the disk")
    expect(opened.locator("#summary .card.advice")).to_contain_text(ADVICE["sentence"].replace("`", ""))
    advice = opened.locator("#advice")
    expect(advice).to_contain_text("Made 2026-03-04 14:02 UTC, for throughput, of orders only: 1 publisher, ")
    expect(advice).to_contain_text("Set: credit.queue_store=8000,2000 credit.channel_queue=800,400")
    expect(advice.get_by_role("table", name="Settings").get_by_role("row")).to_have_count(3)
    expect(advice.get_by_role("table", name="Measured").get_by_role("row").nth(2)).to_contain_text("51,940")
    assert opened.locator("svg.chart rect[class*='level-']").count() > 10
    assert opened.locator("#forecasts svg path.line.trend").count() == 4
    assert opened.locator("svg.chart .tick").evaluate_all(CUT) == []
    assert opened.evaluate("document.scrollingElement.scrollWidth - innerWidth") <= 0
    assert told == []
    assert asked == [report.as_uri()]
    context.close()
