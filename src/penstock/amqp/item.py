"""Item: what the decoder makes of all that is no publish: acks, nacks, other methods, bodies above the limit.

Imported through decoder.py, which has `Publishes` and cuts them all from the stream. Downstream: net/reader.py.
"""

from __future__ import annotations

from penstock.amqp.method import Method


class Acks:
    """Consecutive basic.acks of one channel: tag and multiple."""

    __slots__ = ("acks", "behind", "channel")

    def __init__(self, channel: int, acks: list[tuple[int, bool]]) -> None:
        self.channel = channel
        self.acks = acks
        self.behind = 0  # as in Command


class Nack:
    """A basic.nack, or a basic.reject, which is a nack of one."""

    __slots__ = ("behind", "channel", "method_id", "multiple", "requeue", "tag")

    def __init__(self, channel: int, method_id: int, tag: int, multiple: bool, requeue: bool) -> None:
        self.channel = channel
        self.method_id = method_id & 0xFFFF
        self.tag = tag
        self.multiple = multiple
        self.requeue = requeue
        self.behind = 0  # as in Command


class Command:
    """Any other method."""

    __slots__ = ("behind", "channel", "method")

    def __init__(self, channel: int, method: Method) -> None:
        self.channel = channel
        self.method = method
        self.behind = 0  # if it overtakes parked publishes: which of them came before it (net/reader.py)

    def __repr__(self) -> str:
        return f"<Command channel={self.channel} {self.method!r}>"


class Oversize:
    """A content header that announces more than the limit; its body is dropped as it comes."""

    __slots__ = ("channel", "limit", "size")

    def __init__(self, channel: int, size: int, limit: int) -> None:
        self.channel = channel
        self.size = size
        self.limit = limit
