"""Fixtures of the API's tests: one real broker with management for each file, and clients of it.

A test makes its own vhost or names, so that tests do not see each other's.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from urllib.parse import quote

import pytest

from tests.management.web import Web
from tests.wire.live import LiveBroker

NAMES = itertools.count(1)
PASSWORD = "p"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveBroker]:
    with LiveBroker(data=tmp_path_factory.mktemp("broker")) as live:
        yield live


@pytest.fixture(scope="module")
def url(broker: LiveBroker) -> str:
    return f"http://127.0.0.1:{broker.manage()}"


@pytest.fixture(scope="module")
def web(url: str) -> Iterator[Web]:
    """As guest, an administrator."""
    client = Web(url)
    yield client
    client.close()


@pytest.fixture
def vhost(web: Web) -> Iterator[str]:
    """A vhost of the test's own, as it stands in paths: its name has a slash."""
    name = quote(f"vhost/{next(NAMES)}", safe="")
    assert web.put(f"vhosts/{name}") == 201
    yield name
    web.ask("DELETE", f"vhosts/{name}")


@pytest.fixture
def user(url: str, web: Web) -> Iterator[Callable[..., Web]]:
    """user("monitoring", vhost): a client for a new user with these tags and all permissions there."""
    with ExitStack() as stack:

        def make(tags: str, *vhosts: str, name: str = "") -> Web:
            name = name or f"user-{next(NAMES)}"
            web.put(f"users/{name}", {"password": PASSWORD, "tags": tags})
            for one in vhosts:
                web.put(f"permissions/{one}/{name}", {"configure": ".*", "write": ".*", "read": ".*"})
            client = Web(url, name, PASSWORD)
            stack.callback(client.close)
            stack.callback(web.ask, "DELETE", f"users/{name}")
            return client

        yield make
