"""Notices: what a channel is told by its queues and its connection. Plain values; channel.py says what each does."""

from __future__ import annotations


class Confirmed:
    """From a queue: it has taken these numbers, runs of first and last, or refused them."""

    __slots__ = ("numbers", "refused")

    def __init__(self, numbers: list[tuple[int, int]], refused: bool = False) -> None:
        self.numbers = numbers
        self.refused = refused


class Shutdown:
    """From the connection: it ends; finish what was sent before and go."""

    __slots__ = ()
