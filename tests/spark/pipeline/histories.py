"""Histories: what a broker might tell of itself, made up by a seed: blocks of all lengths, sums, losses, restarts.

Events are as docs/events.md has them, in the order of the stream. A history is not one that a broker could have had in
every detail: it is to be read the same way in one go and in slices.
"""

from __future__ import annotations

import json
from random import Random
from typing import Any

EPOCH_US = 1_794_835_360_000_000
SECOND = 1_000_000

Event = dict[str, Any]


def connection(number: int) -> str:
    return f"connection 10.0.0.{number}:50112 -> 10.0.0.1:5672"


def channel(number: int) -> str:
    return f"channel 10.0.0.{number}:50112 -> 10.0.0.1:5672 (1)"


LINKS = (
    *[(connection(number), channel(number)) for number in (1, 2, 3)],
    *[(connection(number), "memory alarm") for number in (1, 2, 3)],
    (channel(1), "queue orders"),
    (channel(2), "queue mail"),
    (channel(3), "queue mail"),
    ("queue orders", "store"),
    ("queue mail", "store"),
    ("queue mail", "maximum"),
)
STAGES = sorted({stage for stage, _ in LINKS} | {"store"})


def kind(stage: str) -> str:
    return stage.partition(" ")[0]


class History:
    """`seconds` of a broker's life. Blocks flap, last long, or lose their end; now and then the broker is killed."""

    def __init__(self, seed: int, seconds: int, begin_us: int = EPOCH_US) -> None:
        self.random = Random(seed)
        self.begin_us = begin_us
        self.events: list[Event] = []
        self.since: dict[tuple[str, str], int] = {}  # what is blocked, and from when
        self.saturated: int | None = None
        self.counts = {stage: {"received": 0, "sent": 0, "blocked_us": 0, "turns": 0, "busy_us": 0} for stage in STAGES}
        self.silent: set[str] = set()  # gone without a word
        second = 0
        while second < seconds:
            if self.random.random() < 0.01:
                second += self.restart(begin_us + second * SECOND)
            self.second(begin_us + second * SECOND)
            second += 1

    def put(self, type_: str, at_us: int, **fields: Any) -> None:
        if type_ in ("blocked", "unblocked", "sample", "released") and self.random.random() < 0.03:
            return
        self.events.append({"v": 1, "type": type_, "at_us": at_us, **fields})

    def second(self, begin_us: int) -> None:
        end_us = begin_us + SECOND + self.random.randrange(2000)
        for link in LINKS:
            if link[0] not in self.silent:
                self.flap(link, begin_us, end_us)
        self.judge(begin_us + self.random.randrange(SECOND))
        for stage in STAGES:
            if stage not in self.silent:
                self.sample(stage, end_us)
        if self.random.random() < 0.02:
            self.silent.add(self.random.choice(STAGES))
        elif self.silent and self.random.random() < 0.1:
            self.silent.discard(sorted(self.silent)[0])
        if self.random.random() < 0.7:
            self.sync(end_us)
        free = 10**9 - (end_us - self.begin_us) // 100
        self.put(
            "resources", end_us, memory_used_bytes=10**6 + (end_us - self.begin_us) // 1000, memory_limit_bytes=10**8,
            disk_free_bytes=free, disk_limit_bytes=10**6, connections=3, channels=3, queues=2,
            cpu_us=end_us - self.begin_us,
        )  # fmt: skip

    def flap(self, link: tuple[str, str], begin_us: int, end_us: int) -> None:
        """A link in one second: nothing, one change, or so many that they are summed up."""
        stage, cause = link
        chance = self.random.random()
        about = {"stage": stage, "kind": kind(stage), "cause": cause}
        if chance < 0.15:
            at_us = begin_us + self.random.randrange(SECOND)
            if link in self.since:
                took = at_us - self.since.pop(link)
                self.put("unblocked", at_us, **about, messages=4, bytes=40, count=1, duration_us=took, longest_us=took)
            else:
                self.since[link] = at_us
                self.put("blocked", at_us, **about, chain=[stage, cause], messages=4, bytes=40, count=1)
        elif chance < 0.25:
            more, ends = self.random.randrange(1, 40), 0
            was = link in self.since
            ends = more + (1 if was else 0) - (1 if self.random.random() < 0.5 else 0)
            self.put("blocked", end_us, **about, chain=[stage, cause, "store"], messages=4, bytes=40, count=more)
            if ends:
                took = self.random.randrange(10_000, 900_000)
                self.put(
                    "unblocked", end_us, **about, messages=4, bytes=40, count=ends, duration_us=took, longest_us=took
                )
            if was + more > ends:
                self.since[link] = end_us
            else:
                self.since.pop(link, None)

    def judge(self, at_us: int) -> None:
        if self.random.random() < 0.1:
            if self.saturated is None:
                self.saturated = at_us
                self.put("saturated", at_us, stage="queue orders", messages=900, bytes=0)
            else:
                self.put(
                    "released",
                    at_us,
                    stage="queue orders",
                    messages=90,
                    bytes=0,
                    held=5,
                    duration_us=at_us - self.saturated,
                )
                self.saturated = None

    def sample(self, stage: str, at_us: int) -> None:
        count = self.counts[stage]
        blocked = any(link[0] == stage for link in self.since)
        if not blocked and self.random.random() < 0.3:
            return
        done = self.random.randrange(500)
        count["received"] += done
        count["sent"] += done
        count["turns"] += done // 50 + 1
        count["busy_us"] += done * 7
        count["blocked_us"] += self.random.randrange(SECOND) if blocked else 0
        fields: Event = {"stage": stage, "kind": kind(stage), "mailbox": 3, "blocked": blocked, "blocks": 2, **count}
        if kind(stage) == "connection":
            fields |= {"client": f"client {stage[-1]}", "user": "guest", "vhost": "/"}
        if kind(stage) == "queue":
            fields |= {
                "vhost": "/",
                "messages": done,
                "consumers": 1,
                "saturated": False,
                "ready": done,
                "limit": 10_000,
            }
        if stage == "queue orders" and self.saturated is not None:
            fields |= {"saturated": True, "held": 7, "held_from": [channel(1), channel(3)]}
        self.put("sample", at_us, **fields)

    def sync(self, at_us: int) -> None:
        fields: Event = {
            "count": 5,
            "duration_us": 30_000,
            "longest_us": 9_000,
            "pending_messages": 1,
            "pending_bytes": 9,
        }
        if self.random.random() < 0.8:
            fields["histogram"] = {"5000": 2, "10000": 3}
        self.put("sync", at_us, **fields)

    def restart(self, at_us: int) -> int:
        """Killed; it is back after so many seconds."""
        away = self.random.choice((2, 20, 150))
        self.since, self.saturated, self.silent = {}, None, set()
        for count in self.counts.values():
            count.update(dict.fromkeys(count, 0))
        self.put(
            "recovery",
            at_us + away * SECOND,
            clean=False,
            queues=2,
            messages=0,
            scanned_bytes=1,
            damages=0,
            cut=False,
            duration_us=5,
        )
        return away

    def rows(self) -> list[tuple[int, bytearray]]:
        """As the source gives them: offset, body."""
        return [(offset, encode(event)) for offset, event in enumerate(self.events)]

    def muddled(self) -> list[tuple[int, bytearray]]:
        """The same, with some that come late and some that come twice."""
        rows = self.rows()
        for _ in range(len(rows) // 30):
            rows.insert(self.random.randrange(len(rows)), rows.pop(self.random.randrange(len(rows))))
            rows.insert(self.random.randrange(len(rows)), rows[self.random.randrange(len(rows))])
        return rows


def encode(event: Event) -> bytearray:
    return bytearray(json.dumps(event, separators=(",", ":")).encode())
