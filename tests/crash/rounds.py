"""Rounds: a broker process on one data directory, started, loaded, killed and looked through, again and again.

A life is one process. The history goes on over all of them. What the broker may be told on its standard input is
tests/crash/powerless.py's; `penstock serve` itself is only killed or stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Final

from penstock.amqp.method import (
    BasicAck,
    BasicConsume,
    BasicConsumeOk,
    BasicDeliver,
    BasicGetOk,
    ExchangeDeclare,
    ExchangeDeclareOk,
    QueueBind,
    QueueBindOk,
    QueueDeclare,
    QueueDeclareOk,
)
from penstock.config import BY_NAME
from tests.chance import seed_of
from tests.crash.history import Found, History
from tests.crash.load import (
    FAN,
    FAN_QUEUES,
    FLEETING,
    KINDS,
    TARGETS,
    ConfirmedPublisher,
    Consumer,
    Publisher,
    Sweeper,
    TransactionPublisher,
    consumers,
    declaration,
    found_in,
)
from tests.crash.peer import Gone, Peer, Refused
from tests.wire.live import READY, serve_environment

ROUNDS: Final = int(os.environ.get("CRASH_ROUNDS", "4"))
SEED: Final = seed_of("CRASH_SEED")
SERVE: Final = (sys.executable, "-m", "penstock", "serve")
POWERLESS: Final = (sys.executable, "-m", "tests.crash.powerless")

LIFE_S: Final = (0.05, 1.5)  # from the first client's connect to the kill
CLEAN: Final = 0.08  # of all lives end with a stop after all clients have left, and as many with a stop under load
OPERATIONS: Final = ("create", "write", "sync", "truncate", "rename", "remove", "sync_directory")
FAULTS: Final = ("full {0}", "write fails", "sync fails {1}", "slow 0.05")
END_S: Final = 60.0  # clients notice a dead broker within this
LOOK_S: Final = 60.0  # a queue that delivers nothing for so long has nothing
POLL_S: Final = 0.005  # how often a queue is asked whether it is empty
LETTERS_S: Final = 20.0  # so long a message may be on its way to the dead letters
MORE_ROUNDS: Final = 20  # at most, on a machine so slow that its brokers die before they have confirmed anything
BACKLOG_MAX: Final = 1500  # beyond this a look leaves less behind, so that rounds stay quick


class Broker:
    """One life of the broker: a process and its log."""

    def __init__(self, directory: Path, command: tuple[str, ...] = SERVE, *arguments: str) -> None:
        self._stderr = directory / "stderr"
        data = str(directory / "data")
        with self._stderr.open("wb") as stderr:
            self.process = subprocess.Popen(
                [*command, "--listen", "127.0.0.1:0", "--data", data, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                cwd=directory,
                env=serve_environment(),
            )
        self.port = 0

    def wait_ready(self) -> int:
        """Its port; 0 if it ended before it was ready."""
        assert self.process.stdout is not None
        found = READY.match(self.process.stdout.readline().decode())
        self.port = int(found["port"]) if found else 0
        return self.port

    def order(self, line: str) -> None:
        """To the file layer of powerless.py."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(line.encode() + b"\n")
            self.process.stdin.flush()

    def kill(self) -> None:
        self.process.kill()

    def terminate(self) -> int:
        self.process.terminate()
        return self.process.wait(END_S)

    def buried(self) -> str:
        """Wait for its end; its log."""
        self.process.wait(END_S)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        return self.log

    @property
    def log(self) -> str:
        return self._stderr.read_text("utf-8", "replace")


def chosen_settings(dice: random.Random) -> list[str]:
    """Small files and little memory, so that what is rare is frequent."""
    choices = {
        "store.journal_bytes": ("65536", "200000", "1000000", "67108864"),
        "store.cache_bytes": ("0", "100000", "1000000", "67108864"),
    }
    chosen = []
    for name, values in choices.items():
        value = dice.choice(values)
        if name in BY_NAME:
            chosen += ["--set", f"{name}={value}"]
    return chosen


class Site:
    """A data directory and its history."""

    def __init__(
        self, directory: Path, seed: int, power_loss: bool = False, faults: bool = False, lies: bool = False
    ) -> None:
        """With `power_loss` nothing survives that was not synced, or any part of it; `faults` go with it; a
        disk that `lies` syncs nothing, and must be noticed."""
        self.directory = directory
        self.seed = seed
        self.dice = random.Random(seed)
        self.history = History(KINDS, faulty=faults)
        self.power_loss = power_loss
        self.faults = faults
        self.lies = lies
        self.settings: list[str] = []
        self.letters = False
        self.publishers: list[Publisher] = [ConfirmedPublisher(n, self.history, self.dice) for n in range(1, 5)]
        self.publishers += (
            TransactionPublisher(10, self.history, self.dice),
            Sweeper(11, self.history, self.dice, "recreated"),
            Sweeper(12, self.history, self.dice, "purged"),
        )

    def focus_on_letters(self) -> None:
        """Only queues with dead letters, and syncs so slow that much is unsynced when the power fails."""
        self.letters = True
        self.publishers = []
        for number in range(1, 5):
            publisher = ConfirmedPublisher(number, self.history, self.dice)
            publisher.pool = [target for target in TARGETS if set(target.queues) <= {"source", FLEETING.name}]
            self.publishers.append(publisher)

    def start(self) -> Broker:
        """The next life. Some before it are short: killed while the broker starts."""
        while self.dice.random() < 0.15:
            broker = self._spawn(*(("--order", self._death()) if self.power_loss else ()))
            killer = threading.Timer(self.dice.uniform(0.1, 0.6), broker.kill)
            killer.start()
            broker.buried()
            killer.join()
            self.look_into(broker.log)
            self.history.counts["killed at start"] += 1
        self.settings = chosen_settings(self.dice)
        self._copy()
        broker = self._spawn()
        if not broker.wait_ready():
            raise AssertionError(f"the broker does not start: {broker.buried()}")
        return broker

    def _copy(self) -> None:
        """What the life that fails began with is there to be looked at."""
        shutil.rmtree(self.directory / "before", ignore_errors=True)
        if (self.directory / "data").exists():
            shutil.copytree(self.directory / "data", self.directory / "before")

    def _spawn(self, *arguments: str) -> Broker:
        if not self.power_loss:
            return Broker(self.directory, SERVE, *self.settings)
        seed = str(self.dice.randrange(1 << 32))
        if self.lies:
            arguments = ("--order", "lie", *arguments)
        if self.letters:
            arguments = ("--order", "slow 0.03", *arguments)
        return Broker(self.directory, POWERLESS, *self.settings, "--seed", seed, *arguments)

    def _death(self) -> str:
        """An order to die at a certain operation on the disk, soon."""
        nth = self.dice.randint(1, self.dice.choice((1, 5, 50)))
        return f"die {self.dice.choice(('before', 'behind'))} {self.dice.choice(OPERATIONS)} {nth}"

    def look_into(self, log: str) -> None:
        for line in log.splitlines():
            if "Traceback" in line or " crash " in line:
                self.history.complain(f"the broker crashed by itself: {log[-3000:]}")
                return

    def run(self, rounds: int) -> None:
        """So many kills; every time all that is there is looked at. Then a last look, that takes everything."""
        for number in range(rounds + MORE_ROUNDS):
            if number >= rounds and self.history.counts["confirmed"]:
                break
            asyncio.run(self._round())
            self.judge()
        asyncio.run(self._last_round())
        self.judge()

    def judge(self) -> None:
        if self.history.complaints:
            raise AssertionError(f"CRASH_SEED={self.seed}, settings {self.settings}\n{self.history.report()}")

    def run_one_life(self, rounds: int) -> None:
        """The same without a restart: clients come and go, and nothing may be lost meanwhile."""
        asyncio.run(self._one_life(rounds))
        self.judge()

    async def _one_life(self, rounds: int) -> None:
        broker = self.start()
        try:
            await self.look(broker.port)
            for _ in range(rounds):
                actors, tasks = self._crowd(broker.port)
                await asyncio.sleep(self.dice.uniform(*LIFE_S))
                await self._leave(actors, tasks)
                self.history.restarted()
                await self.look(broker.port)
        finally:
            broker.kill()
            self.look_into(broker.buried())

    async def _round(self) -> None:
        broker = self.start()
        clean = False
        try:
            await self.look(broker.port)
            if not self.history.complaints:
                clean = await self._load(broker)
        finally:
            broker.kill()
            self.look_into(broker.buried())
        self.history.restarted(clean)

    async def _load(self, broker: Broker) -> bool:
        """Until the broker is killed, or stopped; whether every client had left before."""
        actors, tasks = self._crowd(broker.port)
        ending = self.dice.random()
        if self.power_loss and ending > 0.7:
            broker.order(self._death())
        if self.faults:
            await self._trouble(broker)
        await asyncio.sleep(self.dice.uniform(*LIFE_S))
        leave = ending < CLEAN
        if ending < 2 * CLEAN:
            broker.order("well")
        if leave:
            await self._leave(actors, tasks)
        if ending < 2 * CLEAN:
            await self._stop(broker)
        elif self.power_loss and (self.letters or self.dice.random() < 0.5):
            broker.order("cut")
        else:
            broker.kill()
        if not leave:
            await self._bury(actors, tasks)
        return leave

    async def _trouble(self, broker: Broker) -> None:
        """The disk fails, is well again, fails in another way, or still does at the end."""
        for _ in range(self.dice.randint(0, 4)):
            fault = self.dice.choice(FAULTS).format(self.dice.randrange(100_000), self.dice.randint(1, 4))
            broker.order(self.dice.choice((fault, fault, "well")))
            await asyncio.sleep(self.dice.uniform(0, 0.8))
        self.history.counts["in trouble"] += 1

    def _crowd(self, port: int) -> tuple[list[Publisher | Consumer], list[asyncio.Task[None]]]:
        """Random publishers and consumers, at work."""
        for one in self.publishers:
            one.replan()
        actors: list[Publisher | Consumer] = [one for one in self.publishers if self.dice.random() < 0.8]
        if self.letters:
            actors += [Consumer(self.history, self.dice, "source", "reject some", 500) for _ in range(2)]
        else:
            actors += consumers(self.history, self.dice)
        return actors, [asyncio.ensure_future(actor.run(port)) for actor in actors]

    async def _leave(self, actors: list[Publisher | Consumer], tasks: list[asyncio.Task[None]]) -> None:
        """Every client closes its connection; then all that it sent is done."""
        for actor, task in zip(actors, tasks):
            if task.done() and not self._forgiven(task.exception()):
                self.history.complain(f"{actor!r} ended with {task.exception()!r}")
            task.cancel()
        await asyncio.wait(tasks)
        for actor in actors:
            if actor.peer is not None and not actor.peer.gone.is_set():
                with contextlib.suppress(Gone):  # it was about to close by itself
                    await actor.leave()
        self.history.counts["left"] += 1

    async def _stop(self, broker: Broker) -> None:
        code = await asyncio.to_thread(broker.terminate)
        if code:
            self.history.complain(f"a stop ended with {code}: {broker.log[-3000:]}")
        self.history.counts["stopped"] += 1

    async def _bury(self, actors: list[Publisher | Consumer], tasks: list[asyncio.Task[None]]) -> None:
        """Wait until every client knows that the broker is gone, and has read what it said before."""
        _, late = await asyncio.wait(tasks, timeout=END_S)
        for actor, task in zip(actors, tasks):
            if task in late:
                task.cancel()
                self.history.complain(f"{actor!r} did not notice the end of the broker")
            elif not isinstance(task.exception(), Gone) and not self._forgiven(task.exception()):
                self.history.complain(f"{actor!r} ended with {task.exception()!r}")

    def _forgiven(self, error: BaseException | None) -> bool:
        """A commit whose sync failed closes its channel, as with RabbitMQ."""
        return self.faults and isinstance(error, Refused) and "partial tx completion" in str(error)

    # Looking.

    async def look(self, port: int, take_all: bool = False) -> None:
        """Take everything out of every queue, check it, and put most of it back."""
        look = Look(port, torn=self.power_loss)
        found = await look.run(self.history)
        self.history.check(found)
        for queue, tags in look.tags.items():
            deliveries = found[queue]
            settled = _settled(self.dice, len(tags), take_all)
            # All copies of a dead letter go together, if there are several.
            keys = {deliveries[at].key for at in settled}
            for at, delivery in enumerate(deliveries):
                if delivery.key in keys:
                    self.history.acked(queue, delivery.key)
                    look.ack(tags[at])
                else:
                    self.history.requeued(queue, delivery.key)
        await look.close()

    async def _last_round(self) -> None:
        """All is taken and acked; after a clean stop nothing of it may be there."""
        for take_all in (True, False):
            broker = self.start()
            try:
                await self.look(broker.port, take_all)
                code = broker.terminate()
                if code:
                    self.history.complain(f"a stop ended with {code}: {broker.log[-3000:]}")
            finally:
                broker.kill()
                self.look_into(broker.buried())
            self.history.restarted(clean=True)


def _settled(dice: random.Random, count: int, take_all: bool) -> list[int]:
    """Which of so many deliveries a look acks."""
    style = dice.choice(("none", "half", "first", "last", "all") if count < BACKLOG_MAX else ("most", "all"))
    if take_all or style == "all":
        return list(range(count))
    if style == "half":
        return [at for at in range(count) if dice.random() < 0.5]
    if style == "most":
        return [at for at in range(count) if dice.random() < 0.9]
    if style == "first":
        return list(range(dice.randint(0, count)))
    if style == "last":
        return list(range(dice.randint(0, count), count))
    return []


class Look:
    """One consumer on every queue, alone with the broker: what is there, in order."""

    def __init__(self, port: int, torn: bool = False) -> None:
        """After a power loss a large message that was never confirmed may be `torn`, which is seen when it is read."""
        self.port = port
        self.torn = torn
        self.found: dict[str, list[Found]] = {kind.name: [] for kind in KINDS}
        self.tags: dict[str, list[int]] = {kind.name: [] for kind in KINDS}
        self.peer: Peer | None = None
        self._came = asyncio.Event()
        self._acks: list[int] = []

    async def run(self, history: History) -> dict[str, list[Found]]:
        self.peer = peer = await Peer.connect(self.port, on_delivery=self._delivered)
        told: Counter[str] = Counter()
        for kind in KINDS:
            declared = await peer.ask(declaration(kind), QueueDeclareOk)
            told[kind.name] = declared.message_count
        await peer.ask(ExchangeDeclare(FAN, "fanout", durable=True), ExchangeDeclareOk)
        for queue in FAN_QUEUES:
            await peer.ask(QueueBind(queue, FAN, ""), QueueBindOk)
        for kind in KINDS:
            await peer.ask(BasicConsume(kind.name, kind.name), BasicConsumeOk)
        # What may go by itself, or come from such a queue, is not as many as it was when it was asked.
        moving = {name for kind in KINDS if kind.drops for name in (kind.name, kind.dead_letters_to)}
        exact = [kind.name for kind in KINDS if kind.name not in moving]
        while not self.torn and any(len(self.found[queue]) < told[queue] for queue in exact):
            if not await self._more(LOOK_S):
                break
        await self._empty([kind.name for kind in KINDS if self.torn or kind.name in moving])
        while history.missing_letters(self.found) and await self._more(LETTERS_S):
            pass
        for kind in KINDS:
            ready = (await peer.ask(QueueDeclare(kind.name, passive=True), QueueDeclareOk)).message_count
            found = len(self.found[kind.name])
            if ready or (kind.name in exact and not self.torn and found != told[kind.name]):
                history.complain(f"{kind.name} had {told[kind.name]} messages, delivered {found}, and has {ready}")
        return self.found

    def ack(self, tag: int) -> None:
        self._acks.append(tag)

    async def close(self) -> None:
        """Ack what is to be acked; the rest goes back to where it was."""
        assert self.peer is not None
        for tag in self._acks:
            self.peer.tell(BasicAck(tag))
        await self.peer.close()

    async def _empty(self, queues: list[str]) -> None:
        """Wait until nothing is ready in these."""
        assert self.peer is not None
        with contextlib.suppress(TimeoutError):  # then the count says so
            async with asyncio.timeout(LOOK_S):
                for queue in queues:
                    while (await self.peer.ask(QueueDeclare(queue, passive=True), QueueDeclareOk)).message_count:
                        await asyncio.sleep(POLL_S)

    async def _more(self, timeout_s: float) -> bool:
        """Wait for a delivery; whether there was one."""
        assert self.peer is not None
        self._came.clear()
        try:
            async with asyncio.timeout(timeout_s):
                await self._came.wait()
        except TimeoutError:
            return False
        if self.peer.gone.is_set():
            raise self.peer.fault or Gone
        return True

    def _delivered(self, method: BasicDeliver | BasicGetOk, header: bytes, body: bytes) -> None:
        assert isinstance(method, BasicDeliver)
        queue = method.consumer_tag
        self.found[queue].append(found_in(queue, method, header, body))
        self.tags[queue].append(method.delivery_tag)
        self._came.set()
