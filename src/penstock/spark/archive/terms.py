"""Archive terms: what all runs on one directory must agree on, and where two of them differ, in words.

Used by files.py for archives and by replay/state.py for the checkpoints of replays.
"""

from __future__ import annotations

from collections.abc import Mapping


def difference(mine: object, theirs: object, words: Mapping[str, str], special: Mapping[object, str]) -> str | None:
    """The first of these attributes in which they differ, as a clause; None: in none.

    `words`: the attributes, and what they are called. `special`: values that have a word of their own."""
    for name, word in words.items():
        one, other = getattr(mine, name), getattr(theirs, name)
        if one != other:
            return f"{word} {special.get(one, _shown(one))}, not {special.get(other, _shown(other))}"
    return None


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value)) or "none"
    return "none" if value is None else str(value)
