"""Testing: the pytest plugin. `pip install penstock` gives the fixture `amqp_broker`, a real broker for one test.

A broker starts in milliseconds, so every test gets a new one: nothing needs cleaning up, and nothing can be left over.
It lives in a thread of its own, so that blocking and async tests may use it alike.
Not here: what the broker can do (embed.py). This is the only module that knows pytest.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from penstock.embed import BrokerThread

MARKER: Final = "amqp_broker"
LOG_KEY: Final = pytest.StashKey[io.StringIO]()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "amqp_broker(settings={…}, tls_port=None): settings of the broker that the fixture amqp_broker starts for this "
        "test; penstock's docs/settings.md lists them. A mark on a class or module counts too, the nearest one wins.",
    )


@pytest.fixture
def amqp_broker(request: pytest.FixtureRequest) -> Iterator[BrokerThread]:
    """A real AMQP 0-9-1 broker on a free port of this machine, clean, for this test only."""
    from penstock.embed import BrokerThread  # a run that uses no broker does not pay for one

    settings: dict[str, object] = {}
    tls_port: int | None = None
    for marker in reversed(list(request.node.iter_markers(MARKER))):  # the nearest one last, to win
        settings.update(marker.kwargs.get("settings", {}))
        tls_port = marker.kwargs.get("tls_port", tls_port)
    log = request.node.stash[LOG_KEY] = io.StringIO()
    with BrokerThread(settings, tls_port=tls_port, log=log) as broker:
        yield broker


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """The broker's log is a section of the test's report, which pytest shows when the test fails."""
    log = item.stash.get(LOG_KEY, None)
    if log is not None and call.when == "call":
        text = log.getvalue()
        if text:
            item.add_report_section("call", "amqp_broker log", text)
    return (yield)
