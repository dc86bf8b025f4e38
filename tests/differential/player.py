"""Player: plays cases to one broker, each on a clean one, and gives their transcripts.

Cases are played one after the other, because they share names (every other queue is `q`); after each, its connections
are closed, what an administrator did is undone, and what it declared is deleted. Cases that only wait for the broker to
end a bad handshake declare nothing and are played beside the others.
Not here: what a case may do (script.py), where transcripts are kept (recording.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from penstock.amqp.method import (
    ChannelClose,
    ChannelCloseOk,
    ExchangeDelete,
    ExchangeDeleteOk,
    QueueDelete,
    QueueDeleteOk,
)
from tests.differential.script import Script, Stop, Target
from tests.differential.transcript import Transcript
from tests.wire.raw import RawClient
from tests.wire.waiting import wait_until

BESIDE_MAX: Final = 32  # waiting cases at a time
Play = Callable[[Script], None]


@dataclass(frozen=True, slots=True)
class Case:
    name: str  # "area/what"
    play: Play
    waits: bool = False  # it spends its time in silence: play it beside the others


@dataclass(slots=True)
class Area:
    """The cases of one file. `@area.case` adds one, `@area.each({...})` one per row of a table."""

    name: str
    cases: dict[str, Case] = field(default_factory=dict)

    def case(self, play: Play) -> Play:
        self._add(play.__name__, play)
        return play

    def waiting(self, play: Play) -> Play:
        self._add(play.__name__, play, waits=True)
        return play

    def each(
        self, rows: Mapping[str, tuple], waits: bool = False
    ) -> Callable[[Callable[..., None]], Callable[..., None]]:
        def add_all(play: Callable[..., None]) -> Callable[..., None]:
            for row, values in rows.items():
                self._add(f"{play.__name__}: {row}", partial(_play_row, play, values), waits)
            return play

        return add_all

    def _add(self, name: str, play: Play, waits: bool = False) -> None:
        name = f"{self.name}/{name.replace('_', ' ')}"
        assert name not in self.cases, f"two cases are called {name}"
        self.cases[name] = Case(name, play, waits)


def _play_row(play: Callable[..., None], values: tuple, script: Script) -> None:
    play(script, *values)


def play_all(target: Target, cases: Iterable[Case]) -> dict[str, Transcript]:
    """The transcripts by name."""
    cases = list(cases)
    with ThreadPoolExecutor(BESIDE_MAX) as pool:
        beside = {case.name: pool.submit(play_case, target, case) for case in cases if case.waits}
        janitor = Janitor(target)
        told = {case.name: play_case(target, case, janitor) for case in cases if not case.waits}
        janitor.leave()
        told |= {name: outcome.result() for name, outcome in beside.items()}
    return {case.name: told[case.name] for case in cases}


def play_case(target: Target, case: Case, janitor: Janitor | None = None) -> Transcript:
    script = Script(target)
    try:
        case.play(script)
        script.settle()
    except Stop:
        pass
    except Exception as error:  # a broken case must not keep the others from being played; its line makes it fail
        script.record("script", f"failed: {type(error).__name__} {error}")
    try:
        for connection in script.connections.values():
            connection.bye()
        if janitor is not None:
            target.admin.undo()
            janitor.clean(script)
    except Exception as error:  # as above: it is this case that has left something behind
        script.record("script", f"failed: cleaning up: {type(error).__name__} {error}")
    return script.transcript


class Janitor:
    """Deletes what a case has left behind, on a connection of its own."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._client = RawClient(target.port).handshake().open()
        self._is_cut = False  # a clean-up was not finished: whatever is still on its way must not reach the next one

    def clean(self, script: Script) -> None:
        if self._is_cut:
            self._client.close_socket()
            self._client = RawClient(self._target.port).handshake().open()
        self._is_cut = True
        for queue in dict.fromkeys(script.queues):
            wait_until(partial(self._delete, queue), what=f"{queue} deleted")
        for exchange in dict.fromkeys(script.exchanges):
            if exchange and not exchange.startswith("amq."):
                self._client.ask(ExchangeDelete(exchange), ExchangeDeleteOk)
        self._is_cut = False

    def _delete(self, queue: str) -> bool:
        """False while another connection's end still keeps it locked."""
        self._client.send(QueueDelete(queue))
        _, answer = self._client.read_method()
        if isinstance(answer, QueueDeleteOk):
            return True
        assert isinstance(answer, ChannelClose), answer
        self._client.send(ChannelCloseOk())
        self._client.open()
        return False

    def leave(self) -> None:
        self._client.close()
