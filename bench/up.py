"""What `penstock up` costs: time to its ready lines, then CPU and memory of all its processes, at rest or with --demo.

    .venv/bin/python bench/up.py [--demo] [--seconds 60]

CPU is CPU time of the processes over the time measured; memory is PSS: what processes share is counted once.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

SETTLE_S = 60.0  # after the first tables: Java has compiled what it uses most
NAMES = {"serve": "broker", "penstock.up.demo": "demo", "pipeline": "pipeline's driver", "up": "up"}


def name_of(process: psutil.Process) -> str:
    """Which part a process belongs to."""
    words = process.cmdline()
    if words and Path(words[0]).name == "java":
        return "Spark's JVM"
    return next((name for word, name in NAMES.items() if word in words), "Spark's Python workers")


def reading(top: psutil.Process) -> dict[str, tuple[float, int, int]]:
    """By part: CPU seconds so far, bytes, processes."""
    found: dict[str, tuple[float, int, int]] = {}
    for process in [top, *top.children(recursive=True)]:
        try:
            name, times, pss = name_of(process), process.cpu_times(), process.memory_full_info().pss
        except psutil.Error:
            continue  # gone meanwhile
        cpu_s, size, count = found.get(name, (0.0, 0, 0))
        found[name] = (cpu_s + times.user + times.system, size + pss, count + 1)
    return found


def wait_for(file: Path, text: str, process: subprocess.Popen[bytes]) -> None:
    while not file.exists() or text not in file.read_text("utf-8"):
        if process.poll() is not None:
            sys.exit(f"penstock up ended with {process.returncode}")
        time.sleep(0.1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--demo", action="store_true", help="with the demo's load")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long is measured")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        out, data = Path(scratch) / "out", Path(scratch) / "data"
        words = [sys.executable, "-m", "penstock", "up", "--listen", "127.0.0.1:0", "--management", "127.0.0.1:0"]
        words += ["--data", str(data), *(["--demo"] if given.demo else [])]
        began = time.monotonic()
        with out.open("wb") as stdout, (Path(scratch) / "err").open("wb") as stderr:
            process = subprocess.Popen(words, stdout=stdout, stderr=stderr)
        try:
            for text, file in (("ready: amqp", out), ("pipeline ready", out), ("", data / "pipeline" / "page.json")):
                wait_for(file, text, process)
                print(f"{text or 'first tables'}: after {time.monotonic() - began:.1f} s", flush=True)
            time.sleep(SETTLE_S)
            top = psutil.Process(process.pid)
            before, start = reading(top), time.monotonic()
            time.sleep(given.seconds)
            after, passed_s = reading(top), time.monotonic() - start
        finally:
            process.terminate()
            began = time.monotonic()
            process.wait()
        print(f"stopped in {time.monotonic() - began:.1f} s with {process.returncode}")
        for name, (cpu_s, size, count) in after.items():
            used_s = cpu_s - before.get(name, (0.0, 0, 0))[0]
            print(f"{name:22} {count:2} processes {100 * used_s / passed_s:5.1f} % of a core {size / 1e6:7.0f} MB")


if __name__ == "__main__":
    main()
