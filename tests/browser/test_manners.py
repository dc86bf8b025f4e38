"""How the page behaves: who gets in, what is offered to whom, keyboard, phone, colours, a broker that goes away."""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.browser.site import Site, Visit

Open = Callable[..., Visit]

PAGES = {
    "#/": "Overview",
    "#/flow": "Flow",
    "#/connections": "Connections",
    "#/channels": "Channels",
    "#/exchanges": "Exchanges",
    "#/exchanges/%2F/amq.topic": "Exchange amq.topic",
    "#/queues": "Queues",
    "#/queues/%2F/penstock.events": "Queue penstock.events",
    "#/streams": "Streams",
    "#/policies": "Policies",
    "#/users": "Users",
    "#/users/guest": "User guest",
    "#/vhosts": "Vhosts",
    "#/settings": "Settings",
}
NARROWEST = {"width": 360, "height": 740}

# What people with a screen reader, or without a mouse, need of every page.
OFFENCES = """
() => {
  const told = [];
  const named = (element) =>
    element.getAttribute("aria-label") || element.labels?.[0]?.textContent || element.textContent.trim() ||
    document.getElementById(element.getAttribute("aria-labelledby"))?.textContent || element.title;
  const mustHaveNames = "input, select, textarea, button, a[href], [role=button], dialog, aside";
  for (const one of document.querySelectorAll(mustHaveNames)) {
    if (!named(one)) told.push("no name: " + one.outerHTML.slice(0, 90));
  }
  for (const one of document.querySelectorAll("img:not([alt])")) told.push("no alt: " + one.src);
  for (const one of document.querySelectorAll("table")) {
    if (!one.caption) told.push("a table without a caption");
    if (one.querySelector("th:not([scope])")) told.push("a heading without its scope: " + one.caption?.textContent);
  }
  for (const one of document.querySelectorAll(".table-scroll, svg.chart")) {
    if (one.tabIndex !== 0) told.push("not reached by Tab: " + one.className);
  }
  const ids = [...document.querySelectorAll("[id]")].map((one) => one.id);
  for (const id of new Set(ids)) if (ids.filter((other) => other === id).length > 1) told.push("twice: #" + id);
  if (document.querySelectorAll("h1").length !== 1) told.push("not one h1");
  if (!document.documentElement.lang) told.push("no language");
  if (document.querySelectorAll("[style], style, script:not([src])").length) told.push("something inline");
  return told;
}
"""
# Of the page, or of a table in it whose last column one would have to look for. Not of those that are folded up.
TOO_WIDE = """
() => Math.max(...[document.scrollingElement, ...document.querySelectorAll(":not(details) > .table-scroll")].map(
  (one) => one.scrollWidth - one.clientWidth,
))
"""
# Text on the ground it stands on.
CONTRASTS = (
    ("--text", "--ground"),
    ("--text", "--surface"),
    ("--text", "--hover"),
    ("--muted", "--ground"),
    ("--muted", "--surface"),
    ("--muted", "--sunken"),
    ("--accent", "--surface"),
    ("--accent", "--ground"),
    ("--accent", "--accent-soft"),
    ("--accent-text", "--accent"),
    ("--good", "--good-soft"),
    ("--warn", "--warn-soft"),
    ("--bad", "--bad-soft"),
    ("--bad", "--surface"),
    ("--heat-text", "--heat-high"),
    ("--heat-text", "--heat-most"),
    ("--cause-channel", "--surface"),
    ("--cause-queue", "--surface"),
    ("--cause-dead-letters", "--surface"),
    ("--cause-store", "--surface"),
    ("--cause-memory", "--surface"),
    ("--cause-disk", "--surface"),
    ("--cause-store-fault", "--surface"),
    ("--cause-saturated", "--surface"),
)
# What a page would do whose maker, or whose data, had brought code into it.
INLINE = """
() => {
  window.ran = [];
  const script = document.createElement("script");
  script.textContent = "window.ran.push('script')";
  const button = document.createElement("button");
  button.setAttribute("onclick", "window.ran.push('handler')");
  const link = document.createElement("a");
  link.href = "javascript:window.ran.push('link')";
  document.body.append(script, button, link);
  button.click();
  link.click();
  for (const one of [script, button, link]) one.remove();
}
"""
HEADERS_OF = """
(url) => fetch(url).then((answer) => [answer.status, answer.headers.get("Content-Security-Policy") ?? "none"])
"""
CONTRAST_MIN = 4.5  # WCAG AA, ordinary text
EDGE_CONTRAST_MIN = 3.0  # WCAG AA, borders and lines that mean something
EDGES = (
    "--line-strong",
    "--focus",
    "--age-1",
    "--age-2",
    "--age-3",
    "--series-1",
    "--series-2",
    "--series-3",
    "--series-4",
)


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def colour(page: Page, name: str) -> str:
    return page.evaluate("(name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim()", name)


def settled(page: Page) -> None:
    """What the view asked for first has come."""
    expect(page.locator(".panel:empty, .tiles:empty, tbody:empty")).to_have_count(0)


def test_nobody_sees_a_file_of_the_page_without_a_login_but_the_login_s_own(site: Site, guest: Visit):
    script = guest.page.locator("script[type=module]").get_attribute("src")
    assert script is not None
    with urllib.request.urlopen(f"{site.url}/") as answer:
        assert answer.url == f"{site.url}/login"
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
        assert "unsafe" not in answer.headers["Content-Security-Policy"]
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Referrer-Policy"] == "no-referrer"
        tag = answer.headers["ETag"]
    for path in (script, "/page/0/main.js", "/api/overview"):
        with pytest.raises(urllib.error.HTTPError, match="401") as refused:
            urllib.request.urlopen(f"{site.url}{path}")
        refused.value.close()
    for path in ("/login/../app/main.js", "/login/%2e%2e%2fapp%2fmain.js", "/login/login.html"):
        with pytest.raises(urllib.error.HTTPError, match=r"40\d") as missing:
            urllib.request.urlopen(f"{site.url}{path}")
        missing.value.close()
    again = urllib.request.Request(f"{site.url}/login", headers={"If-None-Match": tag})
    with pytest.raises(urllib.error.HTTPError, match="304") as unchanged:
        urllib.request.urlopen(again)
    unchanged.value.close()
    kept = guest.page.evaluate("(url) => fetch(url).then((answer) => answer.headers.get('Cache-Control'))", script)
    assert "immutable" in kept


def test_the_policy_stands_on_everything_and_nothing_inline_runs(guest: Visit):
    page = guest.page
    script = page.locator("script[type=module]").get_attribute("src")
    assert script is not None
    for path in ("/", script, "/login", "/api/overview", "/api/nothing-like-it"):
        status, policy = page.evaluate(HEADERS_OF, path)
        assert status == (404 if "nothing" in path else 200), path
        allowed = dict(part.split(" ", 1) for part in policy.split("; "))
        assert (allowed["default-src"], allowed["script-src"]) == ("'none'", "'self'"), path
        assert allowed["frame-ancestors"] == allowed["base-uri"] == "'none'", path
        assert "unsafe" not in policy, path
    guest.expected = ("Content Security Policy", "404")  # the console tells of each, and of the path that is not there
    page.evaluate(INLINE)
    page.wait_for_function("window.violations.length >= 3")
    assert page.evaluate("window.ran") == []
    page.evaluate("window.violations = []")  # these were asked for


def test_what_the_page_asks_for_when_nobody_has_touched_it_for_a_minute_does_not_count_as_use(visit: Open):
    one = visit()
    page = one.page
    page.clock.install()
    one.login()
    one.open("#/flow", "Flow")
    with page.expect_request("**/api/flow") as used:
        page.mouse.move(200, 200)
    assert used.value.headers["x-penstock"] == "1"
    with page.expect_request(lambda request: request.headers.get("x-penstock") == "auto"):
        page.clock.fast_forward("01:01")
    with page.expect_request("**/api/flow") as left:
        page.evaluate("document.dispatchEvent(new CustomEvent('penstock:found'))")  # it asks now, not in a second
    assert left.value.headers["x-penstock"] == "auto"
    with page.expect_request(lambda request: request.headers.get("x-penstock") == "1"):
        page.keyboard.press("Shift")  # somebody is there again


def test_a_wrong_password_is_said_and_a_session_that_ended_leads_back_to_where_one_was(visit: Open, site: Site):
    one = visit()
    one.expected = ("401",)
    page = one.page
    page.goto(f"{site.url}/#/queues")
    expect(page).to_have_url(f"{site.url}/login#/queues")
    page.get_by_label("User").fill("guest")
    page.get_by_label("Password").fill("wrong")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("wrong")
    page.get_by_label("Password").fill("guest")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1, name="Queues")).to_be_visible()
    one.context.clear_cookies()  # as if the session had ended
    page.evaluate("document.dispatchEvent(new CustomEvent('penstock:found'))")  # it asks now, not in some seconds
    expect(page).to_have_url(f"{site.url}/login#/queues")
    page.get_by_label("User").fill("guest")
    page.get_by_label("Password").fill("guest")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1, name="Queues")).to_be_visible()
    page.get_by_role("button", name="Log out").click()
    expect(page).to_have_url(f"{site.url}/login")


def test_what_a_user_s_tags_do_not_allow_is_not_offered(visit: Open, site: Site):
    site.queue("looked-at")
    offered = {}
    for tag in ("monitoring", "management", "policymaker"):
        site.user(tag, tag)
        one = visit().login(tag)
        page = one.page
        names = page.get_by_role("navigation", name="Pages").get_by_role("link").all_inner_texts()
        one.open("#/queues/%2F/looked-at", "Queue looked-at")
        settled(page)
        offered[tag] = (set(names), set(page.locator(".actions button").all_inner_texts()))
        one.open("#/queues", "Queues")
        expect(page.get_by_role("link", name="looked-at")).to_be_visible()
        one.open("#/exchanges", "Exchanges")
        expect(page.get_by_role("link", name="amq.topic")).to_be_visible()
    everybody = {"Overview", "Connections", "Channels", "Exchanges", "Queues", "Streams"}
    doing = {"Publish", "Bind", "Get", "Purge", "Delete"}
    assert offered["monitoring"] == (everybody | {"Flow", "History"}, set())
    assert offered["management"] == (everybody, doing)
    assert offered["policymaker"] == (everybody | {"Policies"}, doing)


def test_a_queue_is_created_with_the_keyboard_alone_and_escape_gives_the_focus_back(guest: Visit, site: Site):
    page = guest.page
    guest.open("#/queues", "Queues")
    page.reload()  # so that Tab begins at the top
    expect(page.get_by_role("button", name="New queue")).to_be_visible()
    settled(page)
    page.keyboard.press("Tab")
    expect(page.locator("#skip")).to_be_focused()
    expect(page.locator("#skip")).to_be_in_viewport()
    page.keyboard.press("Enter")
    expect(page.locator("#main")).to_be_focused()
    page.keyboard.press("Tab")
    opener = page.get_by_role("button", name="New queue")
    expect(opener).to_be_focused()
    assert opener.evaluate("(button) => getComputedStyle(button).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog", name="New queue")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(opener).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog").get_by_label("Name", exact=True)).to_be_focused()
    page.keyboard.type("by-hand")
    page.keyboard.press("Enter")
    expect(page.get_by_role("link", name="by-hand")).to_be_visible()
    assert site.api("GET", "queues/%2F/by-hand")["durable"] is True


def test_every_page_can_be_read_and_used_without_a_mouse_and_fits_a_phone(visit: Open, site: Site):
    site.api("PUT", "vhosts/staging")
    site.queue("bound")
    site.api("POST", "bindings/%2F/e/amq.topic/q/bound", {"routing_key": "bound.#", "arguments": {}})
    site.api("PUT", "policies/%2F/short", {"pattern": "^tmp", "definition": {"max-length": 5}})
    one = visit(viewport=NARROWEST).login()
    page = one.page
    page.get_by_role("button", name="Menu").click()
    expect(page.get_by_role("link", name="Queues")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("link", name="Queues")).to_be_hidden()
    told = {}
    for fragment, heading in PAGES.items():
        one.open(fragment, heading)
        settled(page)
        wide = page.evaluate(TOO_WIDE)
        offences = [*page.evaluate(OFFENCES), *([f"{wide} px too wide"] if wide > 0 else [])]
        if offences:
            told[fragment] = offences
    assert not told
    one.open("#/exchanges", "Exchanges")  # there is no column for the vhost: two of one name would look the same
    expect(page.get_by_role("row").filter(has_text="amq.topic").get_by_text("in staging")).to_be_visible()
    site.api("DELETE", "vhosts/staging")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_enough_contrast(visit: Open, site: Site, scheme: str):
    page = visit(color_scheme=scheme).page
    page.goto(f"{site.url}/login")
    pairs = [(one, ground, CONTRAST_MIN) for one, ground in CONTRASTS]
    pairs += [(edge, "--surface", EDGE_CONTRAST_MIN) for edge in EDGES]
    found = {(one, ground): contrast(colour(page, one), colour(page, ground)) for one, ground, _ in pairs}
    low = {pair: round(found[pair[:2]], 2) for pair in pairs if found[pair[:2]] < pair[2]}
    assert not low


def test_light_or_dark_is_as_the_system_says_until_one_chooses_and_movement_can_be_off(visit: Open):
    one = visit(color_scheme="dark", reduced_motion="reduce").login()
    page = one.page
    dark = colour(page, "--ground")
    page.get_by_label("Colours").select_option("Light")
    assert colour(page, "--ground") != dark
    page.reload()
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    assert colour(page, "--ground") != dark
    page.get_by_label("Colours").select_option("Auto")
    assert colour(page, "--ground") == dark
    one.open("#/flow", "Flow")
    moving = """() => {
      const edge = document.createElementNS("http://www.w3.org/2000/svg", "g");
      edge.setAttribute("class", "edge is-flowing");
      const wire = document.createElementNS("http://www.w3.org/2000/svg", "path");
      wire.setAttribute("class", "wire");
      edge.append(wire);
      document.querySelector(".flow-graph").append(edge);
      return getComputedStyle(wire).animationName;
    }"""
    assert page.evaluate(moving) == "none"


def test_a_broker_that_goes_away_is_said_and_the_page_goes_on_by_itself(visit: Open, site: Site):
    one = visit().login()
    one.expected = ("ERR_", "Failed to load resource")
    page = one.page
    one.open("#/exchanges", "Exchanges")
    site.stop()
    expect(page.get_by_text("Connection lost.")).to_be_visible()
    site.start()
    # The session has ended with the broker: after the login one is where one was.
    expect(page).to_have_url(re.compile("/login#/exchanges$"))
    page.get_by_label("User").fill("guest")
    page.get_by_label("Password").fill("guest")
    page.keyboard.press("Enter")
    expect(page.get_by_role("link", name="amq.topic")).to_be_visible()
    expect(page.get_by_text("Connection lost.")).to_have_count(0)
