"""Rates: how many per second, of all that is counted: queues, exchanges, channels, connections, the whole broker.

Place: beside the API, in the same event loop. Every PERIOD_S all counters are looked at, in slices, and the loop
has its turn between two of them. A rate is the difference of the last two looks, as in RabbitMQ. What is gone is
forgotten with the next look.
Of queues the last looks are kept too, for RabbitMQ's `samples`: a minute of the first RECORDED_MAX queues, an hour of
those that somebody watches.
Not here: counting (the broker), charts of the whole broker (history.py), JSON (the routes).
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from itertools import repeat
from typing import Final, Protocol

from penstock.broker.admin import Json
from penstock.management.answer import Slices
from penstock.management.samples import LENGTHS, Ask, Look, add_samples

PERIOD_S: Final = 5.0  # RabbitMQ's interval of statistics
RECORDED_MAX: Final = 1000  # queues of which a minute is kept; more are kept only while somebody watches them
RECORDED_LOOKS: Final = 13  # a minute, with both its ends
WATCHED_MAX: Final = 32  # queues that are watched at the same time
WATCHED_LOOKS: Final = 721  # an hour
WATCHED_S: Final = 600.0  # a queue nobody asked for so long is not watched any more
QUEUES: Final = "queues"
CHANNELS: Final = "channels"
CONNECTIONS: Final = "connections"
VHOSTS: Final = "vhosts"
KINDS: Final = (QUEUES, "exchanges", CHANNELS, CONNECTIONS)
SECTIONS: Final = ("message_stats", "churn_rates", "queue_totals")  # of the overview
# What has a rate beside message_stats. Lengths may fall; what only grows and has fallen is another one of that name.
OCTETS: Final = ("recv_oct", "send_oct")
BESIDE: Final = (*LENGTHS, *OCTETS)
NONE: Final = repeat(0.0)  # endless
DECIMALS: Final = 2  # of a rate: more would look like precision

Key = tuple[str, str]  # vhost and name
View = dict[str, Json]


class Listing(Protocol):
    """What is asked of a list of the broker's."""

    @property
    def COUNTERS(self) -> tuple[str, ...]: ...

    def __len__(self) -> int: ...
    def name(self, at: int, /) -> str: ...
    def vhost(self, at: int, /) -> str: ...
    def counters(self, at: int, /) -> tuple[int, ...]: ...


class Counted(Protocol):
    """What is asked of the broker."""

    def listing(self, kind: str, /) -> Listing: ...
    def overview(self) -> View: ...


class Track:
    """One object: what was counted at the last look, and the rates since the look before."""

    __slots__ = ("at_s", "counters", "past", "rates")

    def __init__(self, at_s: float, counters: tuple[int, ...]) -> None:
        self.at_s = at_s
        self.counters = counters
        self.rates: tuple[float, ...] = ()  # empty: all are 0
        self.past: deque[Look] | None = None

    def look(self, at_s: float, counters: tuple[int, ...]) -> None:
        before = self.counters
        if counters == before:  # most of ten thousand queues are idle: they cost a comparison
            self.rates = ()
        else:
            passed_s = at_s - self.at_s
            self.rates = tuple(_rate(now - then, passed_s) for now, then in zip(counters, before))
            self.counters = counters
        self.at_s = at_s


class Rates:
    __slots__ = (
        "_admin",
        "_clock",
        "_counted",
        "_counted_s",
        "_looked_s",
        "_names",
        "_overview",
        "_sums",
        "_tracks",
        "_watched",
    )

    def __init__(self, admin: Counted, clock: Callable[[], float] = time.monotonic) -> None:
        self._admin = admin
        self._clock = clock
        self._tracks: dict[str, dict[Key, Track]] = {kind: {} for kind in KINDS}
        self._sums: dict[str, dict[str, list[float]]] = {kind: {} for kind in KINDS}  # by vhost
        self._looked_s: dict[str, float | None] = dict.fromkeys(KINDS)  # when the last look began
        self._names: dict[str, tuple[str, ...]] = dict.fromkeys(KINDS, ())
        # The whole broker, by section and counter.
        self._counted: dict[tuple[str, str], int] = {}
        self._counted_s: float | None = None
        self._overview: dict[tuple[str, str], float] = {}
        self._watched: dict[Key, float] = {}  # queue -> when somebody asked last

    async def run(self) -> None:
        """Look every PERIOD_S, until cancelled."""
        while True:
            began_s = self._clock()
            await self.tick()
            await asyncio.sleep(max(0.0, PERIOD_S - (self._clock() - began_s)))

    async def tick(self) -> None:
        """One look at everything."""
        self._look_at_all()
        for kind in KINDS:
            await self._look_at(kind)

    # What was found.

    def rate(self, kind: str, vhost: str, name: str, counter: str) -> float:
        track = self._tracks[kind].get((vhost, name)) if kind in self._tracks else None
        if track is None or not track.rates:
            return 0.0
        names = self._names[kind]
        wanted = LENGTHS if counter == "messages" else (counter,)
        return sum(track.rates[names.index(one)] for one in wanted if one in names)

    def add(self, kind: str, view: View) -> None:
        """Put `…_details: {"rate"}` beside every counter of this view."""
        rates = self._of_vhost(str(view.get("name"))) if kind == VHOSTS else self._of(kind, _key(view))
        stats = view.get("message_stats")
        if isinstance(stats, dict):
            for name in [name for name, value in stats.items() if isinstance(value, int)]:
                stats[f"{name}_details"] = {"rate": max(0.0, rates.get(name, 0.0))}
        for name in BESIDE:
            if name in view:
                view[f"{name}_details"] = {"rate": rates.get(name, 0.0)}
        if "messages" in view:
            both = sum(rates.get(name, 0.0) for name in LENGTHS)
            view["messages_details"] = {"rate": round(both, DECIMALS)}

    def _of(self, kind: str, key: Key) -> dict[str, float]:
        """All rates of one object; none of them if all are 0."""
        track = self._tracks[kind].get(key)
        return dict(zip(self._names[kind], track.rates)) if track is not None else {}

    def _of_vhost(self, vhost: str) -> dict[str, float]:
        """The sums of its channels, queues and connections."""
        rates: dict[str, float] = {}
        for kind, wanted in ((CHANNELS, None), (QUEUES, LENGTHS), (CONNECTIONS, OCTETS)):
            for name, rate in zip(self._names[kind], self._sums[kind].get(vhost, ())):
                if wanted is None or name in wanted:
                    rates[name] = round(rate, DECIMALS)
        return rates

    def add_overview(self, view: View) -> None:
        """The same for the whole broker."""
        for section in SECTIONS:
            part = view.get(section)
            if isinstance(part, dict):
                for name in [name for name, value in part.items() if isinstance(value, int)]:
                    part[f"{name}_details"] = {"rate": self._overview.get((section, name), 0.0)}

    def add_samples(self, view: View, ask: Ask) -> None:
        """RabbitMQ's samples of one queue, after `add`; from now on it is watched."""
        key = _key(view)
        if key in self._watched or len(self._watched) < WATCHED_MAX:
            self._watched[key] = self._clock()
        track = self._tracks[QUEUES].get(key)
        past = track.past if track is not None else None
        looks = past if past is not None else ()
        names = self._names[QUEUES]
        stats = view.get("message_stats")
        if isinstance(stats, dict):
            add_samples(stats, names, looks, ask.rates)
        add_samples(view, names, looks, ask.lengths)

    # Looking.

    async def _look_at(self, kind: str) -> None:
        """All objects of a kind, in slices; those that are not there any more are not taken over."""
        listing = self._admin.listing(kind)
        names = listing.COUNTERS
        known = self._tracks[kind] if names == self._names[kind] else {}
        before_s, self._looked_s[kind] = self._looked_s[kind], self._clock()
        found: dict[Key, Track] = {}
        sums: dict[str, list[float]] = {}
        slices = Slices()
        now_s = self._clock()
        for at in range(len(listing)):
            counters = listing.counters(at)
            if counters:  # else it has gone meanwhile
                key = (listing.vhost(at), listing.name(at))
                track = known.get(key)
                if track is None:
                    # It is new: at the look before, all of it was 0. At the first look of all, nobody knows.
                    track = Track(now_s, counters) if before_s is None else Track(before_s, (0,) * len(counters))
                track.look(now_s, counters)
                found[key] = track
                if track.rates:
                    sums[key[0]] = [a + b for a, b in zip(track.rates, sums.get(key[0], NONE))]
            if slices.over():
                await slices.rest()
                now_s = self._clock()
        self._tracks[kind] = found
        self._sums[kind] = sums
        self._names[kind] = names
        if kind == QUEUES:
            self._record(found)

    def _record(self, tracks: dict[Key, Track]) -> None:
        """Keep this look of the queues whose past somebody may ask for."""
        now_s, at_ms = self._clock(), int(time.time() * 1000)
        self._watched = {key: asked for key, asked in self._watched.items() if now_s - asked < WATCHED_S}
        first = (key for key, _ in zip(tracks, range(RECORDED_MAX)))
        for key in dict.fromkeys((*first, *self._watched)):
            track = tracks.get(key)
            if track is None:
                continue
            looks = WATCHED_LOOKS if key in self._watched else RECORDED_LOOKS
            if track.past is None or track.past.maxlen != looks:
                track.past = deque(track.past or (), looks)
            track.past.append((at_ms, track.counters))
        for at, (key, track) in enumerate(tracks.items()):
            if track.past is not None and at >= RECORDED_MAX and key not in self._watched:
                track.past = None

    def _look_at_all(self) -> None:
        view = self._admin.overview()
        counted: dict[tuple[str, str], int] = {}
        for section in SECTIONS:
            part = view.get(section)
            for name, value in part.items() if isinstance(part, dict) else ():
                if isinstance(value, int):
                    counted[section, name] = value
        now_s = self._clock()
        if self._counted_s is not None:  # what is not shown as long as nothing happened was 0
            passed_s, before = now_s - self._counted_s, self._counted
            self._overview = {key: _rate(value - before.get(key, 0), passed_s) for key, value in counted.items()}
        self._counted_s, self._counted = now_s, counted


def _key(view: View) -> Key:
    return (str(view.get("vhost", "")), str(view.get("name", "")))


def _rate(difference: int, passed_s: float) -> float:
    return round(difference / passed_s, DECIMALS) if passed_s > 0 else 0.0
