"""The Flow page under five real overloads: the verdict on it is the true one, and the knob is turned right there."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.browser.site import Site, Visit
from tests.wire.overloads import CONNECTION, KINDS, QUEUE, Overload, overload
from tests.wire.waiting import LIMIT_S, wait_until

# What the bottleneck is called in the picture, by the kind of overload.
BOTTLENECKS: dict[str, str | re.Pattern[str]] = {
    "store": "store",
    "queue": f"queue {QUEUE}",
    "channel": re.compile(r"^channel .*\(1\)$"),
    "memory": "alarm memory",
    "saturated": f"consumers of queue {QUEUE}",
}
SENTENCES = {
    "store": "waits for the disk",
    "queue": f"held back by queue {QUEUE}",
    "channel": "held back by its channel",
    "memory": "memory alarm",
    "saturated": "waits for its confirms",
}


@pytest.fixture
def overloaded(request: pytest.FixtureRequest, site: Site) -> Iterator[Overload]:
    with overload(request.param, site.port, site.url) as one:
        yield one
    # A client that was killed while it was held back is noticed when what it had sent is read.
    wait_until(lambda: not any(CONNECTION in str(one) for one in site.api("GET", "connections")), LIMIT_S)
    site.api("DELETE", f"queues/%2F/{QUEUE}")


def sees_the_truth(guest: Visit, overloaded: Overload) -> None:
    """The verdict in words, the bottleneck in the picture, and the panel of it."""
    page = guest.page
    guest.open("#/flow", "Flow")
    verdict = page.locator(f'.verdict[data-connection="{CONNECTION}"]')
    expect(verdict).to_have_attribute("data-cause", overloaded.cause)
    expect(verdict.locator(".sentence")).to_contain_text(SENTENCES[overloaded.kind])
    expect(page.locator(".verdict")).to_have_count(1)
    bottleneck = page.locator(".node.is-bottleneck")
    expect(bottleneck).to_have_attribute("data-id", BOTTLENECKS[overloaded.kind])
    edge = page.locator(".edge.is-blocking").first
    expect(edge).to_be_visible()
    expect(edge).to_have_class(re.compile(r"\bage-[0-3]\b"))  # its colour
    bottleneck.click()
    panel = page.get_by_role("complementary")
    expect(panel.locator(".sentence").first).to_contain_text(CONNECTION)
    expect(panel.locator(".setting").first).to_be_visible()
    page.get_by_role("button", name="Close the panel").click()
    expect(panel).to_have_count(0)
    page.get_by_label("Filter stages by name").fill("nothing like it")
    expect(page.locator(".node")).to_have_count(0)
    page.get_by_label("Filter stages by name").fill(CONNECTION)
    expect(bottleneck).to_be_visible()
    page.get_by_label("Filter stages by name").fill("")


def sees_the_end(guest: Visit) -> None:
    expect(guest.page.locator(".verdict")).to_have_count(0)
    expect(guest.page.get_by_text("Nothing is held back.", exact=True)).to_be_visible()


@pytest.mark.parametrize("overloaded", ["store", "channel", "memory"], indirect=True)
def test_the_verdict_on_the_page_is_the_true_one_and_goes_when_its_cause_goes(guest: Visit, overloaded: Overload):
    sees_the_truth(guest, overloaded)
    overloaded.lift()
    sees_the_end(guest)


@pytest.mark.parametrize("overloaded", ["queue"], indirect=True)
def test_a_slow_queue_is_named_and_its_knob_is_turned_with_the_keyboard_alone(
    guest: Visit, overloaded: Overload, site: Site
):
    sees_the_truth(guest, overloaded)
    page = guest.page
    panel = page.get_by_role("complementary")
    step = page.locator(".verdict").get_by_role("button", name=f"queue {QUEUE}")
    step.focus()
    before = page.locator(".verdict .sentence").inner_text()
    expect(page.locator(".verdict .sentence")).not_to_have_text(before)
    expect(step).to_be_focused()  # news do not take it away
    page.locator(".node.is-bottleneck").focus()
    page.keyboard.press("Enter")
    expect(panel.get_by_role("heading", level=2)).to_be_focused()
    knob = panel.get_by_label("faults.queue_delay_us")
    expect(knob).to_be_visible()
    while not knob.evaluate("(input) => input === document.activeElement"):  # pytest's own limit ends it
        page.keyboard.press("Tab")
    page.keyboard.press("ControlOrMeta+A")
    page.keyboard.type("0")
    page.keyboard.press("Enter")
    guest.said("faults.queue_delay_us is 0.")
    assert site.api("GET", "settings/faults.queue_delay_us")["value"] == "0"
    page.keyboard.press("Escape")
    expect(panel).to_have_count(0)
    sees_the_end(guest)


@pytest.mark.parametrize("overloaded", ["saturated"], indirect=True)
def test_a_saturated_queue_is_named_and_its_watermark_is_changed_by_a_policy_for_it_alone(
    guest: Visit, overloaded: Overload, site: Site
):
    sees_the_truth(guest, overloaded)
    page = guest.page
    panel = page.get_by_role("complementary")
    page.locator(f'.edge[data-key$="→ queue {QUEUE}"]').focus()
    page.keyboard.press("Enter")
    expect(panel).to_contain_text(re.compile(r"\d+ of 400"))
    expect(panel.get_by_label("credit.channel_queue", exact=True)).to_have_value("400,200")
    mark = panel.get_by_label("flow-stop-count")
    mark.fill("9000")
    mark.press("Enter")
    expect(panel.get_by_role("alert").filter(has_text="x-flow-stop-count: 50")).to_be_visible()
    mark.fill("40")
    mark.press("Enter")
    guest.said("flow-stop-count of queue orders is 40")
    policy = site.api("GET", f"policies/%2F/queue-{QUEUE}")
    assert policy["pattern"] == f"^{QUEUE}$"
    assert policy["definition"] == {"flow-stop-count": 40}
    site.api("DELETE", f"policies/%2F/queue-{QUEUE}")
    page.keyboard.press("Escape")
    overloaded.lift()
    sees_the_end(guest)


def test_every_overload_is_looked_at():
    assert set(KINDS) == set(BOTTLENECKS) == set(SENTENCES)
