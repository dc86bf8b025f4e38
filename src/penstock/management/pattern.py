"""Pattern: regular expressions from those who do not own the broker, and a bound on what each may cost.

Python's matcher may take ages over a harmless looking expression, nothing can interrupt it, and the broker stands still
meanwhile. So it is said beforehand how many steps an expression may take in the longest name there is, and too many
are refused. Administrators are trusted: theirs, of permissions and policies, are not looked at.
Place: filters of lists (listing.py), policies of policymakers (routes/policies.py).
"""

from __future__ import annotations

import re
from typing import Final

from penstock.management.route import BadRequest

LENGTH_MAX: Final = 100  # of an expression
NAME_LENGTH: Final = 255  # the longest it looks through
# A group that is repeated, a reference back, and magic, but for looking around and groups without a number.
DANGER: Final = re.compile(r"\)[*+{]|\\[1-9]|\(\?(?![:=!]|<[=!])")
AROUND: Final = re.compile(r"^(?:\.\*)+(?![*+?{])|(?<!\\)(?:\.\*)+$")


def within(text: str, steps_max: int) -> str:
    """The expression without what need not be tried out; BadRequest if it may take more steps than that in a name."""
    if len(text) > LENGTH_MAX:
        raise BadRequest(f"the pattern is longer than {LENGTH_MAX} characters")
    text = AROUND.sub("", text)  # it is looked for anywhere
    plain = re.sub(r"\\[^0-9]", "", text)  # what is escaped means itself
    if DANGER.search(plain) or _steps(plain) > steps_max:
        raise BadRequest(
            "the pattern may hold up the broker: no repeated groups, one repetition, or two if it begins with ^, and "
            "few choices"
        )
    return text


def _steps(plain: str) -> int:
    """How many there may be in a name: every start with every length of every repetition and every choice."""
    starts = 1 if plain.startswith("^") and "|" not in plain else NAME_LENGTH
    repeats = len(re.findall(r"[*+{]", plain))
    choices = len(re.findall(r"(?<![*+(])[?]|[|]", plain))  # `*?` is no choice, and `(?` no repetition
    return int(starts * NAME_LENGTH**repeats * 2**choices)
