"""Events as a broker under load would write them, made up fast: for bench/pipeline.py and tests of the flow job.

A made-up broker has publishers, each with a connection, a channel and a queue behind it, and one store. Every second
each stage has a sample; channels wait for queues and queues for the store by turns, as real ones do: a few
blocks of their own, and one event that sums the others up. Counters only rise. The same seed makes the same events.
"""

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

US = 1_000_000
BEGIN_US = 1_794_835_200 * US  # 2026-11-16 12:00 UTC
OWN = 5  # blocks of a link in a second that are events of their own
COMPACT = json.JSONEncoder(separators=(",", ":")).encode


class MadeBroker:
    """Seconds of events, one after the other."""

    def __init__(self, publishers: int = 5, seed: int = 1, begin_us: int = BEGIN_US) -> None:
        self._dice = random.Random(seed)
        self._now_us = begin_us
        self._sums: dict[str, list[int]] = {}  # by stage: received, blocks, blocked_us, turns, busy_us
        self._rows = []
        for number in range(publishers):
            peer = f"127.0.0.1:{40000 + number} -> 127.0.0.1:5672"
            self._rows.append((f"connection {peer}", f"channel {peer} (1)", f"queue orders-{number}"))
        self._depth = [0] * publishers

    def second(self) -> list[tuple[int, str]]:
        """(at_us, JSON), in the order of the stream."""
        dice, end_us = self._dice, self._now_us + US
        events: list[tuple[int, str]] = []
        blocked_us = dict.fromkeys((one for row in self._rows for one in row), 0)
        blocks = dict.fromkeys(blocked_us, 0)
        for connection, channel, queue in self._rows:
            for upstream, kind, downstream in (
                (connection, "connection", channel),
                (channel, "channel", queue),
                (queue, "queue", "store"),
            ):
                at_us = self._now_us + dice.randrange(50_000)
                tail = [connection, channel, queue, "store"]
                chain = COMPACT(tail[tail.index(upstream) :])
                for _ in range(OWN):
                    lasts_us = dice.randrange(200, 60_000)
                    events.append((at_us, _blocked(at_us, upstream, kind, downstream, chain, 1)))
                    events.append(
                        (at_us + lasts_us, _unblocked(at_us + lasts_us, upstream, kind, downstream, 1, lasts_us))
                    )
                    blocked_us[upstream] += lasts_us
                    at_us += lasts_us + dice.randrange(1000, 30_000)
                more = dice.randrange(50, 300)
                lasts_us = min(more * dice.randrange(200, 1200), end_us - at_us) if at_us < end_us else 0
                events.append((end_us, _blocked(end_us, upstream, kind, downstream, chain, more)))
                events.append((end_us, _unblocked(end_us, upstream, kind, downstream, more, lasts_us)))
                blocked_us[upstream] += lasts_us
                blocks[upstream] += OWN + more
        for number, row in enumerate(self._rows):
            moved = dice.randrange(15_000, 25_000)
            self._depth[number] = max(0, self._depth[number] + dice.randrange(-2000, 2500))
            for stage, kind in zip(row, ("connection", "channel", "queue"), strict=True):
                sums = self._add(stage, moved, blocks[stage], blocked_us[stage], moved // 100, moved * 3)
                more_fields = f',"messages":{self._depth[number]},"consumers":1,"vhost":"/"' if kind == "queue" else ""
                events.append((end_us, _sample(end_us, stage, kind, sums, more_fields)))
        moved = dice.randrange(60_000, 90_000)
        events.append((end_us, _sample(end_us, "store", "store", self._add("store", moved, 0, 0, 500, moved), "")))
        count = dice.randrange(200, 600)
        took_us = count * dice.randrange(300, 900)
        events.append(
            (
                end_us,
                f'{{"v":1,"type":"sync","at_us":{end_us},"count":{count},"duration_us":{took_us},'
                f'"longest_us":{took_us // 20},'
                f'"pending_messages":{dice.randrange(4000)},"pending_bytes":{dice.randrange(400000)},'
                f'"histogram":{{"500":{count // 2},"1000":{count - count // 2}}}}}',
            )
        )
        events.append(
            (
                end_us,
                f'{{"v":1,"type":"resources","at_us":{end_us},'
                f'"memory_used_bytes":{80_000_000 + dice.randrange(4_000_000)},'
                f'"memory_limit_bytes":2000000000,"disk_free_bytes":{90_000_000_000 - dice.randrange(10**9)},'
                f'"disk_limit_bytes":1000000000,"connections":{len(self._rows)},"channels":{len(self._rows)},'
                f'"queues":{len(self._rows)},"events_dropped":0}}',
            )
        )
        self._now_us = end_us
        events.sort(key=_at)
        return events

    def _add(self, stage: str, *more: int) -> list[int]:
        sums = self._sums.setdefault(stage, [0] * len(more))
        for place, value in enumerate(more):
            sums[place] += value
        return sums


def _at(event: tuple[int, str]) -> int:
    return event[0]


def _blocked(at_us: int, stage: str, kind: str, cause: str, chain: str, count: int) -> str:
    return (
        f'{{"v":1,"type":"blocked","at_us":{at_us},"stage":"{stage}","kind":"{kind}","cause":"{cause}",'
        f'"chain":{chain},"messages":400,"bytes":52400,"count":{count}}}'
    )


def _unblocked(at_us: int, stage: str, kind: str, cause: str, count: int, lasted_us: int) -> str:
    return (
        f'{{"v":1,"type":"unblocked","at_us":{at_us},"stage":"{stage}","kind":"{kind}","cause":"{cause}",'
        f'"messages":400,"bytes":52400,"count":{count},"duration_us":{lasted_us},"longest_us":{lasted_us // count}}}'
    )


def _sample(at_us: int, stage: str, kind: str, sums: list[int], more: str) -> str:
    received, blocks, blocked_us, turns, busy_us = sums
    return (
        f'{{"v":1,"type":"sample","at_us":{at_us},"stage":"{stage}","kind":"{kind}","mailbox":12,"blocked":false,'
        f'"blocks":{blocks},"blocked_us":{blocked_us},"received":{received},"sent":{received - 5},'
        f'"turns":{turns},"busy_us":{busy_us}{more}}}'
    )


def made(count: int, publishers: int = 5, seed: int = 1, begin_us: int = BEGIN_US) -> Iterator[tuple[int, str]]:
    """So many events."""
    broker = MadeBroker(publishers, seed, begin_us)
    while count > 0:
        second = broker.second()[:count]
        count -= len(second)
        yield from second


def write_archive(directory: Path, count: int, publishers: int = 5, block: int = 100_000) -> None:
    """The same as Parquet: `offset` and `body`, as an archive of the stream has them.

    Only the first `block` of them are made; the others are the same again, later: ten million take some seconds. To the
    pipeline the counters of the stages go back there, as they do when a broker is started again.
    """
    directory.mkdir(parents=True, exist_ok=True)
    events = list(made(min(count, block), publishers))
    heads, tails = [], []
    for at_us, body in events:
        head, tail = body.split(str(at_us), 1)
        heads.append(head)
        tails.append(tail)
    at = pa.array([at_us for at_us, _ in events], pa.int64())
    head, tail = pa.array(heads), pa.array(tails)
    long_us = (events[-1][0] - events[0][0]) // US * US + US
    for number, offset in enumerate(range(0, count, block)):
        rows = min(block, count - offset)
        moved = pc.cast(pc.add(at, number * long_us), pa.string())
        bodies = pc.binary_join_element_wise(head, moved, tail, "").slice(0, rows)
        table = pa.table({"offset": pa.array(range(offset, offset + rows), pa.int64()), "body": bodies})
        pq.write_table(table, directory / f"part-{offset:012d}.parquet", compression="zstd")
