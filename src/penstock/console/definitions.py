"""Definitions of a running broker, over its HTTP API: for `penstock definitions` with --url.

Not here: the same for a data directory, and the files (cli.py).
"""

from __future__ import annotations

from penstock.console.site import Json, Site, row


def fetch_definitions(url: str) -> dict[str, Json]:
    return row(Site(url).get("definitions"))


def send_definitions(url: str, document: Json, vhost: str | None) -> tuple[str, list[str]]:
    """What was imported, in one line, and warnings."""
    answer = row(Site(url).post("definitions", *([vhost] if vhost is not None else []), body=document))
    warnings = answer.get("warnings")
    return str(answer.get("summary", "done")), [str(one) for one in warnings] if isinstance(warnings, list) else []
