"""Fixtures of the wire tests: brokers to talk to. The classes are in live.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.wire.live import LiveBroker, ServeProcess


@pytest.fixture
def start_broker() -> Iterator[Callable[[Mapping[str, str]], LiveBroker]]:
    """Starts a broker with these settings; it ends with the test."""
    with ExitStack() as stack:
        yield lambda settings: stack.enter_context(LiveBroker(settings))


@pytest.fixture
def broker(request: pytest.FixtureRequest) -> Iterator[LiveBroker]:
    """A clean broker; for other settings: @pytest.mark.parametrize("broker", [{…}], indirect=True)."""
    with LiveBroker(getattr(request, "param", None)) as live:
        yield live


@pytest.fixture
def serve_process(tmp_path: Path) -> Iterator[Callable[..., ServeProcess]]:
    """Starts `penstock serve` as a process of its own: serve_process(*arguments, environment={…})."""
    started: list[ServeProcess] = []

    def start(*arguments: str, environment: Mapping[str, str] | None = None) -> ServeProcess:
        directory = tmp_path / f"serve{len(started)}"
        directory.mkdir()
        started.append(ServeProcess(directory, *arguments, environment=environment))
        return started[-1]

    yield start
    for process in started:
        process.kill()
