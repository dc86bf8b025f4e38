"""Fixtures of the tests in a browser: a broker and a Chromium for each file, visits that are checked when they end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from tests.browser.site import ARGUMENTS, WAIT_MS, Site, Visit, chromium

expect.set_options(timeout=WAIT_MS)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    found = chromium()
    if found is None:
        pytest.skip("no Chromium on the path: the page is not looked at")
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=found, args=list(ARGUMENTS), timeout=60_000)
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def site(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """After the browser: without one there is nothing to start."""
    one = Site(tmp_path_factory.mktemp("site"))
    yield one
    one.stop()
    assert " crash " not in one.log(), one.log()


@pytest.fixture
def visit(site: Site, browser: Browser) -> Iterator[Callable[..., Visit]]:
    """Opens a window: visit(), visit(color_scheme="dark"); all are checked and closed at the end."""
    with ExitStack() as stack:
        opened: list[Visit] = []

        def start(**options: object) -> Visit:
            one = Visit(site, browser, **options)
            stack.callback(one.close)
            opened.append(one)
            return one

        yield start
        for one in opened:
            one.check()


@pytest.fixture(scope="module")
def window(site: Site, browser: Browser) -> Iterator[Visit]:
    """One window for a whole file: its files are loaded once."""
    one = Visit(site, browser)
    yield one
    one.close()


@pytest.fixture
def guest(window: Visit) -> Iterator[Visit]:
    """Logged in as an administrator, at the overview, whatever the test before has left."""
    window.begin()
    yield window
    window.check()
