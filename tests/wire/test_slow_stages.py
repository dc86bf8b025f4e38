"""What blocks what where nothing is faked: a channel that routes heavily, a queue whose dead letters do, a slow disk.

No `faults.*` here: the broker is `penstock serve`, and its stages have real work. The channel and the queue each meet
an exchange of which thousands of bindings must be looked at for every message, by headers that no message has twice;
the disk is a library between the broker and the system that makes every sync long (bench/slow_disk.c). The verdict must
name the stage that is slow, and say nothing of a bystander who publishes at a pace that every stage takes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.amqp.method import QueueDelete, QueueDeleteOk
from tests.wire.heavy import COMPILER, NO_COMPILER, WORK, declare_before, declare_behind, heavy_exchange, slow_disk
from tests.wire.live import ServeProcess
from tests.wire.overloads import CONNECTION, QUEUE, bystander, publisher
from tests.wire.raw import RawClient
from tests.wire.test_flow import Verdicts
from tests.wire.waiting import LIMIT_S, wait_until

LOOKS = 5  # at a verdict that must not change
CALM = "calm"


class Served(Verdicts):
    """`penstock serve` with its API, on a disk that is slow while `slow` is there."""

    def __init__(self, process: ServeProcess, slow: Path) -> None:
        found = re.search(r"management (\S+)", process.ready_line)
        assert found is not None, process.log
        super().__init__(found[1])
        self.port = process.port
        self.slow = slow


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    directory = tmp_path_factory.mktemp("slow")
    process = ServeProcess(directory, "--management", "127.0.0.1:0", environment=slow_disk(directory))
    try:
        yield Served(process, directory / "slow")
    finally:
        process.kill()


@pytest.fixture
def client(site: Served) -> Iterator[RawClient]:
    """One that makes what the publisher uses; its queue goes with the test."""
    with RawClient(site.port).handshake(name="setup").open() as one:
        yield one
        one.ask(QueueDelete(QUEUE), QueueDeleteOk)


@pytest.fixture
def work(client: RawClient) -> Iterator[None]:
    with heavy_exchange(client):
        yield


def watch(site: Served, cause: str) -> dict[str, Any]:
    """The verdict of the publisher: this cause, look after look; and none of the bystander, who is there too. In the
    first second what is known is little, and it may be another one."""
    with bystander(site.port, CALM, CALM):
        wait_until(lambda: published(site, CALM), LIMIT_S, "messages of the bystander")
        verdict = wait_until(lambda: steady(site, cause), LIMIT_S, f"a steady verdict of cause {cause}")
        assert not [knob for knob in verdict["knobs"] if knob["setting"].startswith("faults.")]
    return verdict


def steady(site: Served, cause: str) -> dict[str, Any]:
    """The last of some verdicts that are all of this cause; empty if one is not. There may be another one: what the
    publisher of the test before has sent is still being worked off."""
    verdict: dict[str, Any] = {}
    for _ in range(LOOKS):
        found = site.verdicts()
        assert [one["sentence"] for one in found if one["name"] != CONNECTION] == []
        verdict = next((one for one in found if one["cause"] == cause), {})
        if not verdict:
            break
    return verdict


def published(site: Served, queue: str) -> int:
    return int(site.http.get(f"queues/%2F/{queue}").get("message_stats", {}).get("publish", 0))


@pytest.mark.usefixtures("work")
def test_a_channel_that_routes_heavily_holds_its_publisher_back(site: Served, client: RawClient) -> None:
    declare_behind(client, QUEUE)
    with publisher(site.port, CONNECTION, QUEUE, "numbered", f"exchange={WORK}"):
        verdict = watch(site, "channel")
        assert verdict["bottleneck"].startswith("channel ")
        assert verdict["resource"] == "CPU"


@pytest.mark.usefixtures("work")
def test_a_queue_whose_dead_letters_are_routed_heavily_holds_its_publisher_back(
    site: Served, client: RawClient
) -> None:
    declare_before(client, QUEUE)
    with publisher(site.port, CONNECTION, QUEUE, "numbered"):
        verdict = watch(site, "queue")
        assert verdict["bottleneck"] == f"queue {QUEUE}"
        assert verdict["resource"] == "CPU"


@pytest.mark.skipif(COMPILER is None, reason=NO_COMPILER)
def test_a_slow_disk_holds_a_publisher_of_persistent_messages_back(site: Served, client: RawClient) -> None:
    with publisher(site.port, CONNECTION, QUEUE, "persistent"):
        site.slow.touch()
        try:
            verdict = watch(site, "store")
        finally:
            site.slow.unlink()
        assert verdict["bottleneck"] == "store"
        assert verdict["resource"] == "disk"
