"""Heavy: stages that are truly slow, with no `faults.*`: an exchange that thinks long about every message, a slow disk.

Used where a broker must say what is slow while it happens (test_slow_stages.py), and where Spark must find it
afterwards (tests/spark/pipeline/test_truth_unaided.py). The publisher for it is that of overloads.py.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from penstock.amqp.method import (
    ExchangeDeclare,
    ExchangeDeclareOk,
    QueueBind,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueDeleteOk,
)
from penstock.amqp.table import Table
from tests.wire.live import ROOT
from tests.wire.overloads import NUMBERED, SYNC_DELAY_MS
from tests.wire.raw import RawClient

BINDINGS: Final = 10_000  # half of them are looked at for every message: about a millisecond
WORK: Final = "work"
HEAVY: Final[Table] = {**NUMBERED, "urgent": True}  # no message is urgent: every binding is looked at in vain
COMPILER: Final = shutil.which("cc")
NO_COMPILER: Final = "no C compiler: the disk is as fast as it is"


@contextmanager
def heavy_exchange(client: RawClient) -> Iterator[None]:
    """The exchange WORK; it gives messages to queues that are bound without conditions, after it has thought."""
    client.ask(ExchangeDeclare(WORK, "headers"), ExchangeDeclareOk)
    client.ask(QueueDeclare("urgent"), QueueDeclareOk)
    for number in range(BINDINGS):
        client.send(QueueBind("urgent", WORK, str(number), nowait=True, arguments=HEAVY))
    yield
    client.ask(QueueDelete("urgent"), QueueDeleteOk)  # what was sent and not routed yet is light from now on


def declare_behind(client: RawClient, queue: str) -> None:
    """A queue behind WORK: the channel that publishes to WORK has the work."""
    client.ask(QueueDeclare(queue, arguments={"x-max-length": 10}), QueueDeclareOk)
    client.send(QueueBind(queue, WORK, nowait=True))


def declare_before(client: RawClient, queue: str) -> None:
    """A queue whose dead letters go to WORK: it has the work."""
    client.ask(QueueDeclare(queue, arguments={"x-max-length": 1, "x-dead-letter-exchange": WORK}), QueueDeclareOk)


def slow_disk(directory: Path) -> dict[str, str]:
    """The environment of a process whose syncs take so long while the file `slow` is there (bench/slow_disk.c)."""
    if COMPILER is None:
        return {}
    library = directory / "slow_disk.so"
    source = ROOT / "bench" / "slow_disk.c"
    subprocess.run([COMPILER, "-shared", "-fPIC", "-o", library, source, "-ldl", "-lpthread"], check=True)
    switch = str(directory / "slow")
    return {"LD_PRELOAD": str(library), "SLOW_DISK_SWITCH": switch, "SLOW_DISK_SYNC_US": str(SYNC_DELAY_MS * 1000)}
