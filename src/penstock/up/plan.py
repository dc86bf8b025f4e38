"""Plan: with which words each part of `penstock up` is started.

Upstream: command.py, from the command line and the settings.  Downstream: crew.py.
Plain values in, plain values out: nothing is started, opened or looked up here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

READY: Final = re.compile(r"(?:\w+ )?ready: ")  # how the line begins with which a part says that it can be used
ADDRESS: Final = re.compile(r"ready: amqp (?:\[(?P<long>[^\]]+)\]|(?P<host>[^\s:,]+)):(?P<port>\d+)")
TABLES: Final = "pipeline"  # in the data directory; the broker's own files there have other names
ANYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # who listens everywhere is reached here
URI_VARIABLE: Final = "PENSTOCK_URI"  # how parts get the address: a command line is for all on the machine to read
PAUSE_MAX_S: Final = 60
HOPELESS_PAUSE_MAX_S: Final = 600  # what cannot start costs a core for seconds at each try: a JVM, for a pipeline
STEADY_S: Final = 60.0  # a part that was ready for so long was well: what ends it then is news

NO_SPARK: Final = 'the flow pipeline is off, the broker and its page run: it needs Spark: pip install "penstock[spark]"'
NO_EVENTS: Final = "the flow pipeline is off, the broker and its page run: events.enabled is false"


@dataclass(frozen=True, slots=True)
class Plan:
    listen: str
    listen_tls: str | None
    management: str
    data: Path
    tables: Path
    config: Path | None = None
    settings: list[str] = field(default_factory=list)
    window_s: int = 10
    master: str = "local[*]"
    memory: str = "1g"
    uri: str | None = None  # how the broker is reached; None: guest, at the address it says it has
    pipeline_off: str = ""  # why there is none; empty: there is one
    with_demo: bool = False

    def broker(self) -> list[str]:
        """`penstock serve`. Of two words for one setting the last counts: the page shows what the pipeline writes."""
        words = ["penstock", "serve", "--listen", self.listen, "--management", self.management]
        words += ["--data", str(self.data)]
        words += ["--listen-tls", self.listen_tls] if self.listen_tls is not None else []
        words += ["--config", str(self.config)] if self.config is not None else []
        for setting in (*self.settings, f"management.tables={self.tables}"):
            words += ["--set", setting]
        return words

    def pipeline(self) -> list[str]:
        words = ["penstock", "pipeline", "flow", "--tables", str(self.tables), "--window", str(self.window_s)]
        return [*words, "--master", self.master, "--memory", self.memory]

    def demo(self) -> list[str]:
        return ["penstock.up.demo"]

    def address(self, ready: str) -> str:
        """Where the broker that wrote this ready line is reached."""
        if self.uri is not None:
            return self.uri
        found = ADDRESS.match(ready)
        assert found is not None, ready
        host = found["long"] or found["host"]
        host = ANYWHERE.get(host, host)
        return f"amqp://guest:guest@{f'[{host}]' if ':' in host else host}:{found['port']}"


def pause_s(failures: int, most_s: int) -> float:
    """How long to wait before a part is started again that has ended so often without having been ready for long."""
    return float(min(most_s, 2 ** min(failures, 10)))
