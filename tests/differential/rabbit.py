"""RabbitMQ for the differential test: perf/rabbitmq.py's, with two plugins more.

`rabbitmq_consistent_hash_exchange` because Penstock has that exchange, `rabbitmq_management` because its HTTP API
administers in milliseconds what `rabbitmqctl` takes seconds for. Both are enabled once the server runs: it is started
without plugins, and its environment (cookie, node name, epmd's port) is read from the process itself.
Not here: what is asked of it over HTTP (admin.py).
"""

from __future__ import annotations

import socket
import subprocess
import urllib.parse
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from penstock.perf.rabbitmq import RabbitMQ, find_script, running_rabbitmq
from tests.differential.admin import RabbitAdmin
from tests.differential.script import Target

PLUGINS: Final = ("rabbitmq_consistent_hash_exchange", "rabbitmq_management")
CONTROL_TIMEOUT_S: Final = 240  # 2 to 4 s on a quiet machine


@contextmanager
def running_target() -> Iterator[Target]:
    """A RabbitMQ to play cases to; NotInstalled if there is none on this machine."""
    with running_rabbitmq() as rabbit:
        port = urllib.parse.urlsplit(rabbit.uri).port
        assert port is not None
        with closing(RabbitAdmin(_enable_plugins(rabbit))) as admin:
            yield Target("RabbitMQ", port, admin)


def _enable_plugins(rabbit: RabbitMQ) -> int:
    """The port of the management API."""
    http_port = _free_port()
    # persistent: or else loading the application puts its own default over it.
    listener = f'[{{ip,"127.0.0.1"}},{{port,{http_port}}}]'
    _control(
        rabbit,
        "rabbitmqctl",
        "eval",
        f"application:set_env(rabbitmq_management,tcp_config,{listener},[{{persistent,true}}]).",
    )
    _control(rabbit, "rabbitmq-plugins", "enable", *PLUGINS)
    return http_port


def _control(rabbit: RabbitMQ, *command: str) -> None:
    script = Path(find_script()).with_name(command[0])
    done = subprocess.run(
        [str(script), *command[1:]],
        env=_environment(rabbit.pid),
        capture_output=True,
        text=True,
        timeout=CONTROL_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(command)}: {done.stdout}{done.stderr}"


def _environment(pid: int) -> dict[str, str]:
    raw = Path(f"/proc/{pid}/environ").read_bytes().decode()
    pairs = (pair.split("=", 1) for pair in raw.split("\0") if "=" in pair)
    return {name: value for name, value in pairs if name != "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS"}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
