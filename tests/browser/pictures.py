"""Pictures for docs/page.md: the page on a broker that has something to do, then under each of the five overloads; and
the History page and the report with the tables of a made-up hour (tests/spark/pipeline/story.py).

    .venv/bin/python -m tests.browser.pictures docs/images [store | history]

Light and dark, wide and narrow. Not a test: a person looks at them.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pika
from playwright.sync_api import Browser, expect, sync_playwright

from tests.browser.site import ARGUMENTS, WAIT_MS, Site, Visit, chromium
from tests.wire.overloads import CONNECTION, KINDS, QUEUE, overload
from tests.wire.waiting import wait_until

WIDE: Final = {"width": 1280, "height": 800}
NARROW: Final = {"width": 390, "height": 844}
FULL: Final = (("light", WIDE), ("dark", WIDE), ("light", NARROW), ("dark", NARROW))
# Publisher, queue, messages per second, share that is consumed.
WORK: Final = (
    ("billing", "invoices", 120, 1.0),
    ("mailer", "mail.out", 60, 0.97),
    ("shop-web", "search.index", 200, 0.99),
    ("camera-3", "thumbnails", 30, 0.8),
)
LOAD_S: Final = 65  # so that a chart of a minute is full


def name_of(view: str, scheme: str, size: dict[str, int]) -> str:
    return f"{view}-{scheme}-{'wide' if size is WIDE else 'narrow'}.png"


def work(port: int, name: str, queue: str, rate: int, share: float, stop: threading.Event) -> None:
    """A publisher and its consumer, until told to stop."""
    parameters = pika.ConnectionParameters("127.0.0.1", port, client_properties={"connection_name": name}, heartbeat=0)
    with pika.BlockingConnection(parameters) as connection:
        out, back = connection.channel(), connection.channel()
        out.queue_declare(queue, durable=True)
        out.queue_bind(queue, "amq.topic", f"{queue}.#")
        taken = 0.0
        while not stop.wait(0.1):
            for _ in range(rate // 10):
                out.basic_publish("amq.topic", f"{queue}.new", b"x" * 300)
            taken += rate / 10 * share
            while taken >= 1:
                back.basic_get(queue, auto_ack=True)
                taken -= 1


def take(
    site: Site,
    browser: Browser,
    folder: Path,
    view: str,
    fragment: str,
    heading: str,
    ready: str = "",
    whole: bool = True,
) -> None:
    """whole: on a narrow screen down to its end."""
    for scheme, size in FULL:
        visit = Visit(site, browser, viewport=size, color_scheme=scheme)
        visit.login()
        visit.open(fragment, heading)
        if ready:
            expect(visit.page.locator(ready).first).to_be_visible(timeout=WAIT_MS)
        visit.page.wait_for_timeout(2500)  # two looks, so that rates are known
        visit.page.screenshot(path=folder / name_of(view, scheme, size), full_page=whole and size is NARROW)
        visit.check()
        visit.close()


def overloads(site: Site, browser: Browser, folder: Path, wanted: list[str]) -> None:
    for kind in wanted:
        with overload(kind, site.port, site.url):
            visit = Visit(site, browser, viewport=WIDE, color_scheme="light").login()
            visit.open("#/flow", "Flow")
            # An alarm holds everybody back: then it may be one of those below another one's verdict.
            expect(visit.page.locator(".verdict", has_text=CONNECTION).first).to_be_visible(timeout=WAIT_MS)
            visit.page.wait_for_timeout(20_000 if kind == "store" else 6_000)
            if kind == "store":
                take(site, browser, folder, "flow", "#/flow", "Flow", f'.verdict[data-connection="{CONNECTION}"]')
                take(site, browser, folder, "overview", "#/", "Overview", ".banner")
                take(site, browser, folder, "queues", "#/queues?sort=messages_ready&reverse=true", "Queues")
                visit.page.locator(".node.is-bottleneck").click()
                visit.page.wait_for_timeout(1500)
            visit.page.screenshot(path=folder / f"flow-{kind}.png")
            visit.close()
        wait_until(lambda: not any(CONNECTION in str(one) for one in site.api("GET", "connections")))
        site.api("DELETE", f"queues/%2F/{QUEUE}")


def history(browser: Browser, folder: Path, directory: Path) -> None:
    from penstock.spark.report.digest import digest
    from penstock.spark.report.html import page
    from penstock.spark.report.page import PageWriter
    from tests.spark.pipeline.story import ADVICE, WINDOW_S, story, write

    now = datetime.fromtimestamp(time.time() // WINDOW_S * WINDOW_S, UTC)
    tables = directory / "tables"
    ledger = write(tables, story(now))
    (tables / "advice.json").write_text(json.dumps(ADVICE))
    PageWriter(ledger, tables).write()
    site = Site(directory, "--set", f"management.tables={tables}")
    try:
        take(site, browser, folder, "history", "#/history", "History", ".verdict", whole=False)
        visit = Visit(site, browser, viewport={"width": 1280, "height": 1000}, color_scheme="light").login()
        visit.open("#/history", "History")
        visit.page.locator("svg.strips").first.wait_for()
        visit.page.evaluate("scrollTo(0, document.querySelector('svg.strips').getBoundingClientRect().top - 150)")
        visit.page.wait_for_timeout(500)
        visit.page.screenshot(path=folder / "history-timeline.png")
        visit.close()
    finally:
        site.stop()
    report = directory / "report.html"
    made_ms = int(now.timestamp() * 1000)
    report.write_text(page(digest(ledger, now - timedelta(hours=1), now, WINDOW_S, advice=ADVICE), made_ms), "utf-8")
    for scheme in ("light", "dark"):
        opened = browser.new_page(viewport={"width": 1180, "height": 1000}, color_scheme=scheme)
        opened.goto(report.as_uri())
        opened.screenshot(path=folder / f"report-{scheme}.png")
        opened.close()


def main(folder: Path, wanted: list[str]) -> None:
    found = chromium()
    assert found is not None, "no Chromium on the path"
    folder.mkdir(parents=True, exist_ok=True)
    if "history" in wanted:
        with tempfile.TemporaryDirectory() as directory, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=found, args=list(ARGUMENTS))
            history(browser, folder, Path(directory))
            browser.close()
    wanted = [kind for kind in wanted if kind in KINDS]
    if not wanted:
        return
    stop = threading.Event()
    with tempfile.TemporaryDirectory() as directory, sync_playwright() as playwright:
        site = Site(Path(directory))
        workers = [threading.Thread(target=work, args=(site.port, *one, stop)) for one in WORK]
        for worker in workers:
            worker.start()
        browser = playwright.chromium.launch(executable_path=found, args=list(ARGUMENTS))
        try:
            time.sleep(LOAD_S)
            overloads(site, browser, folder, wanted)
        finally:
            stop.set()
            for worker in workers:
                worker.join()
            browser.close()
            site.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:] or ["history", *KINDS])
