"""Site: a real broker with its page, and a browser that looks at it. What the page must never do is watched all along:
errors in the console, requests to other hosts, violations of the content security policy, secrets in addresses and in
the browser's storage."""

from __future__ import annotations

import base64
import json
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

from playwright.sync_api import Browser, ConsoleMessage, Frame, Page, Request, expect

from penstock.management.session import COOKIE
from tests.wire.live import READY, serve_environment
from tests.wire.waiting import LIMIT_S

CHROMIUM: Final = ("chromium", "chromium-browser", "google-chrome")
# Without what a browser does on its own: no look for updates, no accounts, no graphics card.
ARGUMENTS: Final = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
WAIT_MS: Final = int(LIMIT_S * 1000)  # only ends a test that would hang
WATCH: Final = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) => {
  window.violations.push(event.blockedURI + " " + event.violatedDirective);
});
"""
# Nothing is kept but the choice of colours; a page without an origin has no storage.
STORED: Final = """
() => location.origin === "null" ? [] : [localStorage, sessionStorage].flatMap((one) => Object.entries(one))
"""


def password_of(name: str) -> str:
    """Of the tests' own users: a word that stands nowhere else."""
    return "guest" if name == "guest" else f"{name}-is-secret"


def chromium() -> str | None:
    """Debian's, or whatever is on the path."""
    return next((found for name in CHROMIUM if (found := shutil.which(name))), None)


class Site:
    """`penstock serve` with an HTTP API, as a process; it can be stopped and started again on the same ports."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        """`arguments`: more of `penstock serve`."""
        self._directory = directory
        self._arguments = arguments
        self._process: subprocess.Popen[str] | None = None
        self.port = 0
        self.management = 0
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.management}"

    def start(self) -> None:
        command = [sys.executable, "-m", "penstock", "serve", "--data", str(self._directory / "data")]
        command += ["--listen", f"127.0.0.1:{self.port}", "--management", f"127.0.0.1:{self.management}"]
        command += self._arguments
        with (self._directory / "stderr").open("ab") as stderr:
            self._process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=stderr, text=True, env=serve_environment()
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        found = READY.match(line)
        assert found, f"{line!r} {self.log()}"
        self.port = int(found["port"])
        self.management = int(line.rsplit(":", 1)[1].strip().rstrip("/"))

    def stop(self) -> None:
        if self._process is None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(20)
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._process = None

    def log(self) -> str:
        return (self._directory / "stderr").read_text("utf-8")

    def api(self, method: str, path: str, body: object = None, user: str = "guest:guest") -> Any:
        """Ask the API past the page: to prepare, and to see what the page did. None for 404."""
        request = urllib.request.Request(f"{self.url}/api/{path}", method=method)
        request.add_header("Authorization", "Basic " + base64.b64encode(user.encode()).decode())
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            with error:
                if error.code == 404:
                    return None
                raise AssertionError(f"{method} {path}: {error.code} {error.read()!r}") from None
        return json.loads(text) if text else None

    def user(self, name: str, tags: str) -> None:
        """A user of this name, with all permissions in the default vhost."""
        self.api("PUT", f"users/{name}", {"password": password_of(name), "tags": tags})
        self.api("PUT", f"permissions/%2F/{name}", {"configure": ".*", "write": ".*", "read": ".*"})

    def queue(self, name: str, **arguments: object) -> None:
        self.api("PUT", f"queues/%2F/{quote(name, safe='')}", {"durable": True, "arguments": arguments})


class Visit:
    """One browser window on a site, logged in or not."""

    def __init__(self, site: Site, browser: Browser, **options: Any) -> None:
        self.site = site
        self.context = browser.new_context(**{"viewport": {"width": 1280, "height": 850}, **options})
        self.context.set_default_timeout(WAIT_MS)
        self.context.add_init_script(WATCH)
        self.page: Page = self.context.new_page()
        self.expected: tuple[str, ...] = ()  # parts of console errors that a test provokes
        self._errors: list[str] = []
        self._hosts: set[str] = set()
        self._addresses: list[str] = []
        self._secrets: set[str] = {"password="}
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self._errors.append(str(error)))
        self.page.on("request", self._request)
        self.page.on("framenavigated", self._navigated)

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self._errors.append(f"{message.text} {message.location.get('url', '')}")

    def _request(self, request: Request) -> None:
        self._hosts.add(urlsplit(request.url).netloc)
        self._addresses.append(request.url)

    def _navigated(self, frame: Frame) -> None:
        self._addresses.append(frame.url)  # with its fragment, which no request has

    def login(self, name: str = "guest") -> Visit:
        """To the overview; with a session that goes on there is nobody to ask for a password."""
        self.page.goto(f"{self.site.url}/")
        if self.page.url.endswith("/login"):
            self.page.get_by_label("User").fill(name)
            self.page.get_by_label("Password").fill(password_of(name))
            self.page.get_by_role("button", name="Log in").click()
        expect(self.page.get_by_role("heading", name="Overview")).to_be_visible(timeout=WAIT_MS)
        if name != "guest":  # whose password is its name
            self._secrets.add(password_of(name))
        assert self._keep_token(), "no session"
        return self

    def _keep_token(self) -> bool:
        found = [one["value"] for one in self.context.cookies() if one["name"] == COOKIE]
        self._secrets.update(found)
        return bool(found)

    def open(self, fragment: str, heading: str) -> None:
        """Another view, as its link would open it."""
        self.page.evaluate("(fragment) => { location.hash = fragment; }", fragment)
        expect(self.page.get_by_role("heading", level=1, name=heading)).to_be_visible(timeout=WAIT_MS)

    def said(self, text: str) -> None:
        """The page's short news."""
        expect(self.page.locator("#notes")).to_contain_text(text, timeout=WAIT_MS)

    def check(self) -> None:
        """Nothing that must never happen has happened."""
        violations = self.page.evaluate("window.violations ?? []")
        assert not violations, f"content security policy: {violations}"
        wrong = [one for one in self._errors if not any(part in one for part in self.expected)]
        assert not wrong, f"console: {wrong}"
        assert self._hosts <= {urlsplit(self.site.url).netloc}, f"requests to other hosts: {self._hosts}"
        self._keep_token()
        told = [one for one in self._addresses if any(secret in one for secret in self._secrets)]
        assert not told, f"a secret in an address: {told}"
        stored = dict(self.page.evaluate(STORED))
        assert stored.keys() <= {"penstock.theme"}, f"kept by the browser: {stored}"

    def begin(self) -> None:
        """For the next test in this window."""
        self.page.goto("about:blank")  # a view that is open asks no more
        self._errors.clear()
        self._hosts.clear()
        self._addresses.clear()
        self.expected = ()
        self.login()

    def close(self) -> None:
        self.context.close()
