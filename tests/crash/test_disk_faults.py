"""A disk that is full, fails or is slow: the broker lives, says so, confirms nothing meanwhile, and goes on by itself.

Every test ends with a power loss or kill -9, and what was confirmed must be there.
"""

from __future__ import annotations

import asyncio
import random
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

import pytest

from penstock.amqp.method import (
    BasicAck,
    BasicDeliver,
    BasicGetOk,
    ConfirmSelect,
    ConfirmSelectOk,
    QueueDeclare,
    QueueDeclareOk,
)
from tests.crash.history import History, Key, Line
from tests.crash.load import KINDS, ConfirmedPublisher, Target, found_in, get
from tests.crash.peer import Gone, Peer
from tests.crash.rounds import POWERLESS, ROUNDS, SEED, SERVE, Broker, Look, Site

SLOW_S = 1.0  # what a sync takes on a slow disk; twenty of them are more than a busy machine needs for twenty answers
PLAIN = Target("", "plain", ("plain",))
WAIT_S = 60.0  # only ends a test that would hang


async def until(condition: Callable[[], object], what: str, broker: Broker) -> None:
    try:
        async with asyncio.timeout(WAIT_S):
            while not condition():
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(f"not within {WAIT_S} s: {what}; the log:\n{broker.log[-3000:]}") from None


class Scene:
    """A broker on a faulty disk, its history, and a publisher with confirms that never stops."""

    def __init__(self, directory: Path, command: tuple[str, ...] = POWERLESS, *settings: str) -> None:
        self.directory = directory
        self.command = command
        self.settings = settings
        self.history = History(KINDS, faulty=True)
        self.publisher = ConfirmedPublisher(1, self.history, random.Random(SEED))
        self.publisher.targets = [PLAIN, Target("", "lazy", ("lazy",))]
        self.publisher.large = 0.1
        # Never at the end of its window: a connection is told that it is blocked when it publishes.
        self.publisher.window, self.publisher.pace = 100_000, 2000.0
        self.broker = Broker(directory, command, *settings)
        assert self.broker.wait_ready(), self.broker.log

    @property
    def confirmed(self) -> int:
        return self.history.counts["confirmed"]

    @property
    def peer(self) -> Peer:
        assert self.publisher.peer is not None
        return self.publisher.peer

    @asynccontextmanager
    async def publishing(self) -> AsyncIterator[None]:
        """The publisher is at work, and some confirms have come."""
        await self.look()
        task = asyncio.ensure_future(self.publisher.run(self.broker.port))
        try:
            await self.more_confirms()
            yield
            assert not task.done(), task.exception()
        finally:
            self.broker.kill()
            await asyncio.wait([task])
            how = task.exception()
        assert isinstance(how, Gone), how

    async def until(self, condition: Callable[[], object], what: str) -> None:
        await until(condition, what, self.broker)

    async def more_confirms(self, count: int = 200) -> None:
        wanted = self.confirmed + count
        await self.until(lambda: self.confirmed >= wanted, f"{count} more confirms")

    async def blocked(self) -> str:
        await self.until(lambda: self.peer.blocked, "connection.blocked")
        return self.peer.blocked or ""

    async def no_confirms(self) -> None:
        """The publisher hears nothing, while others work: so much is done that a confirm would have come long ago."""
        before = self.confirmed
        line = Line()

        def taken(method: BasicDeliver | BasicGetOk, header: bytes, body: bytes) -> None:
            found = found_in("plain", method, header, body)
            self.history.delivered("plain", found.key, 0, method.redelivered, line)
            self.history.acked("plain", found.key)

        other = await Peer.connect(self.broker.port, on_delivery=taken)
        for _ in range(50):
            await other.ask(QueueDeclare("plain", passive=True), QueueDeclareOk)
            found = await get(other, "plain")
            if found is not None:
                other.tell(BasicAck(found.delivery_tag))
        await other.close()
        assert self.confirmed == before, "something was confirmed while the disk did not write"

    async def look(self) -> None:
        look = Look(self.broker.port, torn=True)
        found = await look.run(self.history)
        self.history.check(found)
        await look.close()
        assert not self.history.complaints, self.history.report()

    def restart(self) -> None:
        """The broker was killed; the next one has a good disk."""
        log = self.broker.buried()
        assert "Traceback" not in log, log
        assert " crash " not in log, log
        self.history.restarted()
        self.broker = Broker(self.directory, self.command, *self.settings)
        assert self.broker.wait_ready(), self.broker.log

    async def looked_through(self) -> None:
        """Killed, restarted, and everything is there."""
        self.broker.kill()
        self.restart()
        await self.look()


class MakeScene(Protocol):
    def __call__(self, directory: Path, command: tuple[str, ...] = POWERLESS, *settings: str) -> Scene: ...


@pytest.fixture
def make_scene() -> Iterator[MakeScene]:
    scenes: list[Scene] = []

    def make(directory: Path, command: tuple[str, ...] = POWERLESS, *settings: str) -> Scene:
        scenes.append(Scene(directory, command, *settings))
        return scenes[-1]

    yield make
    for scene in scenes:
        scene.broker.kill()
        scene.broker.buried()


@pytest.mark.parametrize(
    ("order", "reason"),
    [("full 20000", "No space left on device"), ("write fails", "Input/output error")],
)
def test_while_the_disk_does_not_write_publishers_are_blocked_and_nothing_is_confirmed(
    tmp_path: Path, make_scene: MakeScene, order: str, reason: str
) -> None:
    async def play() -> None:
        scene = make_scene(tmp_path)
        async with scene.publishing():
            for _ in range(2):  # it blocks, goes on, and can block again
                scene.broker.order(order)
                assert reason in await scene.blocked()
                await scene.no_confirms()
                scene.broker.order("well")
                await scene.until(lambda: not scene.peer.blocked, "connection.unblocked")
                await scene.more_confirms()
            assert not scene.history.counts["nacked"], "a write that failed can be done again: nothing is lost yet"
        await scene.looked_through()

    asyncio.run(play())


def test_a_broker_killed_while_its_disk_is_full_has_what_it_confirmed(tmp_path: Path, make_scene: MakeScene) -> None:
    async def play() -> None:
        scene = make_scene(tmp_path)
        for room in (0, 700, 30_000):
            async with scene.publishing():
                scene.broker.order(f"full {room}")
                await scene.blocked()
            scene.restart()
        await scene.looked_through()

    asyncio.run(play())


def test_after_a_failed_sync_what_it_covered_is_never_acked(tmp_path: Path, make_scene: MakeScene) -> None:
    async def play() -> None:
        scene = make_scene(tmp_path)
        await scene.look()
        answers: dict[int, bool] = {}
        publisher = scene.publisher
        keys: dict[int, Key] = {}

        def answered(tag: int, multiple: bool, good: bool) -> None:
            for one in [one for one in keys if one == tag or (multiple and one < tag)]:
                assert one not in answers, "answered twice"
                answers[one] = good
                (scene.history.confirmed if good else scene.history.nacked)(keys.pop(one))

        peer = await Peer.connect(scene.broker.port, on_confirm=answered)
        await peer.ask(ConfirmSelect(), ConfirmSelectOk)
        tag = 0

        def publish() -> int:
            nonlocal tag
            tag += 1
            keys[tag], data = publisher.message(PLAIN)
            peer.send(data)
            return tag

        before = publish()
        await scene.until(lambda: answers.get(before), "the first confirm")
        for times in (1, 3):
            known = scene.broker.log.count("sync failed")
            scene.broker.order(f"sync fails {times}")
            while True:  # the order takes a moment; what was acked by then is none of its business
                doubtful = publish()
                await scene.until(
                    lambda: scene.broker.log.count("sync failed") > known or doubtful in answers,  # noqa: B023 (as below)
                    "an alarm in the log",
                )
                if not answers.get(doubtful):
                    break
            while True:  # the disk is well again by itself
                later = publish()
                await scene.until(lambda: later in answers, "an answer")  # noqa: B023 (it is called before the next one)
                if answers[later]:
                    break
            assert scene.broker.log.count("sync failed") > known
            assert answers.get(doubtful) is not True, "acked, though its sync had failed"
        await scene.looked_through()

    asyncio.run(play())


def test_failing_syncs_block_publishers_until_one_succeeds(tmp_path: Path, make_scene: MakeScene) -> None:
    async def play() -> None:
        scene = make_scene(tmp_path)
        async with scene.publishing():
            scene.broker.order("sync fails 1000000")
            assert "sync failed" in await scene.blocked()
            await scene.no_confirms()
            scene.broker.order("well")
            await scene.until(lambda: not scene.peer.blocked, "connection.unblocked")
            await scene.more_confirms()
        await scene.looked_through()

    asyncio.run(play())


def test_a_slow_disk_delays_confirms_and_nobody_else(tmp_path: Path, make_scene: MakeScene) -> None:
    async def play() -> None:
        scene = make_scene(tmp_path)
        async with scene.publishing():
            scene.broker.order(f"slow {SLOW_S}")
            await scene.more_confirms(1000)  # those may be on their way already
            loop = asyncio.get_running_loop()
            began = loop.time()
            other = await Peer.connect(scene.broker.port)
            for _ in range(20):
                await other.ask(QueueDeclare("plain", passive=True), QueueDeclareOk)
            await other.close()
            assert loop.time() - began < 20 * SLOW_S, "others wait for the disk too"
            began = loop.time()
            wanted = scene.publisher.sent + 1  # not published yet: its confirm needs a sync that has not begun

            def confirmed() -> bool:
                publisher = scene.publisher
                return publisher.sent >= wanted and not any(key[1] <= wanted for key in publisher.tags.values())

            await scene.until(confirmed, "its confirm")
            assert loop.time() - began > SLOW_S, "a confirm came before its sync can have ended"
            assert not scene.peer.blocked_before, "a slow disk is no alarm"
        await scene.looked_through()

    asyncio.run(play())


@pytest.mark.timeout(max(300, ROUNDS * 45))
def test_with_faults_at_random_moments_every_message_that_was_confirmed_is_there(tmp_path: Path) -> None:
    print(f"CRASH_SEED={SEED}")
    site = Site(tmp_path, SEED, power_loss=True, faults=True)
    site.run(max(2, ROUNDS // 2))
    print(dict(site.history.counts))
    assert site.history.counts["confirmed"]


# A real one.


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MB."""
    path = tmp_path / "small"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(path)]
    try:
        done = subprocess.run(mount, capture_output=True, text=True, check=False)
    except OSError as error:
        pytest.skip(f"no mount here: {error}")
    if done.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {done.stderr.strip()}")
    yield path
    subprocess.run(["umount", str(path)], check=True)


def test_a_disk_that_is_really_full_blocks_publishers_until_there_is_room(
    small_disk: Path, make_scene: MakeScene
) -> None:
    async def play() -> None:
        ballast = small_disk / "ballast"
        ballast.write_bytes(bytes(3_000_000))
        scene = make_scene(small_disk, SERVE, "--set", "alarms.disk_free_bytes_low=0")
        async with scene.publishing():
            assert "No space left on device" in await scene.blocked()
            await scene.no_confirms()
            before, known = scene.confirmed, len(scene.peer.blocked_before)
            ballast.unlink()
            await scene.until(lambda: scene.confirmed > before, "confirms, as there is room again")
            await scene.until(
                lambda: len(scene.peer.blocked_before) > known, "connection.blocked, as there is none again"
            )
        await scene.looked_through()  # the next one starts on a full disk

    asyncio.run(play())
