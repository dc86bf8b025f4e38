"""Picture: rows as a table for people, or as JSON for programs.

Place: the last thing most commands do. Columns are as wide as what is in them; nothing is cut, so that a pipe into grep
or awk sees whole names.
"""

from __future__ import annotations

import json

from penstock.console.site import Json, Row

NOTHING = "-"


def show(found: list[Row], columns: tuple[str, ...], as_json: bool = False, empty: str = "nothing") -> None:
    """`columns` are keys of the rows; `a.b` is b in a."""
    if as_json:
        print(json.dumps(found, indent=2, ensure_ascii=False))
        return
    if not found:
        print(empty)
        return
    print(
        laid_out([column.rpartition(".")[2] for column in columns], [[_cell(one, c) for c in columns] for one in found])
    )


def laid_out(head: list[str], lines: list[list[str]]) -> str:
    """A head in capitals, two spaces between columns."""
    table = [[name.upper().replace("_", " ") for name in head], *([printable(cell) for cell in line] for line in lines)]
    widths = [max(len(line[at]) for line in table) for at in range(len(head))]
    shown = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in table]
    return "\n".join(shown)


def printable(text: str) -> str:
    """Clients call themselves and their queues what they like; a terminal would do what control characters say."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in text)


def value_of(one: Row, column: str) -> Json:
    value: Json = one
    for part in column.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _cell(one: Row, column: str) -> str:
    value = value_of(one, column)
    if value is None or value == "":
        return '""' if value == "" else NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.1f}"
    if isinstance(value, list):
        return ",".join(map(str, value)) or NOTHING
    if isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False) if value else NOTHING
    return str(value)
