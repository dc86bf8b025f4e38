"""Pictures for docs/page.md: every page on a broker that has something to do, then the Flow page under each of the five
overloads; and the History page and the report with the tables of a made-up hour (tests/spark/pipeline/story.py).

    .venv/bin/python -m tests.browser.pictures docs/images [history | pages | store | queue | …]

Light and dark, wide and narrow. Not a test: a person looks at them.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple

import pika
from playwright.sync_api import Browser, FloatRect, Page, ViewportSize, expect, sync_playwright

from tests.browser.shrink import shrink
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
TALL_PX: Final = 1700  # of a picture of a narrow screen: some pages go on for much longer


class View(NamedTuple):
    name: str
    fragment: str
    heading: str
    ready: str = ""  # what must be there before
    whole: bool = True


CALM: Final = (
    View("connections", "#/connections", "Connections"),
    View("channels", "#/channels", "Channels"),
    View("exchanges", "#/exchanges", "Exchanges"),
    View("exchange", "#/exchanges/%2F/amq.topic", "Exchange amq.topic"),
    View("queue", "#/queues/%2F/search.index", "Queue search.index"),
    View("streams", "#/streams", "Streams"),
    View("policies", "#/policies", "Policies"),
    View("users", "#/users", "Users"),
    View("user", "#/users/shop", "User shop"),
    View("vhosts", "#/vhosts", "Vhosts"),
    View("settings", "#/settings", "Settings"),
)
BUSY: Final = (
    View("flow", "#/flow", "Flow", f'.verdict[data-connection="{CONNECTION}"]'),
    View("overview", "#/", "Overview", ".banner"),
    View("queues", "#/queues?sort=messages_ready&reverse=true", "Queues"),
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


def shoot(page: Page, file: Path, blank: Page, whole: bool) -> None:
    """whole: as far down as TALL_PX, not only what is on the screen."""
    height = min(TALL_PX, page.evaluate("document.scrollingElement.scrollHeight"))
    size = page.viewport_size
    assert size is not None
    if whole and height > size["height"]:
        clip: FloatRect = {"x": 0, "y": 0, "width": size["width"], "height": height}
        page.screenshot(path=file, full_page=True, clip=clip)
    else:
        page.screenshot(path=file)
    shrink(blank, file)


def take(site: Site, browser: Browser, folder: Path, views: Sequence[View]) -> None:
    """Each of them light and dark, wide and narrow; on a narrow screen also what is below it."""
    blank = browser.new_page()
    for scheme, size in FULL:
        visit = Visit(site, browser, viewport=size, color_scheme=scheme)
        visit.login()
        for view in views:
            visit.open(view.fragment, view.heading)
            if view.ready:
                expect(visit.page.locator(view.ready).first).to_be_visible(timeout=WAIT_MS)
            visit.page.wait_for_timeout(2500)  # two looks, so that rates are known
            whole = size is NARROW and view.whole
            shoot(visit.page, folder / name_of(view.name, scheme, size), blank, whole)
        visit.check()
        visit.close()
    blank.close()


def login(site: Site, browser: Browser, folder: Path) -> None:
    blank = browser.new_page()
    for scheme, size in FULL:
        visit = Visit(site, browser, viewport=size, color_scheme=scheme)
        visit.page.goto(f"{site.url}/login")
        shoot(visit.page, folder / name_of("login", scheme, size), blank, False)
        visit.close()
    blank.close()


def furnish(site: Site) -> None:
    """Something to see on the pages that load alone does not fill."""
    site.queue("readings", **{"x-queue-type": "stream", "x-max-age": "7D"})
    for name, tags in (("ada", "administrator"), ("grafana", "monitoring"), ("shop", "management,policymaker")):
        site.user(name, tags)
    site.api("PUT", "topic-permissions/%2F/shop", {"exchange": "amq.topic", "write": "^search\\.", "read": ".*"})
    site.api("PUT", "vhosts/staging")
    pictures = {"pattern": "^thumbnails$", "apply-to": "queues", "definition": {"max-length": 5000}, "priority": 1}
    site.api("PUT", "policies/%2F/pictures", pictures)
    site.api("PUT", "operator-policies/%2F/cap", {"pattern": ".*", "definition": {"max-length-bytes": 2_000_000_000}})


def overloads(site: Site, browser: Browser, folder: Path, wanted: list[str]) -> None:
    blank = browser.new_page()
    for kind in wanted:
        with overload(kind, site.port, site.url):
            visits = [
                Visit(site, browser, viewport=size, color_scheme=scheme).login()
                for scheme, size in (("light", WIDE), ("dark", NARROW))
            ]
            for visit in visits:
                visit.open("#/flow", "Flow")
                # An alarm holds everybody back: then it may be one of those below another one's verdict.
                expect(visit.page.locator(".verdict", has_text=CONNECTION).first).to_be_visible(timeout=WAIT_MS)
            visits[0].page.wait_for_timeout(20_000 if kind == "store" else 6_000)
            if kind == "store":
                take(site, browser, folder, BUSY)
                for visit in visits:
                    visit.page.locator(".node.is-bottleneck").click()
                    visit.page.wait_for_timeout(1500)
            for visit, file in zip(visits, (f"flow-{kind}.png", f"flow-{kind}-dark-narrow.png")):
                # On a phone the panel is below the picture, and one is led there.
                narrow, led = file.endswith("narrow.png"), kind == "store"
                if not (narrow and led):
                    visit.page.evaluate("scrollTo(0, 0)")
                shoot(visit.page, folder / file, blank, narrow and not led)
                visit.check()
                visit.close()
        wait_until(lambda: not any(CONNECTION in str(one) for one in site.api("GET", "connections")))
        site.api("DELETE", f"queues/%2F/{QUEUE}")
    blank.close()


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
        take(site, browser, folder, [View("history", "#/history", "History", ".verdict", whole=False)])
        blank = browser.new_page()
        visit = Visit(site, browser, viewport={"width": 1280, "height": 1000}, color_scheme="light").login()
        visit.open("#/history", "History")
        visit.page.locator("svg.strips").first.wait_for()
        visit.page.evaluate("scrollTo(0, document.querySelector('svg.strips').getBoundingClientRect().top - 150)")
        visit.page.wait_for_timeout(500)
        shoot(visit.page, folder / "history-timeline.png", blank, False)
        scroll_to(visit.page, '[data-part="forecasts"]')
        shoot(visit.page, folder / "history-forecasts.png", blank, False)
        visit.close()
    finally:
        site.stop()
    report = directory / "report.html"
    made_ms = int(now.timestamp() * 1000)
    report.write_text(page(digest(ledger, now - timedelta(hours=1), now, WINDOW_S, advice=ADVICE), made_ms), "utf-8")
    for name in ("report-light", "report-dark", "report-light-narrow", "report-dark-narrow"):
        narrow = name.endswith("narrow")
        size: ViewportSize = {"width": 390, "height": 844} if narrow else {"width": 1180, "height": 1000}
        opened = browser.new_page(viewport=size, color_scheme="dark" if "dark" in name else "light")
        opened.goto(report.as_uri())
        shoot(opened, folder / f"{name}.png", blank, narrow)
        if name == "report-light":
            scroll_to(opened, "#forecasts")
            shoot(opened, folder / "report-forecasts.png", blank, False)
        opened.close()
    blank.close()


def scroll_to(page: Page, what: str) -> None:
    """So that it is below what stays at the top."""
    page.evaluate("(what) => scrollBy(0, document.querySelector(what).getBoundingClientRect().top - 80)", what)
    page.wait_for_timeout(500)


def main(folder: Path, wanted: list[str]) -> None:
    found = chromium()
    assert found is not None, "no Chromium on the path"
    folder.mkdir(parents=True, exist_ok=True)
    if "history" in wanted:
        with tempfile.TemporaryDirectory() as directory, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=found, args=list(ARGUMENTS))
            history(browser, folder, Path(directory))
            browser.close()
    if wanted == ["history"]:
        return
    stop = threading.Event()
    with tempfile.TemporaryDirectory() as directory, sync_playwright() as playwright:
        site = Site(Path(directory))
        workers = [threading.Thread(target=work, args=(site.port, *one, stop)) for one in WORK]
        for worker in workers:
            worker.start()
        browser = playwright.chromium.launch(executable_path=found, args=list(ARGUMENTS))
        try:
            furnish(site)
            time.sleep(LOAD_S)
            if "pages" in wanted:
                login(site, browser, folder)
                take(site, browser, folder, CALM)
            overloads(site, browser, folder, [kind for kind in wanted if kind in KINDS])
        finally:
            stop.set()
            for worker in workers:
                worker.join()
            browser.close()
            site.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:] or ["history", "pages", *KINDS])
