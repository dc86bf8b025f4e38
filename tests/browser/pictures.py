"""Pictures for docs/page.md: the page on a broker that has something to do, then under each of the five overloads.

    .venv/bin/python -m tests.browser.pictures docs/images [store]

Light and dark, wide and narrow. Not a test: a person looks at them.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
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


def take(site: Site, browser: Browser, folder: Path, view: str, fragment: str, heading: str, ready: str = "") -> None:
    for scheme, size in FULL:
        visit = Visit(site, browser, viewport=size, color_scheme=scheme)
        visit.login()
        visit.open(fragment, heading)
        if ready:
            expect(visit.page.locator(ready).first).to_be_visible(timeout=WAIT_MS)
        visit.page.wait_for_timeout(2500)  # two looks, so that rates are known
        visit.page.screenshot(path=folder / name_of(view, scheme, size), full_page=size is NARROW)
        visit.check()
        visit.close()


def overloads(site: Site, browser: Browser, folder: Path, wanted: list[str]) -> None:
    for kind in wanted:
        with overload(kind, site.port, site.url):
            visit = Visit(site, browser, viewport=WIDE, color_scheme="light").login()
            visit.open("#/flow", "Flow")
            expect(visit.page.locator(f'.verdict[data-connection="{CONNECTION}"]')).to_be_visible(timeout=WAIT_MS)
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


def main(folder: Path, wanted: list[str]) -> None:
    found = chromium()
    assert found is not None, "no Chromium on the path"
    folder.mkdir(parents=True, exist_ok=True)
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
    main(Path(sys.argv[1]), sys.argv[2:] or list(KINDS))
