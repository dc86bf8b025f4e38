"""How long a view of the management page takes in a real browser, from the click to what it shows.

Part `page` of management.py, which has the brokers and the load. It needs Chromium and playwright; without them the
part says so and is left out.
"""

import shutil
import time

from playwright.sync_api import sync_playwright

from penstock.perf.load import LoadError

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run")
TIMEOUT_MS = 30_000
# View -> address within the page, heading, and what is there when it shows something.
VIEWS = {
    "Overview": ("#/", "main .tiles dd"),
    "Connections": ("#/connections", "main tbody tr"),
    "Queues": ("#/queues", "main tbody tr"),
    "Exchanges": ("#/exchanges", "main tbody tr"),
    "Flow": ("#/flow", "main .node"),
    "Channels": ("#/channels", "main tbody tr"),
    "Streams": ("#/streams", "main tbody tr"),
    "Policies": ("#/policies", "main table"),
    "Users": ("#/users", "main tbody tr"),
    "Vhosts": ("#/vhosts", "main tbody tr"),
}
# A frame is drawn about every 16 ms: what is there in one is seen with it.
OPEN = """
async ([address, heading, ready, timeout]) => {
  const begun = performance.now();
  location.hash = address;
  for (;;) {
    await new Promise(requestAnimationFrame);
    const took = performance.now() - begun;
    const isThere = document.querySelector("h1")?.textContent.trim() === heading && document.querySelector(ready);
    if (isThere || took > timeout) return isThere ? took : -1;
  }
}
"""


def chromium() -> str | None:
    return next((found for name in CHROMIUM if (found := shutil.which(name))), None)


def opened(url: str, seconds: float) -> dict[str, list[float]]:
    """Seconds until each view shows what it has, one view after the other for so long."""
    took: dict[str, list[float]] = {view: [] for view in VIEWS}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=ARGUMENTS)
        page = browser.new_page(viewport={"width": 1280, "height": 850})
        page.goto(url)
        page.get_by_label("User").fill("guest")
        page.get_by_label("Password").fill("guest")
        page.get_by_role("button", name="Log in").click()
        page.get_by_role("heading", name="Overview").wait_for(timeout=TIMEOUT_MS)
        rounds = 0
        until = time.monotonic() + seconds
        while time.monotonic() < until or rounds < 2:
            for view, (address, ready) in VIEWS.items():
                page.evaluate(OPEN, ["#/settings", "Settings", "main", TIMEOUT_MS])  # from somewhere else
                ms = page.evaluate(OPEN, [address, view, ready, TIMEOUT_MS])
                if ms < 0:
                    raise LoadError(f"the page did not show {view} within {TIMEOUT_MS / 1000:.0f} s")
                if rounds:  # the first time its code is loaded
                    took[view].append(ms / 1000)
            rounds += 1
        browser.close()
    return took
