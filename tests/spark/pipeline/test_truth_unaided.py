"""What the tables say of what is truly slow: a channel that routes heavily, a queue whose dead letters do, a disk.

As in test_truth.py, but nothing is slowed down on purpose by the broker itself: channels and queues share its one core,
which `faults.*` leave free. So a channel and its queue can only be told apart by the time that their turns took.
"""

from __future__ import annotations

import re
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from penstock.amqp.method import QueueDelete, QueueDeleteOk
from tests.spark.pipeline.truth import BYSTANDER, CHANNEL, MANAGEMENT, Score, Spell, read_verdicts, scores
from tests.wire.heavy import COMPILER, NO_COMPILER, WORK, declare_before, declare_behind, heavy_exchange, slow_disk
from tests.wire.live import ServeProcess
from tests.wire.overloads import bystander, publisher
from tests.wire.raw import RawClient
from tests.wire.test_flow import Verdicts
from tests.wire.waiting import LIMIT_S, wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WINDOW_S = 1
WINDOWS = 20  # of each cause
RIGHT = 0.95  # of the windows, of each cause
CAUSES = ("channel", "queue", "store")


class Site:
    """A broker, and what was true of it when."""

    def __init__(self, process: ServeProcess) -> None:
        found = re.search(r"management (\S+)", process.ready_line)
        assert found is not None, process.log
        self.process = process
        self.verdicts = Verdicts(found[1])
        self.spells: list[Spell] = []

    def play(self, cause: str, bottleneck: str, queue: str, *options: str) -> None:
        """A publisher to the queue, for as long as it takes to see so many windows of this cause."""
        client = f"{cause}-publisher"
        with publisher(self.process.port, client, queue, *options):
            set_s = time.time()
            wait_until(lambda: self._is_held(client), LIMIT_S, f"{client} to be held up")
            began_s = time.time()

            def until_now() -> Spell:
                return Spell(cause, client, bottleneck, set_s, began_s, time.time())

            wait_until(lambda: len(until_now().windows(WINDOW_S)) >= WINDOWS, LIMIT_S + WINDOWS * WINDOW_S, "windows")
            self.spells.append(until_now())

    def calm(self) -> None:
        wait_until(lambda: not self.verdicts.verdicts(), LIMIT_S, "a broker that nobody waits for")

    def _is_held(self, client: str) -> bool:
        return any(one["name"] == client for one in self.verdicts.verdicts())


@pytest.fixture(scope="module")
def found(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Score]:
    """By cause, how often the tables were right."""
    directory = tmp_path_factory.mktemp("unaided")
    process = ServeProcess(directory, *MANAGEMENT, environment=slow_disk(directory))
    try:
        with ExitStack() as stack:
            site = Site(process)
            stack.enter_context(bystander(process.port, BYSTANDER, BYSTANDER))
            client = stack.enter_context(RawClient(process.port).handshake(name="setup").open())
            with heavy_exchange(client):
                declare_behind(client, "behind")
                site.play("channel", CHANNEL, "behind", "numbered", f"exchange={WORK}")
            client.ask(QueueDelete("behind"), QueueDeleteOk)
            site.calm()
            with heavy_exchange(client):
                declare_before(client, "before")
                site.play("queue", "queue before", "before", "numbered")
            client.ask(QueueDelete("before"), QueueDeleteOk)
            site.calm()
            if COMPILER is not None:
                (directory / "slow").touch()
                site.play("store", "store", "kept", "persistent")
                (directory / "slow").unlink()
        verdicts = read_verdicts(spark, process.uri, tmp_path_factory.mktemp("tables"), WINDOW_S)
        return {score.cause: score for score in scores(site.spells, verdicts, WINDOW_S)}
    finally:
        process.kill()


@pytest.mark.parametrize("cause", CAUSES)
def test_the_stage_that_is_slow_by_itself_is_named_in_the_windows_in_which_it_is(
    cause: str, found: dict[str, Score]
) -> None:
    if cause == "store" and COMPILER is None:
        pytest.skip(NO_COMPILER)
    assert found[cause].windows >= WINDOWS
    assert found[cause].share >= RIGHT, found[cause]
