"""Markup: elements from values. Text is always escaped; only what an element made is markup.

Place: svg.py and html.py build everything of this, so that a queue named <script> is a name and nothing else.
"""

from __future__ import annotations

from html import escape
from typing import Final

VOID: Final = frozenset({"meta", "br"})


class Safe(str):
    """Text that is markup already."""

    __slots__ = ()


Child = str | None  # None: nothing
Value = str | int | float | bool | None


def el(tag: str, attributes: dict[str, Value] | None = None, *children: Child) -> Safe:
    """el("a", {"href": "#x"}, "Text"). An attribute of None or False is left out, one of True has no value."""
    given = "".join(_attribute(name, value) for name, value in (attributes or {}).items())
    if tag in VOID:
        return Safe(f"<{tag}{given}>")
    return Safe(f"<{tag}{given}>{together(*children)}</{tag}>")


def together(*children: Child) -> Safe:
    return Safe("".join(_safe(child) for child in children if child is not None))


def said(text: str) -> Safe:
    """A sentence with names between backquotes."""
    return together(*(el("code", {}, part) if i % 2 else part for i, part in enumerate(text.split("`"))))


def _safe(child: str) -> str:
    return child if isinstance(child, Safe) else escape(child, quote=False)


def _attribute(name: str, value: Value) -> str:
    if value is None or value is False:
        return ""
    if value is True:
        return f" {name}"
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return f' {name}="{escape(text, quote=True)}"'
