"""Attempts: how many logins there were and how many failed, by protocol. For operators; RabbitMQ counts them too."""

from __future__ import annotations

HTTP_PEER = "http "  # what the peer of a login over HTTP begins with


class Attempts:
    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: dict[str, tuple[int, int]] = {}  # protocol to succeeded and failed

    def note(self, peer: str, succeeded: bool) -> None:
        protocol = "http" if peer.startswith(HTTP_PEER) else "amqp091"
        good, bad = self._counts.get(protocol, (0, 0))
        self._counts[protocol] = (good + 1, bad) if succeeded else (good, bad + 1)

    def counts(self) -> dict[str, tuple[int, int]]:
        return dict(self._counts)

    def reset(self) -> None:
        self._counts.clear()

    def __repr__(self) -> str:
        return f"<Attempts {self._counts}>"
