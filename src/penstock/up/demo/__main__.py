"""`python -m penstock.up.demo`: plays the demo on the broker that PENSTOCK_URI names, until SIGTERM.

Upstream: crew.py starts it.  Downstream: play.py.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

from penstock.client.error import ClientError
from penstock.client.uri import UriError, parse_uri
from penstock.up.demo.cast import CAST
from penstock.up.demo.play import Play
from penstock.up.demo.scenery import SCENES

DEFAULT_URI = "amqp://guest:guest@127.0.0.1:5672"


def main() -> int:
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    try:
        play = Play(parse_uri(os.environ.get("PENSTOCK_URI", DEFAULT_URI)))
        play.begin(CAST)
        print(f"demo ready: {len(CAST)} clients on {', '.join(scene.queue for scene in SCENES)}", flush=True)
        stopping.wait()
        play.end()
    except (ClientError, UriError) as error:
        if stopping.is_set():
            return 0  # the broker was stopped with us, and went first: the queues expire
        print(f"penstock: the demo: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
