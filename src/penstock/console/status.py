"""`penstock status`: a running broker at a glance.

Exit code: 0 it takes messages, 1 an alarm blocks publishers or there is no answer.
"""

from __future__ import annotations

import json

import typer

from penstock.console.picture import value_of
from penstock.console.site import DEFAULT_URL, Json, JsonOption, Row, Saying, Site, UrlOption, row, rows


def status(url: UrlOption = DEFAULT_URL, as_json: JsonOption = False) -> None:
    """Version, memory and disk against their limits, what is connected and waiting, alarms."""
    with Saying("status"):
        site = Site(url)
        overview = row(site.get("overview"))
        node = rows(site.get("nodes"))[0]
        alarms = rows(site.get("alarms"))
    if as_json:
        print(json.dumps({"overview": overview, "node": node, "alarms": alarms}, indent=2, ensure_ascii=False))
    else:
        print(told(site.shown, overview, node, alarms))
    if alarms:
        raise typer.Exit(1)


def told(shown: str, overview: Row, node: Row, alarms: list[Row]) -> str:
    def count(name: str) -> str:
        found = _number(value_of(overview, f"object_totals.{name}"))
        return f"{found:,.0f} {name[:-1] if found == 1 else name}"

    ready = _number(value_of(overview, "queue_totals.messages_ready"))
    unacked = _number(value_of(overview, "queue_totals.messages_unacknowledged"))
    rates = [
        f"{_number(value_of(overview, f'message_stats.{name}_details.rate')):,.0f}/s {shown_as}"
        for name, shown_as in (("publish", "in"), ("deliver_get", "out"), ("ack", "acked"))
    ]
    lines = [
        f"{node.get('name')} at {shown}, up {_number(node.get('uptime')) / 3_600_000:.1f} h",
        ", ".join(count(name) for name in ("connections", "channels", "exchanges", "queues", "consumers")),
        f"messages: {ready:,.0f} ready, {unacked:,.0f} unacked; {', '.join(rates)}",
        f"memory: {_size(node.get('mem_used'))} of {_size(node.get('mem_limit'))}",
    ]
    if node.get("disk_free") is not None:
        lines.append(f"disk: {_size(node.get('disk_free'))} free, at least {_size(node.get('disk_free_limit'))}")
    lines += [f"alarm: {one.get('source')}: {one.get('reason')}" for one in alarms] or ["no alarms"]
    return "\n".join(lines)


def _number(value: Json) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _size(value: Json) -> str:
    size = _number(value)
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"
