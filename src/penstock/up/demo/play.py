"""Play: runs the demo's cast, each on a connection and a thread of its own, and tidies up behind it.

Upstream: __main__.py.  Downstream: cast.py, the broker by penstock.client.
Whoever loses the connection comes back after a moment, until the play is over. At the end the queues are deleted, which
also frees those who wait for one.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import Final

from penstock.amqp.method import QueueDeclare, QueueDeclareOk, QueueDelete, QueueDeleteOk
from penstock.client.connection import Connection
from penstock.client.error import ClientError, Closed
from penstock.client.uri import Uri
from penstock.up.demo.scenery import SCENES

AGAIN_S: Final = 2.0  # after a lost connection
PATIENCE_S: Final = 3600.0  # a publisher waits as long as an alarm lasts; a stop does not wait for it
GOODBYE_S: Final = 2.0  # for actors to leave by themselves
TIDY_S: Final = 20.0  # for the broker's answers while we tidy up

Act = Callable[["Play", Connection], None]


class Play:
    def __init__(self, uri: Uri) -> None:
        self.uri = uri
        self._over = threading.Event()
        self._actors: list[threading.Thread] = []

    def __repr__(self) -> str:
        return f"<Play {self.uri} actors={len(self._actors)} over={self._over.is_set()}>"

    @property
    def over(self) -> bool:
        return self._over.is_set()

    def wait(self, seconds: float) -> bool:
        """Wait so long, or until the play is over; whether it is."""
        return self._over.wait(seconds)

    def begin(self, cast: dict[str, Act]) -> None:
        """Declare the queues and let all of them act. ClientError if that is not possible."""
        with Connection.connect(self.uri, name="demo") as connection:
            channel = connection.open_channel()
            for scene in SCENES:
                channel.call(QueueDeclare(scene.queue, durable=True, arguments=scene.arguments()), QueueDeclareOk)
        for name, act in cast.items():
            actor = threading.Thread(target=self._run, args=(name, act), name=name, daemon=True)
            self._actors.append(actor)
            actor.start()

    def end(self) -> None:
        """All leave, and the queues go. ClientError if the broker is gone before us: then they expire."""
        self._over.set()
        self._let_go()
        with Connection.connect(self.uri, TIDY_S, "demo") as connection:
            channel = connection.open_channel()
            for scene in SCENES:
                channel.call(QueueDelete(scene.queue), QueueDeleteOk)
        self._let_go()  # whoever had to wait for a queue has no reason any more

    def _let_go(self) -> None:
        """Give the actors time to leave in good order; those who cannot go with the process."""
        deadline = time.monotonic() + GOODBYE_S
        for actor in self._actors:
            actor.join(max(0.0, deadline - time.monotonic()))

    def _run(self, name: str, act: Act) -> None:
        """A thread's work."""
        while not self.over:
            try:
                with Connection.connect(self.uri, PATIENCE_S, name, notices=True) as connection:
                    act(self, connection)
            except (ClientError, OSError) as error:
                if not self.over and not isinstance(error, Closed):
                    print(f"{name}: {error}", file=sys.stderr, flush=True)
            self.wait(AGAIN_S)
