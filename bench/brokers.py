"""The brokers of a benchmark: started on free loopback ports with directories of their own, and gone afterwards.

Penstock runs as `penstock serve` in a process of its own; RabbitMQ is started by penstock.perf.rabbitmq. Both can be
given a slow disk, the same for both: bench/slow_disk.c, preloaded.
Not here: load (src/penstock/perf), what is compared (compare.py, overload.py, backlog.py).
"""

import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NoReturn, TypeVar

from penstock import __version__
from penstock.config import SETTINGS
from penstock.perf.rabbitmq import NotInstalled, NotStarted, find_script, running_rabbitmq

START_TIMEOUT_S = 120  # a start reads what a run of millions of messages left
STOP_TIMEOUT_S = 120
READY = re.compile(r"^ready: amqp ([^\s,]+)")
MANAGEMENT = re.compile(r"management (http://\S+)")
SLOW_DISK_SOURCE = Path(__file__).resolve().parent / "slow_disk.c"
T = TypeVar("T")
PENSTOCK = "penstock"
RABBITMQ = "rabbitmq"


@dataclass(frozen=True, slots=True)
class Running:
    """A broker that runs."""

    product: str
    uri: str
    pid: int
    directory: Path  # where its files are
    started_s: float  # on time.perf_counter's clock: when its process was started
    ready_s: float  # and when it said that it is ready; for RabbitMQ, when it greeted
    management: str = ""  # the URL of the HTTP API


@dataclass(frozen=True, slots=True)
class SlowDisk:
    """A disk that is slow from `begin` to `end` for the brokers that were started with it."""

    bytes_per_s: float
    sync_us: float
    library: Path
    switch: Path

    def begin(self) -> None:
        self.switch.touch()

    def end(self) -> None:
        self.switch.unlink(missing_ok=True)

    @property
    def variables(self) -> dict[str, str]:
        return {
            "LD_PRELOAD": str(self.library),
            "SLOW_DISK_SWITCH": str(self.switch),
            "SLOW_DISK_BYTES_PER_S": str(self.bytes_per_s),
            "SLOW_DISK_SYNC_US": str(self.sync_us),
        }


def named(known: Mapping[str, T], names: Sequence[str], what: str) -> list[T]:
    """What these names stand for; those that nothing has are told, with exit code 2."""
    unknown = [name for name in names if name not in known]
    if unknown:
        fail(f"no such {what}: {', '.join(unknown)}; there are {', '.join(known)}", 2)
    return [known[name] for name in names]


@contextmanager
def running_penstock(
    settings: Mapping[str, str] | None = None,
    variables: Mapping[str, str] | None = None,
    data: Path | None = None,
    kill: bool = False,
) -> Iterator[Running]:
    """Start the broker of this environment and stop it at the end, by SIGKILL if `kill`.

    Settings that this version does not know are left out, with a line on stderr. `data` is left as it is; without it,
    the data directory is a temporary one.
    """
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as name:
        directory = Path(name)
        found = data or directory / "data"
        command = [sys.executable, "-m", "penstock", "serve", "--listen", "127.0.0.1:0"]
        command += ["--management", "127.0.0.1:0", "--data", str(found)]
        for setting, value in known_settings(settings or {}).items():
            command += ["--set", f"{setting}={value}"]
        with open(directory / "log", "w+") as log:
            started_s = time.perf_counter()
            # Its own session: Ctrl-C is for us, and we stop the broker when the objects of the run are deleted.
            process = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
                env=os.environ | dict(variables or {}),
            )
            try:
                line = _ready_line(process, log)
                ready_s = time.perf_counter()
                address, management = READY.match(line), MANAGEMENT.search(line)
                yield Running(
                    f"Penstock {__version__}",
                    f"amqp://guest:guest@{address[1] if address else ''}/%2f",
                    process.pid,
                    found,
                    started_s,
                    ready_s,
                    management[1] if management else "",
                )
            finally:
                _stop(process, kill)


@contextmanager
def running_other(settings: Mapping[str, str], variables: Mapping[str, str]) -> Iterator[Running]:
    """RabbitMQ, as running_penstock gives Penstock."""
    started_s = time.perf_counter()
    with running_rabbitmq(settings, variables) as found:
        # Its version is what it tells its clients; the caller who prints it asks for it there.
        yield Running("RabbitMQ", found.uri, found.pid, found.directory, started_s, time.perf_counter())


def running(
    broker: str, settings: Mapping[str, Mapping[str, str]], slow: SlowDisk | None = None
) -> AbstractContextManager[Running]:
    """One of the two with its own settings, on this disk."""
    variables = slow.variables if slow else {}
    own = settings.get(broker, {})
    return running_penstock(own, variables) if broker == PENSTOCK else running_other(own, variables)


def brokers() -> list[str]:
    """Both, or Penstock alone with a line on stderr where RabbitMQ is not installed."""
    try:
        find_script()
    except NotInstalled as error:
        tell(f"{error}; Penstock is measured alone")
        return [PENSTOCK]
    return [PENSTOCK, RABBITMQ]


def known_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Those that this version of Penstock has."""
    names = {setting.name for setting in SETTINGS}
    for name in settings.keys() - names:
        tell(f"this Penstock has no setting {name}: measured without it")
    return {name: value for name, value in settings.items() if name in names}


@contextmanager
def slow_disk(bytes_per_s: float, sync_us: float) -> Iterator[SlowDisk | None]:
    """A slow disk to start brokers with; None, with a line on stderr, where there is no C compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        tell("no C compiler: the disk is as fast as it is")
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
        library = Path(directory) / "slow_disk.so"
        command = [compiler, "-O2", "-shared", "-fPIC", "-o", str(library), str(SLOW_DISK_SOURCE), "-ldl", "-lpthread"]
        subprocess.run(command, check=True)
        yield SlowDisk(bytes_per_s, sync_us, library, Path(directory) / "slow")


def tell(text: str) -> None:
    print(f"bench: {text}", file=sys.stderr, flush=True)


def fail(text: str, code: int) -> NoReturn:
    tell(text)
    raise SystemExit(code)


def end_with_us() -> None:
    """SIGTERM as Ctrl-C: brokers must not outlive us."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def _ready_line(process: subprocess.Popen[str], log: IO[str]) -> str:
    """The line that says ready. A thread goes on reading: a full pipe would stop the broker."""
    assert process.stdout is not None
    lines: queue.Queue[str] = queue.Queue()
    threading.Thread(target=_read_lines, args=(process.stdout, lines), daemon=True).start()
    try:
        while line := lines.get(timeout=START_TIMEOUT_S):
            if READY.match(line):
                return line
        why = f"ended with code {process.wait()}"
    except queue.Empty:
        why = f"was not ready within {START_TIMEOUT_S} s"
    log.seek(0)
    told = log.read().strip().splitlines()
    raise NotStarted(f"penstock serve {why}: {told[-1] if told else 'it said nothing'}")


def _read_lines(stdout: IO[str], lines: "queue.Queue[str]") -> None:
    for line in stdout:
        lines.put(line)
    lines.put("")


def _stop(process: subprocess.Popen[str], kill: bool) -> None:
    if not kill:
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
            return
        except subprocess.TimeoutExpired:
            tell(f"penstock serve did not end within {STOP_TIMEOUT_S} s and was killed")
    process.kill()
    process.wait()
