"""Hop: the credit settings that all links between two kinds of stages share, changeable while they run.

A hop is "reader to channel" or "channel to queue"; a link is one reader and one of its channels. Changing the hop
changes every link on it at once, and the law (link.py) holds for the new initial from then on.
Not here: counting (link.py), where the settings come from (config.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.credit.link import Link


class Spec:
    """How much credit a link begins with, and after how much handled work it is granted that much again."""

    __slots__ = ("initial", "more_after")

    def __init__(self, initial: int, more_after: int) -> None:
        if initial < 0 or more_after < 0:
            raise ValueError(f"credit {initial},{more_after}: numbers must not be negative")
        if more_after > initial:
            raise ValueError(f"credit {initial},{more_after}: more_after above initial would never be reached")
        if initial > 0 and more_after == 0:
            raise ValueError(f"credit {initial},0: with more_after 0 nothing is ever granted; 0,0 switches credit off")
        self.initial = initial
        self.more_after = more_after

    @classmethod
    def parse(cls, text: str) -> Spec:
        """Read `initial,more_after` as users write it: `400,200`."""
        parts = text.split(",")
        try:
            initial, more_after = (int(part) for part in parts)
        except ValueError:
            raise ValueError(f"credit {text!r}: expected two whole numbers `initial,more_after`, as 400,200") from None
        return cls(initial, more_after)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Spec) and (self.initial, self.more_after) == (other.initial, other.more_after)

    def __hash__(self) -> int:
        return hash((self.initial, self.more_after))

    def __str__(self) -> str:
        return f"{self.initial},{self.more_after}"

    def __repr__(self) -> str:
        return f"Spec({self.initial}, {self.more_after})"


class Hop:
    """Settings of one kind of link, in messages and in bytes, and the links that live by them."""

    __slots__ = ("active", "bytes", "links", "messages", "name", "round")

    def __init__(self, name: str, messages: Spec, bytes_: Spec | None = None) -> None:
        self.name = name
        self.messages = messages
        self.bytes = bytes_ if bytes_ is not None else Spec(0, 0)
        self.links: dict[Link, None] = {}
        self.active: dict[Link, None] = {}  # those on which something was spent in this round
        self.round = 1

    def next_round(self) -> list[Link]:
        """The links on which something was spent since the last time. So nobody has to look at all of them."""
        active = list(self.active)
        self.active.clear()
        self.round += 1
        return active

    def change(self, messages: Spec | None = None, bytes_: Spec | None = None) -> None:
        """Change the settings for every link of the hop, now."""
        old_messages, old_bytes = self.messages, self.bytes
        self.messages = messages if messages is not None else old_messages
        self.bytes = bytes_ if bytes_ is not None else old_bytes
        more = self.messages.initial - old_messages.initial
        more_bytes = self.bytes.initial - old_bytes.initial
        for link in list(self.links):
            link.adjust(more, more_bytes)

    def __repr__(self) -> str:
        return f"<Hop {self.name} messages={self.messages} bytes={self.bytes} links={len(self.links)}>"
