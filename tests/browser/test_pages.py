"""Each page does what it says, by clicks alone; what was done is looked up over the API."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pika
import pytest
from playwright.sync_api import Page, expect

from tests.browser.site import Site, Visit
from tests.wire.waiting import wait_until

# The page may ask once more for what was deleted just now; Chromium puts that on the console.
GONE = ("404",)


def press(page: Page, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).click()


def dialog(page: Page):
    return page.get_by_role("dialog")


def field(page: Page, label: str):
    """A field of the dialog that is open, by its whole label, or the label's begin up to a comma."""
    return dialog(page).get_by_label(re.compile(f"^{re.escape(label)}(,|$)"))


def fact(page: Page, name: str):
    """What stands beside this name in a list of facts."""
    return page.locator(".facts > div").filter(has=page.locator("dt", has_text=re.compile(f"^{name}$"))).locator("dd")


def tile(page: Page, name: str):
    """The number below this name."""
    return page.locator(".tiles > div").filter(has=page.locator("dt", has_text=re.compile(f"^{name}$"))).locator("dd")


def confirm(page: Page, name: str) -> None:
    """The button of the dialog that is open; it closes when it is done."""
    dialog(page).get_by_role("button", name=name, exact=True).click()
    expect(dialog(page)).to_have_count(0)


def test_a_queue_is_created_bound_published_to_read_purged_and_deleted_by_clicking(guest: Visit, site: Site):
    guest.expected = GONE
    page = guest.page
    guest.open("#/queues", "Queues")
    press(page, "New queue")
    field(page, "Name").fill("a/b orders")
    dialog(page).get_by_text("Limits, dead letters, watermarks").click()
    field(page, "Messages live").fill("600000")
    confirm(page, "Create")
    made = site.api("GET", "queues/%2F/a%2Fb%20orders")
    assert made["durable"] is True
    assert made["arguments"]["x-message-ttl"] == 600000

    page.get_by_role("link", name="a/b orders").click()
    expect(page.get_by_role("heading", level=1, name="Queue a/b orders")).to_be_visible()
    press(page, "Bind")
    field(page, "From exchange").fill("amq.topic")
    field(page, "Routing key").fill("orders.#")
    confirm(page, "Bind")
    expect(page.get_by_role("link", name="amq.topic")).to_be_visible()

    press(page, "Publish")
    field(page, "Body").fill("first <b>body</b>")
    dialog(page).get_by_text("Properties and headers").click()
    field(page, "Headers").fill('{"who": "me"}')
    confirm(page, "Publish")
    guest.said("The message is published.")
    wait_until(lambda: site.api("GET", "queues/%2F/a%2Fb%20orders")["messages"] == 1)

    press(page, "Get")
    dialog(page).get_by_role("button", name="Get", exact=True).click()
    expect(page.get_by_label("Body")).to_have_text("first <b>body</b>")
    expect(dialog(page)).to_contain_text("who: me")
    press(page, "Close")
    expect(dialog(page)).to_have_count(0)

    press(page, "Purge")
    confirm(page, "Purge")
    wait_until(lambda: site.api("GET", "queues/%2F/a%2Fb%20orders")["messages"] == 0)
    page.get_by_role("button", name=re.compile("^Unbind")).first.click()
    confirm(page, "Unbind")
    expect(page.get_by_role("link", name="amq.topic")).to_have_count(0)
    press(page, "Delete")
    confirm(page, "Delete")
    expect(page.get_by_role("heading", level=1, name="Queues")).to_be_visible()
    assert site.api("GET", "queues/%2F/a%2Fb%20orders") is None


def test_what_the_broker_refuses_is_said_in_the_dialog_and_nothing_is_lost(guest: Visit, site: Site):
    site.queue("taken")
    guest.expected = ("400", "406")
    page = guest.page
    guest.open("#/queues", "Queues")
    press(page, "New queue")
    field(page, "Name").fill("taken")
    dialog(page).get_by_text("Limits, dead letters, watermarks").click()
    field(page, "Messages live").fill("5")
    dialog(page).get_by_role("button", name="Create", exact=True).click()
    expect(dialog(page).get_by_role("alert")).to_contain_text("taken")
    expect(field(page, "Name")).to_have_value("taken")
    page.keyboard.press("Escape")
    expect(dialog(page)).to_have_count(0)


def test_an_exchange_is_created_bound_published_to_and_deleted_by_clicking(guest: Visit, site: Site):
    site.queue("letters")
    guest.expected = GONE
    page = guest.page
    guest.open("#/exchanges", "Exchanges")
    press(page, "New exchange")
    field(page, "Name").fill("post")
    field(page, "Type").select_option("topic")
    confirm(page, "Create")
    page.get_by_role("link", name="post", exact=True).click()
    expect(page.get_by_role("heading", level=1, name="Exchange post")).to_be_visible()
    press(page, "Bind")
    field(page, "Name").fill("letters")
    field(page, "Routing key").fill("mail.*")
    confirm(page, "Bind")
    expect(page.get_by_role("link", name="letters")).to_be_visible()
    press(page, "Publish")
    field(page, "Routing key").fill("mail.in")
    field(page, "Body").fill("hello")
    confirm(page, "Publish")
    wait_until(lambda: site.api("GET", "queues/%2F/letters")["messages"] == 1)
    press(page, "Delete")
    confirm(page, "Delete")
    assert site.api("GET", "exchanges/%2F/post") is None


def test_a_stream_is_created_and_shown_among_streams_alone(guest: Visit, site: Site):
    site.queue("plain-queue")
    page = guest.page
    guest.open("#/streams", "Streams")
    press(page, "New stream")
    field(page, "Name").fill("readings")
    field(page, "Keeps at most, age").fill("7D")
    confirm(page, "Create")
    expect(page.get_by_role("link", name="readings")).to_be_visible()
    expect(page.get_by_role("link", name="plain-queue")).to_have_count(0)
    expect(page.get_by_role("row", name="penstock.events")).to_contain_text("7 d")
    assert site.api("GET", "queues/%2F/readings")["arguments"]["x-max-age"] == "7D"


def test_a_stream_is_published_to_shows_its_offsets_and_readers_and_is_deleted_by_clicking(guest: Visit, site: Site):
    site.queue("meter", **{"x-queue-type": "stream"})
    guest.expected = GONE
    page = guest.page
    guest.open("#/streams", "Streams")
    page.get_by_role("link", name="meter").click()
    expect(page.get_by_role("heading", level=1, name="Queue meter")).to_be_visible()
    expect(fact(page, "Offsets")).to_have_text("0 up to 0")
    press(page, "Publish")
    field(page, "Body").fill("21.5")
    confirm(page, "Publish")
    expect(fact(page, "Offsets")).to_have_text("0 up to 1")
    expect(tile(page, "Messages")).to_have_text(re.compile("^1"))
    expect(tile(page, "Readers")).to_have_text("0")
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", site.port, heartbeat=0)) as client:
        channel = client.channel()
        channel.basic_qos(prefetch_count=10)
        channel.basic_consume("meter", lambda *delivery: None, consumer_tag="wall-display")
        page.evaluate("document.dispatchEvent(new CustomEvent('penstock:found'))")  # it asks now, not in some seconds
        expect(tile(page, "Readers")).to_have_text("1")
        expect(page.get_by_role("row").filter(has_text="wall-display")).to_contain_text("10")
    press(page, "Delete")
    confirm(page, "Delete")
    expect(page.get_by_role("heading", level=1, name="Streams")).to_be_visible()
    expect(page.get_by_role("link", name="penstock.events")).to_be_visible()
    expect(page.get_by_role("link", name="meter")).to_have_count(0)
    assert site.api("GET", "queues/%2F/meter") is None


def test_a_user_gets_tags_permissions_and_a_new_password_by_clicking(guest: Visit, site: Site):
    guest.expected = GONE
    page = guest.page
    guest.open("#/users", "Users")
    press(page, "New user")
    field(page, "Name").fill("ada")
    field(page, "Password").fill("first")
    dialog(page).get_by_label("monitoring").check()
    confirm(page, "Create")
    expect(page.get_by_role("heading", level=1, name="User ada")).to_be_visible()
    press(page, "Set permissions")
    field(page, "Configure").fill("^ada\\.")
    confirm(page, "Set")
    expect(page.get_by_text("^ada\\.")).to_be_visible()
    assert site.api("GET", "permissions/%2F/ada")["configure"] == "^ada\\."
    assert site.api("GET", "whoami", user="ada:first")["tags"] == ["monitoring"]
    press(page, "Change password or tags")
    field(page, "New password").fill("second")
    confirm(page, "Change")
    assert site.api("GET", "whoami", user="ada:second")["tags"] == ["monitoring"]
    expect(page.get_by_text("None: every routing key is allowed.")).to_be_visible()
    press(page, "Topic permissions")
    expect(field(page, "Exchange")).to_have_value("amq.topic")
    field(page, "Write").fill("^sensor\\.")
    field(page, "Read").fill("")
    confirm(page, "Set")
    expect(page.get_by_role("row").filter(has_text="amq.topic")).to_contain_text(
        re.compile(r"\^sensor\\..*\(nothing\)")
    )
    (allowed,) = site.api("GET", "topic-permissions/%2F/ada")
    assert (allowed["exchange"], allowed["write"], allowed["read"]) == ("amq.topic", "^sensor\\.", "")
    press(page, "Clear topic permissions in /")
    confirm(page, "Clear")
    expect(page.get_by_text("None: every routing key is allowed.")).to_be_visible()
    assert not site.api("GET", "topic-permissions/%2F/ada")
    press(page, "Clear permissions in /")
    confirm(page, "Clear")
    expect(page.get_by_text("None: this user can open no vhost.")).to_be_visible()
    press(page, "Delete")
    confirm(page, "Delete")
    assert site.api("GET", "users/ada") is None


def test_a_policy_is_made_changed_and_deleted_by_clicking(guest: Visit, site: Site):
    page = guest.page
    guest.open("#/policies", "Policies")
    press(page, "New policy")
    field(page, "Name").fill("short")
    field(page, "Pattern").fill("^tmp\\.")
    field(page, "Definition").fill('{"max-length": 5}')
    confirm(page, "Apply")
    press(page, "short")
    field(page, "Definition").fill('{"max-length": 7}')
    confirm(page, "Apply")
    assert site.api("GET", "policies/%2F/short")["definition"] == {"max-length": 7}
    press(page, "Delete short")
    confirm(page, "Delete")
    assert site.api("GET", "policies/%2F/short") is None


def test_an_operator_policy_is_made_changed_and_deleted_and_is_in_force_on_its_queues(guest: Visit, site: Site):
    site.queue("capped")
    page = guest.page
    guest.open("#/policies", "Policies")
    press(page, "New operator policy")
    field(page, "Name").fill("cap")
    field(page, "Pattern").fill("^capped$")
    field(page, "Definition").fill('{"max-length": 9}')
    confirm(page, "Apply")
    press(page, "cap")
    field(page, "Definition").fill('{"max-length": 8}')
    confirm(page, "Apply")
    assert site.api("GET", "operator-policies/%2F/cap")["definition"] == {"max-length": 8}
    assert site.api("GET", "policies/%2F/cap") is None
    guest.open("#/queues/%2F/capped", "Queue capped")
    expect(fact(page, "Operator policy")).to_have_text("cap")
    expect(fact(page, "Policy in force")).to_have_text("max-length: 8")
    guest.open("#/policies", "Policies")
    press(page, "Delete cap")
    confirm(page, "Delete")
    assert site.api("GET", "operator-policies/%2F/cap") is None


def test_a_vhost_is_made_and_is_deleted_only_by_its_name(guest: Visit, site: Site):
    page = guest.page
    guest.open("#/vhosts", "Vhosts")
    press(page, "New vhost")
    field(page, "Name").fill("shop")
    confirm(page, "Create")
    press(page, "Delete shop")
    field(page, "Type its name").fill("ship")
    dialog(page).get_by_role("button", name="Delete", exact=True).click()
    expect(dialog(page).get_by_role("alert")).to_have_text("That is not shop.")
    field(page, "Type its name").fill("shop")
    confirm(page, "Delete")
    assert site.api("GET", "vhosts/shop") is None


def test_a_setting_changes_at_once_and_a_wrong_value_is_refused_with_the_reason(guest: Visit, site: Site):
    guest.expected = ("400",)
    page = guest.page
    guest.open("#/settings", "Settings")
    field = page.get_by_label("credit.channel_queue", exact=True)
    field.fill("300,100")
    field.press("Enter")
    guest.said("credit.channel_queue is 300,100.")
    assert site.api("GET", "settings/credit.channel_queue")["value"] == "300,100"
    field.fill("1,9")
    field.press("Enter")
    expect(page.get_by_role("alert").filter(has_text="credit")).to_be_visible()
    assert site.api("GET", "settings/credit.channel_queue")["value"] == "300,100"
    field.fill("400,200")
    field.press("Enter")
    guest.said("credit.channel_queue is 400,200.")


def test_a_connection_is_shown_with_its_channel_and_is_closed_by_clicking(guest: Visit, site: Site):
    parameters = pika.ConnectionParameters(
        "127.0.0.1", site.port, client_properties={"connection_name": "till-7"}, heartbeat=0
    )
    client = pika.BlockingConnection(parameters)
    client.channel()
    guest.expected = GONE
    page = guest.page
    guest.open("#/connections", "Connections")
    page.get_by_role("row").filter(has_text="till-7").get_by_role("link").click()
    expect(page.get_by_role("heading", level=1, name=re.compile("Connection 127"))).to_be_visible()
    page.get_by_role("link", name=re.compile(r"\(1\)$")).click()
    expect(page.get_by_role("heading", level=1, name=re.compile("Channel 127"))).to_be_visible()
    page.go_back()
    press(page, "Close connection")
    confirm(page, "Close it")
    with pytest.raises(pika.exceptions.AMQPError):
        client.process_data_events(time_limit=30)
    guest.open("#/channels", "Channels")
    expect(page.get_by_text("No channel is open.")).to_be_visible()


def box(page: Page, cell: str) -> dict[str, float]:
    """Where the words of a table's cell are."""
    words = """(cell) => {
      const range = document.createRange();
      range.selectNodeContents(cell.querySelector("button") ?? cell);
      return range.getBoundingClientRect().toJSON();
    }"""
    found: dict[str, float] = page.locator(f".list {cell}").first.evaluate(words)
    return found


def test_many_queues_are_paged_sorted_and_filtered_by_the_broker(guest: Visit, site: Site):
    for number in range(120):
        site.queue(f"many.{number:03d}")
    site.api("POST", "exchanges/%2F/amq.default/publish", {
        "properties": {}, "routing_key": "many.077", "payload": "x", "payload_encoding": "string",
    })  # fmt: skip
    page = guest.page
    rows = page.locator("tbody tr")
    guest.open("#/queues", "Queues")
    page.get_by_label("Filter Queues by name").fill("many.")
    expect(page.locator(".amount")).to_contain_text("120 of")
    expect(rows).to_have_count(50)
    press(page, "Next")
    expect(page.get_by_text("Page 2 of 3")).to_be_visible()
    expect(rows.first).to_contain_text("many.050")
    press(page, "Next")
    expect(page.get_by_text("Page 3 of 3")).to_be_visible()
    expect(rows).to_have_count(20)
    press(page, "Previous")
    expect(rows.first).to_contain_text("many.050")
    press(page, "Ready")
    expect(rows.first).to_contain_text("many.077")
    expect(page.get_by_role("columnheader", name="Ready")).to_have_attribute("aria-sort", "descending")
    # A heading stands in line with the others, and ends where its numbers end.
    name, total, ready = (box(page, f"th:has-text('{title}')") for title in ("Name", "Total", "Ready"))
    one = box(page, "td:has-text('1')")
    assert abs(ready["right"] - one["right"]) < 2, (ready, one)
    assert abs(total["bottom"] - name["bottom"]) < 2, (total, name)
    page.reload()
    expect(rows.first).to_contain_text("many.077")
    guest.expected = ("400",)
    guest.open("#/queues?name=many.&page=9", "Queues")  # as long as there were more of them
    expect(rows.first).to_contain_text("many.000")
    page.get_by_label("Filter Queues by name").fill("nothing like it")
    expect(page.get_by_text("Nothing has “nothing like it” in its name.")).to_be_visible()


def test_the_overview_draws_what_goes_through_the_broker(guest: Visit, site: Site):
    site.queue("seen")
    body = {"properties": {}, "routing_key": "seen", "payload": "x", "payload_encoding": "string"}
    page = guest.page
    guest.open("#/", "Overview")
    before = site.api("GET", "overview")["queue_totals"]["messages_ready"]
    expect(page.get_by_role("img", name=f"Messages in queues: Ready {before}, Unacked 0")).to_be_visible()
    for _ in range(3):
        site.api("POST", "exchanges/%2F/amq.default/publish", body)
    expect(tile(page, "Ready")).to_have_text(str(before + 3))
    expect(tile(page, "Published")).to_contain_text(re.compile(r"[1-9]\d* in all"))
    drawing = page.get_by_role("img", name=re.compile(f"^Messages in queues: Ready {before + 3}, Unacked 0$"))
    expect(drawing).to_be_visible()
    # It rises by three at the end; what was published is a hill.
    ready, published = heights(page, "Messages in queues"), heights(page, "Messages per second")
    assert ready[-1] == max(ready) > ready[0], ready
    assert max(published) > min(published) == 0, published
    for chart in ("Memory: Used .*iB, Watermark .*iB", "Disk: Free .*iB, Low mark .*iB"):
        expect(page.get_by_role("img", name=re.compile(chart))).to_be_visible()
    press(page, "10 min")
    expect(page.get_by_role("button", name="10 min")).to_have_attribute("aria-pressed", "true")


def heights(page: Page, chart: str) -> list[float]:
    """Of the first line of a chart, from its floor on; as soon as it is not flat."""
    first = f"""() => {{
      const drawing = document.querySelector('svg.chart[aria-label^="{chart}"]');
      const path = drawing?.querySelector("path.line")?.getAttribute("d") ?? "";
      const floor = Number(drawing?.querySelector("line.grid")?.getAttribute("y1"));
      const found = [...path.matchAll(/[ML]\\S+ (\\S+?)(?=[ML]|$)/g)].map((one) => floor - Number(one[1]));
      return new Set(found).size > 1 ? found : null;
    }}"""
    found: list[float] = page.wait_for_function(first).json_value()
    return found


def test_arrow_keys_walk_along_a_chart_and_say_when_and_how_much(guest: Visit):
    page = guest.page
    guest.open("#/", "Overview")
    panel = page.locator("figure").filter(has=page.get_by_role("heading", name="Memory"))
    drawing = panel.get_by_role("img", name=re.compile(r"^Memory: Used .*iB, Watermark"))
    drawing.focus()
    expect(panel.locator(".cursor")).to_have_count(0)
    page.keyboard.press("ArrowLeft")
    expect(panel.locator(".cursor")).to_have_count(1)
    expect(panel.locator(".when")).to_have_text(re.compile(r"\d\d:\d\d:\d\d$"))
    for _ in range(70):  # further than it goes: there is a sample for every second
        page.keyboard.press("ArrowLeft")
    far = float(panel.locator(".cursor").get_attribute("x1") or 0)
    page.keyboard.press("ArrowRight")
    assert far < float(panel.locator(".cursor").get_attribute("x1") or 0)
    page.keyboard.press("Tab")  # who goes on sees the present again
    expect(panel.locator(".cursor")).to_have_count(0)
    expect(panel.locator(".when")).to_have_text("")


def test_definitions_are_exported_and_imported_by_clicking(guest: Visit, site: Site, tmp_path: Path):
    page = guest.page
    guest.open("#/settings", "Settings")
    with page.expect_download() as exported:
        page.get_by_role("link", name="Export definitions").click()
    found = json.loads(exported.value.path().read_text("utf-8"))
    assert "guest" in [one["name"] for one in found["users"]]
    file = tmp_path / "definitions.json"
    file.write_text(json.dumps({"queues": [{"name": "brought", "vhost": "/", "durable": True, "arguments": {}}]}))
    press(page, "Import definitions")
    field(page, "Definitions").set_input_files(file)
    confirm(page, "Import")
    assert site.api("GET", "queues/%2F/brought")["durable"] is True
