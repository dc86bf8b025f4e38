"""kill -9 while definitions change: what was answered is there, and every change is whole or not at all.

A client sends changes without waiting for each answer, and the process is killed at a random moment. What is on disk
then must be the state after some change between the last one answered and the last one sent; the next round goes on
from it.
More rounds: CRASH_ROUNDS=500. A failed run is repeated with the CRASH_SEED it names.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from collections import deque
from pathlib import Path

import pytest

from penstock.amqp.method import (
    ExchangeBind,
    ExchangeBindOk,
    ExchangeDeclare,
    ExchangeDeclareOk,
    ExchangeDelete,
    ExchangeDeleteOk,
    Method,
    QueueBind,
    QueueBindOk,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueDeleteOk,
    QueueUnbind,
    QueueUnbindOk,
)
from penstock.store.definitions import read_definitions
from tests.chance import seed_of
from tests.wire.live import ServeProcess, serve_environment
from tests.wire.raw import Gone, RawClient

ROUNDS = int(os.environ.get("CRASH_ROUNDS", "10"))
SEED = seed_of("CRASH_SEED")
MORE_ROUNDS = 20  # at most, on a machine so slow that its brokers die before they have changed anything
WINDOW = 6  # changes under way at once
LIFE_S_MAX = 0.25  # of a process once the client talks to it: some hundred changes
QUEUES = tuple(f"q{number}" for number in range(5))
EXCHANGES = tuple(f"x{number}" for number in range(4))
AUTO_DELETE = "x3"  # goes with its last binding
KEYS = ("a", "b")

Thing = tuple[str, ...]
State = frozenset[Thing]  # ("queue", name), ("exchange", name), ("binding", source, "queue" or "exchange", name, key)


# The model.


def without(state: State, gone: set[Thing]) -> State:
    """The state without these and all that goes with them."""
    while True:
        names = {thing for thing in gone if thing[0] != "binding"}
        more = {
            thing
            for thing in state
            if thing[0] == "binding" and (("exchange", thing[1]) in names or thing[2:4] in names)
        }
        left = {thing for thing in state if thing not in gone | more}
        lost_one = any(thing[0] == "binding" and thing[1] == AUTO_DELETE for thing in (gone | more) & state)
        has_one = any(thing[0] == "binding" and thing[1] == AUTO_DELETE for thing in left)
        if lost_one and not has_one:
            more.add(("exchange", AUTO_DELETE))
        if more <= gone:
            return frozenset(left - more)
        gone = gone | more


def change(state: State, dice: random.Random) -> tuple[Method, type[Method], State]:
    """A random change that the broker grants: what to send, what answers it, and the state after it."""
    queue, exchange, key = dice.choice(QUEUES), dice.choice(EXCHANGES), dice.choice(KEYS)
    has_queue, has_exchange = ("queue", queue) in state, ("exchange", exchange) in state
    roll = dice.random()
    if not has_queue or roll < 0.1:
        return QueueDeclare(queue, durable=True), QueueDeclareOk, state | {("queue", queue)}
    if not has_exchange or roll < 0.2:
        declare = ExchangeDeclare(exchange, "topic", durable=True, auto_delete=exchange == AUTO_DELETE)
        return declare, ExchangeDeclareOk, state | {("exchange", exchange)}
    if roll < 0.3:
        return QueueDelete(queue), QueueDeleteOk, without(state, {("queue", queue)})
    if roll < 0.4:
        return ExchangeDelete(exchange), ExchangeDeleteOk, without(state, {("exchange", exchange)})
    if roll < 0.5:
        binding = ("binding", exchange, "queue", queue, key)
        after = without(state, {binding}) if binding in state else state
        return QueueUnbind(queue, exchange, key), QueueUnbindOk, after
    if roll < 0.6 and exchange != "x0" and ("exchange", "x0") in state:
        return ExchangeBind("x0", exchange, key), ExchangeBindOk, state | {("binding", exchange, "exchange", "x0", key)}
    if roll < 0.65:  # never recorded, and never in the way of what is
        return QueueDeclare(f"transient {dice.random()}", auto_delete=True), QueueDeclareOk, state
    return QueueBind(queue, exchange, key), QueueBindOk, state | {("binding", exchange, "queue", queue, key)}


def kept(data: Path) -> State:
    found: set[Thing] = set()
    for kind, key, body in read_definitions(data):
        if kind in ("queue", "exchange") and key != ("/", "penstock.events"):  # that is the broker's own
            assert body["name"] == key[1]
            found.add((kind, key[1]))
        elif kind == "binding":
            found.add(("binding", key[1], key[2], key[3], key[4]))
    return frozenset(found)


# The broker.


class Killer:
    """Kills the process after so many seconds, whatever it is doing."""

    def __init__(self, process: subprocess.Popen[str], after_s: float) -> None:
        self._timer = threading.Timer(after_s, process.kill)
        self._timer.start()

    def join(self) -> None:
        self._timer.join()


def harass(port: int, start: State, dice: random.Random) -> list[State]:
    """Send changes until the broker is gone; the states that may be found then."""
    states: deque[State] = deque([start])  # after the last answered change, and after each one sent since
    expected: deque[type[Method]] = deque()
    try:
        with RawClient(port) as client:
            client.handshake().open()  # within: it may be killed by now
            while True:
                while len(expected) < WINDOW:
                    method, answer, after = change(states[-1], dice)
                    expected.append(answer)
                    states.append(after)  # before it is sent: a send that fails may have arrived
                    client.send(method)
                client.expect(expected[0])
                expected.popleft()
                states.popleft()
    except (Gone, OSError):
        return list(states)


def found_alive(port: int) -> State:
    """Queues and exchanges, as a client finds them."""
    found: set[Thing] = set()
    probes: list[tuple[Thing, Method, type[Method]]] = [
        (("queue", name), QueueDeclare(name, passive=True), QueueDeclareOk) for name in QUEUES
    ]
    probes += [
        (("exchange", name), ExchangeDeclare(name, "topic", passive=True), ExchangeDeclareOk) for name in EXCHANGES
    ]
    with RawClient(port).handshake() as client:
        for number, (thing, method, answer) in enumerate(probes, 1):
            client.open(number)
            client.send(method, number)
            if isinstance(client.read_method()[1], answer):
                found.add(thing)
    return frozenset(found)


@pytest.mark.timeout(max(300, ROUNDS * 30))
def test_a_killed_broker_comes_back_with_every_answered_change_and_no_half_one(tmp_path: Path) -> None:
    print(f"CRASH_SEED={SEED}")
    dice = random.Random(SEED)
    state: State = frozenset()
    changed = 0
    for number in range(ROUNDS + MORE_ROUNDS):
        if number >= ROUNDS and changed:
            break
        serve = ServeProcess(tmp_path)
        assert serve.port, serve.log
        try:
            alive = found_alive(serve.port)
            assert alive == {thing for thing in state if thing[0] != "binding"}, f"round {number}, CRASH_SEED={SEED}"
            killer = Killer(serve.process, dice.uniform(0, LIFE_S_MAX))
            possible = harass(serve.port, state, dice)
            killer.join()
        finally:
            serve.kill()
        assert "Traceback" not in serve.log, serve.log
        now = kept(tmp_path / "data")
        assert now in possible, (
            f"round {number}, CRASH_SEED={SEED}: not one of {len(possible)} states; nearest differs in "
            f"{min((now ^ one for one in possible), key=len)}"
        )
        changed += now != state
        state = now
    assert changed, "every process was killed before it changed anything: LIFE_S_MAX is too short for this machine"


IMPORT = """
import sys, pathlib
from penstock.broker.definitions import import_definitions
from penstock.server import stopped_broker
names = [f"q{number}" for number in range(2000)]
queues = [{"name": name, "vhost": "/", "durable": True, "auto_delete": False, "arguments": {}} for name in names]
with stopped_broker(pathlib.Path(sys.argv[1])) as broker:
    import_definitions(broker, {"queues": queues})
    print("writing", flush=True)
print("written", flush=True)
"""


def test_an_import_that_is_killed_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    print(f"CRASH_SEED={SEED}")
    dice = random.Random(SEED)
    for number in range(max(2, ROUNDS // 3)):
        data = tmp_path / str(number)
        data.mkdir()
        process = subprocess.Popen(
            [sys.executable, "-c", IMPORT, str(data)], stdout=subprocess.PIPE, text=True, env=serve_environment()
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "writing\n"
        killer = Killer(process, dice.uniform(0, 0.03))
        written = process.stdout.read() == "written\n"
        killer.join()
        process.wait(60)
        process.stdout.close()
        found = len(kept(data))
        assert found == 2000 if written else found in (0, 2000), f"{found} of 2000, CRASH_SEED={SEED}"
