"""Connection: who refuses a login, and who only dies while it goes on."""

from __future__ import annotations

import pytest

from penstock.amqp.method import ConnectionClose, ConnectionStart, ConnectionTune, Method, encode_method
from penstock.client.connection import Connection
from penstock.client.error import ClientError, Closed, LoginRefused
from penstock.client.uri import Uri
from tests.unit.client.script import ScriptedSocket

START = ConnectionStart(0, 9, {"product": "a broker"}, b"PLAIN", b"en_US")
TUNE = ConnectionTune(2047, 131_072, 60)


def logged_in(*said: Method) -> ClientError:
    """Why a login fails in which the broker says this and is gone."""
    socket = ScriptedSocket([encode_method(method, 0) for method in said], hang_up=True)
    with pytest.raises(ClientError) as failed:
        Connection(Uri(), socket)._handshake()  # type: ignore[arg-type]
    return failed.value


@pytest.mark.parametrize("said", [(), (START,), (START, TUNE)])
def test_a_broker_that_dies_during_a_login_has_not_refused_it(said: tuple[Method, ...]) -> None:
    error = logged_in(*said)
    assert isinstance(error, Closed)
    assert error.code == 0
    assert "closed the connection without a word" in str(error)


@pytest.mark.parametrize("said", [(START,), (START, TUNE)])
def test_neither_has_one_that_is_shutting_down(said: tuple[Method, ...]) -> None:
    error = logged_in(*said, ConnectionClose(320, "CONNECTION_FORCED - shutdown"))
    assert isinstance(error, Closed)
    assert error.code == 320


@pytest.mark.parametrize(
    ("said", "code", "what"), [((START,), 403, "login of 'guest'"), ((START, TUNE), 530, "vhost '/'")]
)
def test_one_that_says_no_has(said: tuple[Method, ...], code: int, what: str) -> None:
    error = logged_in(*said, ConnectionClose(code, "no"))
    assert isinstance(error, LoginRefused)
    assert f"refused the {what}" in str(error)
