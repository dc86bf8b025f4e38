"""Sift: of what a queue delivered, which messages are new, and which the spool has already.

Upstream: intake.py.  Downstream: the spool gets the new ones, intake.py hears for each delivery when it may be acked.
A message is known again by Penstock's sequence, which no other message ever has. By message_id only if the broker says
that it delivers it again: ids are the publishers', and two different messages with one id must both arrive. A message
with neither is always new: at least once.
Pure: nothing is read or written here.
"""

from __future__ import annotations

from itertools import compress
from typing import Final

from penstock.client.consumer import Deliveries
from penstock.spark.identity import Identities, StampCutter, message_id_of
from penstock.spark.spool import Spool

# In place of the row that must be committed before the ack: the end of the file that is yet to be written.
FRESH: Final = -1


class Sifted:
    """What is new, and for every delivery what its ack waits for."""

    __slots__ = ("duplicates", "fresh", "identities", "nameless", "needs", "tags")

    def __init__(self) -> None:
        self.fresh = Deliveries()  # without the broker's stamp in their properties
        self.identities = Identities()  # of the new ones
        self.tags: list[int] = []  # of all deliveries, as they came
        self.needs: list[int] = []  # up to which row must be committed; FRESH for those that are new
        self.duplicates = 0
        self.nameless = 0  # new ones that could not be known again

    def __repr__(self) -> str:
        return f"<Sifted fresh={len(self.fresh)} duplicates={self.duplicates} nameless={self.nameless}>"


def sift(deliveries: Deliveries, spool: Spool, stamped: bool) -> Sifted:
    """Compare with what the spool has. `deliveries` is used up.

    `stamped`: the broker stamps a sequence. Else a header of that name is a publisher's, and means nothing."""
    if stamped and (usual := _one_run(deliveries, spool)) is not None:
        return usual
    found = Sifted()
    identities, needs, ids = found.identities, found.needs, found.identities.ids
    headers: list[bytes] = []
    kept: list[bool] = []
    cut = StampCutter().cut
    # Positions mostly follow each other: from `first` to `stop` they are new, and so are all up to `free`.
    run_life, first, stop, free = "", 0, 0, 0
    for raw, again in zip(deliveries.headers, deliveries.redelivered):
        rest, life, position = cut(raw) if stamped else (raw, "", 0)
        message_id = b""
        if life:
            if position == stop and stop < free and life == run_life:
                stop += 1
                need, known = None, False
            else:
                if run_life:
                    identities.add(run_life, first, stop)
                    run_life = ""
                need = spool.need_of_sequence(life, position)
                known = need is not None or identities.has(life, position)
                if not known:
                    run_life, first, stop = life, position, position + 1
                    free = min(spool.free_until(life, stop), identities.next_from(life, stop))
        else:
            message_id = message_id_of(rest)
            need = spool.need_of_id(message_id) if again and message_id else None
            known = need is not None
            if not message_id:
                found.nameless += 1
        needs.append(FRESH if need is None else need)
        kept.append(not known)
        if not known:
            headers.append(rest)
            ids.append(message_id)
    if run_life:
        identities.add(run_life, first, stop)
    found.tags = deliveries.tags
    found.duplicates = len(needs) - len(headers)
    found.fresh = deliveries if not found.duplicates else _only(deliveries, kept)
    found.fresh.headers = headers
    return found


def _one_run(deliveries: Deliveries, spool: Spool) -> Sifted | None:
    """The usual case in a quarter of the time: all are new, follow each other, and are alike but for their position."""
    count = len(deliveries)
    cutter = StampCutter()
    rest, life, first = cutter.cut(deliveries.headers[0])
    if not life or not cutter.are_following(deliveries.headers, first):
        return None
    if spool.need_of_sequence(life, first) is not None or spool.free_until(life, first) < first + count:
        return None
    found = Sifted()
    found.identities.add(life, first, first + count)
    found.identities.ids = [b""] * count
    found.tags = deliveries.tags
    found.needs = [FRESH] * count
    found.fresh = deliveries
    found.fresh.headers = [rest] * count
    return found


def _only(deliveries: Deliveries, kept: list[bool]) -> Deliveries:
    fresh = Deliveries()
    fresh.tags = list(compress(deliveries.tags, kept))
    fresh.redelivered = list(compress(deliveries.redelivered, kept))
    fresh.exchanges = list(compress(deliveries.exchanges, kept))
    fresh.routing_keys = list(compress(deliveries.routing_keys, kept))
    fresh.bodies = list(compress(deliveries.bodies, kept))
    fresh.bytes = sum(map(len, fresh.bodies))
    return fresh
