"""Label: short names of stages for people. A connection is called what its client calls itself, else its address.

Place: why.py and top.py show these; the API's own ids are long, because no two stages may share one.
"""

from __future__ import annotations

from penstock.console.site import Row


def labels(stages: list[Row]) -> dict[str, str]:
    """By id."""
    callers: dict[str, str] = {}
    for stage in stages:
        if stage.get("kind") == "connection":
            address = str(stage.get("name")).partition(" -> ")[0]
            callers[str(stage.get("id"))] = str(stage.get("client_name") or address)
    found: dict[str, str] = {}
    for stage in stages:
        id_, kind = str(stage.get("id")), stage.get("kind")
        if kind == "connection":
            found[id_] = f"connection {callers[id_]}"
        elif kind == "channel" and str(stage.get("connection")) in callers:
            found[id_] = f"channel {callers[str(stage.get('connection'))]} ({stage.get('number')})"
        else:
            found[id_] = id_
    return found
