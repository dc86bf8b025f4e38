"""The Flow page under five real overloads: the verdict on it is the true one, and the knob is turned right there."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.browser.site import Site, Visit
from tests.browser.test_manners import CONTRAST_MIN, NARROWEST, OFFENCES, contrast
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
# The first line of the overview, where it is not the sentence.
ALARMED = {"memory": "Alarm: publishers wait. memory: "}
AGES_S = (0.0, 3.0, 15.0, 60.0)  # from when on an edge is warmer: docs/page.md
# Of an edge, at one moment: its age as class, as text and as colour; the legend's colour of that age, and of no age.
AGE = """
(edge) => {
  const age = /age-([0-3])/.exec(edge.getAttribute("class"))[1];
  const shown = (number) => getComputedStyle(document.querySelector(`.flow-legend .age-${number}`)).backgroundColor;
  const wire = getComputedStyle(edge.querySelector(".wire")).stroke;
  return { age: Number(age), text: edge.querySelector(".age").textContent, wire, own: shown(age), young: shown(0) };
}
"""
# What is read out, from now on: the news of the verdicts, each time they are set.
LISTEN = """
() => {
  window.heard = [];
  new MutationObserver((changes) => {
    for (const { target } of changes) {
      if (target.matches?.('[aria-live="polite"].unseen')) window.heard.push(target.textContent);
    }
  }).observe(document.getElementById("main"), { childList: true, subtree: true });
}
"""
# Words and boxes of the picture that stand out of it, or out of the screen.
OVERHANG = """
(width) => [...document.querySelectorAll(".node, .edge .label, .verdict, .step, .flow-panel *")]
  .map((one) => [one.textContent.slice(0, 40), one.getBoundingClientRect()])
  .concat([...document.querySelectorAll(".node")].flatMap((node) => {
    const inner = (one) => one.getBBox().x + one.getBBox().width;
    const box = inner(node.querySelector(".box"));
    return [...node.querySelectorAll("text")]
      .filter((text) => inner(text) > box)
      .map((text) => [text.textContent, { left: 0, right: Infinity }]);
  }))
  .filter(([, { left, right }]) => left < 0 || right > width)
  .map(([text]) => text)
"""
# The order on a narrow screen of two chains to one store.
NARROW = """
async (bottleneck) => {
  const source = document.querySelector("script[type=module]").src;
  const { lane } = await import(source.replace("main.js", "flow/lane.js"));
  const layers = { connection: 0, channel: 1, queue: 2, store: 3, consumers: 3 };
  const chains = [["connection a", "channel a", "queue a", "store"], ["connection b", "channel b", "queue b", "store"]];
  if (bottleneck === "consumers of queue b") chains.push(["queue b", bottleneck]);
  const nodes = [...new Set(chains.flat())].map((id) => {
    const kind = id.split(" ")[0];
    return { id, kind, layer: layers[kind], line: "", isBottleneck: id === bottleneck, matters: id.endsWith(" b") };
  });
  const edges = chains.flatMap((ids) => ids.slice(1).map((id, i) => ({ upstream: ids[i], downstream: id })));
  return lane({ nodes, edges }, 332).nodes.map((node) => node.id);
}
"""
PAINT = "(one, what) => getComputedStyle(one)[what]"


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
    expect(page.locator(".edge.is-blocking").first).to_be_visible()
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


def seconds(text: str) -> float:
    """As the page writes them: 41 ms, 1.4 s, 3 min 20 s."""
    units = {"ms": 0.001, "s": 1.0, "min": 60.0}
    return sum(float(number) * units[unit] for number, unit in re.findall(r"([\d.]+) (ms|s|min)\b", text))


def sees_it_grow_older(page: Page) -> None:
    edge = page.locator(".edge.is-blocking").first
    expect(edge).to_have_class(re.compile(r"\bage-[1-3]\b"))
    seen = edge.evaluate(AGE)
    assert seconds(seen["text"]) >= AGES_S[seen["age"]], seen
    assert seen["wire"] == seen["own"] != seen["young"], seen


def sees_the_end(guest: Visit) -> None:
    expect(guest.page.locator(".verdict")).to_have_count(0)
    expect(guest.page.get_by_text("Nothing is held back.", exact=True)).to_be_visible()


@pytest.mark.parametrize("overloaded", ["store", "channel", "memory"], indirect=True)
def test_the_verdict_on_the_page_is_the_true_one_and_goes_when_its_cause_goes(guest: Visit, overloaded: Overload):
    sees_the_truth(guest, overloaded)
    guest.open("#/", "Overview")
    told = ALARMED.get(overloaded.kind) or re.compile(f"^Held back: {CONNECTION}.*{SENTENCES[overloaded.kind]}")
    expect(guest.page.locator(".banner p")).to_contain_text(told)
    guest.page.locator(".banner").get_by_role("link", name="Flow").click()
    expect(guest.page.locator(".verdict")).to_have_count(1)
    overloaded.lift()
    sees_the_end(guest)


@pytest.mark.parametrize("overloaded", ["queue"], indirect=True)
def test_a_slow_queue_is_named_and_its_knob_is_turned_with_the_keyboard_alone(
    guest: Visit, overloaded: Overload, site: Site
):
    page = guest.page
    page.evaluate(LISTEN)
    sees_the_truth(guest, overloaded)
    panel = page.get_by_role("complementary")
    step = page.locator(".verdict").get_by_role("button", name=f"queue {QUEUE}")
    step.focus()
    before = page.locator(".verdict .sentence").inner_text()
    expect(page.locator(".verdict .sentence")).not_to_have_text(before)
    expect(step).to_be_focused()  # news do not take it away
    sees_it_grow_older(page)
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
    heard = page.evaluate("window.heard")  # once, though the numbers in it changed all the time
    assert [SENTENCES["queue"] in one for one in heard].count(True) == 1, heard
    assert heard[-1] == "Nothing is held back any more."


@pytest.mark.parametrize("overloaded", ["memory"], indirect=True)
def test_on_a_phone_in_the_dark_the_verdict_is_read_and_its_knob_is_turned_by_tapping(
    visit: Callable[..., Visit], overloaded: Overload, site: Site
):
    one = visit(viewport=NARROWEST, color_scheme="dark", has_touch=True, is_mobile=True).login()
    page = one.page
    one.open("#/flow", "Flow")
    verdict = page.locator(f'.verdict[data-connection="{CONNECTION}"]')
    expect(verdict).to_have_attribute("data-cause", overloaded.cause)
    expect(verdict.locator(".sentence")).to_contain_text(SENTENCES[overloaded.kind])
    bottleneck = page.locator(".flow-graph.is-narrow .node.is-bottleneck")
    expect(bottleneck).to_have_attribute("data-id", BOTTLENECKS[overloaded.kind])
    expect(page.locator(".edge.is-blocking").first).to_have_text(re.compile(r"\d (ms|s|min)"))
    bottleneck.tap()
    panel = page.get_by_role("complementary")
    expect(panel.get_by_role("heading", level=2)).to_be_in_viewport()
    expect(panel.locator(".sentence").first).to_contain_text(CONNECTION)
    knob = page.get_by_label("alarms.memory_bytes_high")
    expect(knob).to_be_visible()
    # A phone makes a page that is too wide smaller: the width that counts is the screen's.
    width = NARROWEST["width"]
    assert page.evaluate("document.scrollingElement.scrollWidth") <= width
    assert page.evaluate(OVERHANG, width) == []
    assert page.evaluate(OFFENCES) == []
    for text, ground in (
        (".verdict .sentence", ".verdict"),
        (".node.is-bottleneck .words", ".node.is-bottleneck .box"),
    ):
        in_front = page.locator(text).first.evaluate(PAINT, "fill" if "words" in text else "color")
        behind = page.locator(ground).first.evaluate(PAINT, "fill" if "words" in text else "backgroundColor")
        assert contrast(hexed(in_front), hexed(behind)) >= CONTRAST_MIN, (text, in_front, behind)
    knob.tap()
    knob.fill("0")
    panel.locator(".setting").filter(has=knob).get_by_role("button").tap()
    one.said("alarms.memory_bytes_high is 0.")
    assert site.api("GET", "settings/alarms.memory_bytes_high")["value"] == "0"
    page.get_by_role("button", name="Close the panel").tap()
    sees_the_end(one)


def hexed(colour: str) -> str:
    """rgb(1, 2, 3) as #010203."""
    return "#" + "".join(f"{int(part):02x}" for part in re.findall(r"\d+", colour)[:3])


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


def test_on_a_narrow_screen_a_bottleneck_ends_the_chain_that_it_holds_up(guest: Visit):
    held, calm = ([f"{kind} {name}" for kind in ("connection", "channel", "queue")] for name in "ba")
    consumers = "consumers of queue b"
    assert guest.page.evaluate(NARROW, "store") == [*held, "store", *calm]
    assert guest.page.evaluate(NARROW, consumers) == [*held, consumers, *calm, "store"]
    assert guest.page.evaluate(NARROW, "queue b") == [*held, *calm, "store"]


def test_every_overload_is_looked_at():
    assert set(KINDS) == set(BOTTLENECKS) == set(SENTENCES)
