"""Snapshots made by hand, in the JSON of GET /api/flow: stages by name, and who is blocked by whom for how long."""

from __future__ import annotations

from typing import Any, Final

from penstock.flow.history import History
from penstock.flow.state import State, read_state
from penstock.flow.verdict import Verdict, verdicts

API: Final = "connection 10.0.0.1:5001"
ONE: Final = "channel 10.0.0.1:5001 (1)"
TWO: Final = "channel 10.0.0.1:5001 (2)"
ORDERS: Final = "queue orders"
DEAD: Final = "queue dead"
STORE: Final = "store"

SETTINGS: Final = {
    "credit.reader_channel": "400,200",
    "credit.channel_queue": "400,200",
    "credit.queue_store": "2000,500",
    "credit.queue_store_bytes": "16777216,8388608",
    "alarms.memory_bytes_high": "0",
    "alarms.memory_relative_high": "0.6",
    "alarms.disk_free_bytes_low": "50000000",
    "faults.channel_delay_us": "0",
    "faults.queue_delay_us": "0",
    "faults.store_sync_delay_ms": "0",
}
CHAIN: Final = [(API, ONE), (ONE, ORDERS), (ORDERS, STORE)]


class Picture:
    """A broker that a test draws. Blocks are given as (upstream, downstream): seconds so far."""

    def __init__(self, links: list[tuple[str, str]] | None = None, at_s: float = 1000.0) -> None:
        self.at_s = at_s
        self.links = dict.fromkeys(CHAIN if links is None else links, 0.0)  # blocked seconds of all time
        self.blocks: dict[tuple[str, str], float] = {}  # that last now, for how long
        self.stages: dict[str, dict[str, Any]] = {}
        for pair in self.links:
            for id_ in pair:
                self.stage(id_)
        self.alarms: dict[str, str] = {}
        self.settings = dict(SETTINGS)
        self.store = {"syncs": 10, "sync_seconds": 0.4, "last_sync_ms": 41.2}

    def stage(self, id_: str, **more: Any) -> Picture:
        kind, _, name = id_.partition(" ")
        if id_ not in self.stages:
            self.stages[id_] = {"id": id_, "kind": kind, "name": name or kind, "vhost": "/", "user": "guest"}
            self.stages[id_]["blocked_s"] = 0.0
            if kind == "connection":
                self.stages[id_]["client_name"] = "orders-api"
            if kind == "channel":
                self.stages[id_]["connection"] = "connection " + name.partition(" ")[0]
                self.stages[id_]["number"] = int(name.partition("(")[2].rstrip(")") or 1)
        self.stages[id_].update(more)
        return self

    def block(self, *pairs: tuple[str, str], for_s: float = 5.0) -> Picture:
        for pair in pairs:
            self.blocks[pair] = for_s
        return self

    def free(self, *pairs: tuple[str, str]) -> Picture:
        for pair in pairs:
            del self.blocks[pair]
        return self

    def alarm(self, source: str, reason: str, *connections: str, for_s: float = 5.0) -> Picture:
        self.alarms[source] = reason
        return self.block(*((one, f"alarm {source}") for one in connections), for_s=for_s)

    def saturate(self, queue: str, held_from: dict[str, int], for_s: float = 5.0, **more: Any) -> Picture:
        held = sum(held_from.values())
        return self.stage(
            queue, saturated=True, saturated_for_s=for_s, held=held, held_from=held_from, **{"messages": 60, **more}
        )

    def passes(self, seconds: float, **shares: float) -> Picture:
        """So much later: pairs that block do so all the time."""
        self.at_s += seconds
        for pair in self.blocks:
            self.blocks[pair] += seconds
            if pair in self.links:
                self.links[pair] += seconds
        for id_ in {upstream for upstream, _ in self.blocks}:
            self.stages[id_]["blocked_s"] += seconds
        for stage in self.stages.values():
            if stage.get("saturated"):
                stage["saturated_for_s"] += seconds
        return self

    def flickers(self, seconds: float, *pairs: tuple[str, str]) -> Picture:
        """These blocked for so many of the seconds that have just passed, and are free again."""
        for pair in pairs:
            self.links[pair] += seconds
        for id_ in {upstream for upstream, _ in pairs}:
            self.stages[id_]["blocked_s"] += seconds
        return self

    def json(self) -> dict[str, Any]:
        return {
            "version": 1,
            "at_ms": int(self.at_s * 1000),
            "at_ns": int(self.at_s * 1e9),
            "stages": [self._stage(id_, stage) for id_, stage in self.stages.items()],
            "links": [
                {"upstream": up, "downstream": down, "blocking": (up, down) in self.blocks, "blocked_s": seconds}
                for (up, down), seconds in self.links.items()
            ],
            "alarms": [{"source": source, "reason": reason, "for_s": 5.0} for source, reason in self.alarms.items()],
            "store": self.store,
            "settings": self.settings,
        }

    def _stage(self, id_: str, stage: dict[str, Any]) -> dict[str, Any]:
        reasons = []
        for (upstream, by), for_s in self.blocks.items():
            if upstream == id_:
                is_stage = not by.startswith(("alarm ", "maximum"))
                alarm = by.removeprefix("alarm ") if by.startswith("alarm ") else None
                reasons.append({"stage": by if is_stage else None, "alarm": alarm, "for_s": for_s})
        lasts = max((for_s for (upstream, _), for_s in self.blocks.items() if upstream == id_), default=None)
        return {**stage, "blocked": bool(reasons), "blocked_for_s": lasts, "blocked_by": reasons}

    def state(self) -> State:
        return read_state(self.json())

    def verdicts(self, history: History | None = None) -> list[Verdict]:
        state = self.state()
        return verdicts(state, history.shares(state) if history is not None else None)

    def verdict(self, history: History | None = None) -> Verdict:
        (one,) = self.verdicts(history)
        return one
