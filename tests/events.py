"""The schema of events as docs/events.md has it, and a check of events against it. For tests of all kinds."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any, Final

DOCUMENT: Final = Path(__file__).parents[1] / "docs" / "events.md"
ROW: Final = re.compile(r"^\| `(?P<name>\w+)` \| (?P<type>[^|]+?) \|[^|]*\|[^|]+\|$", re.MULTILINE)
COMMON: Final = ("v", "type", "at_us")


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _are_counts(value: object) -> bool:
    return isinstance(value, dict) and all(_is_integer(one) for one in value.values())


def _are_counts_by_bound(value: object) -> bool:
    return isinstance(value, dict) and _are_counts(value) and all(one == "inf" or one.isdigit() for one in value)


CHECKS: Final = {
    "text": lambda value: isinstance(value, str),
    "integer": _is_integer,
    "boolean": lambda value: isinstance(value, bool),
    "list of texts": lambda value: isinstance(value, list) and all(isinstance(one, str) for one in value),
    "counts by upper bound": _are_counts_by_bound,
    "counts by type": _are_counts,
}


@cache
def documented() -> dict[str, tuple[dict[str, str], dict[str, Any]]]:
    """By type: the type of every field, and the example. Fields that are not always there end with a question mark."""
    text = DOCUMENT.read_text("utf-8")
    head, *sections = re.split(r"^### `(\w+)`$", text, flags=re.MULTILINE)
    common = dict(ROW.findall(head))
    assert tuple(common) == COMMON
    found = {}
    for type_, section in zip(sections[::2], sections[1::2], strict=True):
        example = re.search(r"^```json\n(.*)\n```$", section, re.MULTILINE)
        assert example is not None, f"no example of {type_}"
        found[type_] = {**common, **dict(ROW.findall(section))}, json.loads(example[1])
    return found


def check_event(event: dict[str, Any]) -> None:
    """All documented fields are there, of the documented type, and no others."""
    fields, _ = documented()[event["type"]]
    assert event["v"] == 1
    unknown = event.keys() - fields.keys()
    assert not unknown, f"{event} has fields that are not in docs/events.md: {unknown}"
    for name, type_ in fields.items():
        if name in event or not type_.endswith("?"):
            assert name in event, f"{event} has no {name}"
            assert CHECKS[type_.rstrip("?")](event[name]), f"{name} of {event} is no {type_}"
