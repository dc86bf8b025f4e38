"""Quota: how much of a queue must leave RAM, and what of it goes first. Pure functions, as seed document 001 tells it.

Place in the chain: paging.py asks and does. Not here: doing it.
"""

from __future__ import annotations

from typing import Final

MESSAGE_BYTES: Final = 150  # what a message costs in RAM beside its bytes: tuple, object heads, a place in a deque


def target_count(in_ram: int, used_bytes: int, allowed_bytes: int) -> int:
    """How many of so many messages may stay when this much memory is used and that much allowed: their share."""
    if used_bytes <= allowed_bytes:
        return in_ram
    return in_ram * allowed_bytes // used_bytes


def quota(ready: int, unacked: int, target: int) -> int:
    """How many messages must leave RAM."""
    return max(0, ready + unacked - target)


def shares(quota_: int, ready: int, unacked: int, ready_growth: int, unacked_growth: int) -> tuple[int, int]:
    """How many of ready and of unacked messages leave: whichever grows faster goes first, and may use all the quota."""
    if unacked_growth > ready_growth:
        from_unacked = min(quota_, unacked)
        return min(quota_ - from_unacked, ready), from_unacked
    from_ready = min(quota_, ready)
    return from_ready, min(quota_ - from_ready, unacked)
