"""`penstock serve` on a disk of shim.py: `python -m tests.crash.powerless --listen … --data … [--set …] [--seed …]`.

What the disk is to do next comes line by line on standard input: FaultyFiles.obey. Its end means nothing.
"""

from __future__ import annotations

import argparse
import random
import sys
import threading
from pathlib import Path

from penstock.cli import address
from penstock.config import load
from penstock.server import Server, prepare_data, run_loop, serve
from tests.crash.shim import FaultyFiles


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--listen", required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--order", action="append", default=[])
    given = parser.parse_args()
    prepare_data(given.data)
    files = FaultyFiles(given.data, given.data.parent / "disk", random.Random(given.seed))
    for order in given.order:
        files.obey(order)
    threading.Thread(target=listen, args=(files,), daemon=True).start()
    host, port = address(given.listen)
    run_loop(serve(load(None, {}, given.set), host, port, ready, data=given.data, files=files))


def listen(files: FaultyFiles) -> None:
    for line in sys.stdin:
        files.obey(line)


def ready(server: Server) -> None:
    print(f"ready: amqp {server.host}:{server.port}", flush=True)


if __name__ == "__main__":
    main()
