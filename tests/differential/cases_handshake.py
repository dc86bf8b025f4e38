"""Cases: the way in. Most wrong ones are answered with silence and then the end of the socket, 3 s later."""

from __future__ import annotations

from penstock.amqp.frame import PROTOCOL_HEADER
from penstock.amqp.method import (
    ChannelOpen,
    ConnectionClose,
    ConnectionOpen,
    ConnectionSecureOk,
    ConnectionStartOk,
    ConnectionTuneOk,
    Method,
)
from penstock.amqp.table import Table
from tests.differential.player import Area
from tests.differential.script import Connection, Script
from tests.differential.typed import short_bytes, value_bytes
from tests.wire.raw import CAPABILITIES

area = Area("handshake")

PLAIN = b"\0guest\0guest"
NO_CAPABILITIES: Table = {}


def started(s: Script) -> Connection:
    c = s.bare()
    c.send_bytes(PROTOCOL_HEADER)
    c.read_method()  # connection.start; the case of the good way records it
    return c


def tuned(s: Script) -> Connection:
    """After connection.tune."""
    c = started(s)
    c.tell(ConnectionStartOk(CAPABILITIES, "PLAIN", PLAIN))
    c.event()
    return c


@area.case
def the_good_way(s: Script) -> None:
    c = s.bare()
    c.send_bytes(PROTOCOL_HEADER)
    c.event()
    c.tell(ConnectionStartOk(CAPABILITIES, "PLAIN", PLAIN))
    c.event()
    c.tell(ConnectionTuneOk(2047, 131072, 0))
    c.tell(ConnectionOpen("/"))
    c.event()
    c.opened = True


@area.each(
    {
        "http": (b"GET / HTTP/1.1\r\n\r\n",),
        "0-10": (b"AMQP\1\1\0\x0a",),
        "0-9-2": (b"AMQP\0\0\x09\x02",),
        "1.0": (b"AMQP\0\1\0\0",),
        "sasl": (b"AMQP\3\1\0\0",),
        "nonsense": (b"12345678",),
    }
)
def protocol_header(s: Script, data: bytes) -> None:
    c = s.bare()
    c.send_bytes(data)
    said = c.expect_gone()
    s.record("c.0", f"bytes {said!r}")
    c.ended = True


LOGINS: dict[str, tuple[Table, str, bytes]] = {
    "wrong password": (CAPABILITIES, "PLAIN", b"\0guest\0wrong"),
    "unknown user": (CAPABILITIES, "PLAIN", b"\0nobody\0guest"),
    "empty password": (CAPABILITIES, "PLAIN", b"\0guest\0"),
    "amqplain": (
        CAPABILITIES,
        "AMQPLAIN",
        short_bytes("LOGIN") + value_bytes("guest") + short_bytes("PASSWORD") + value_bytes("guest"),
    ),
    "amqplain the other way round": (
        CAPABILITIES,
        "AMQPLAIN",
        short_bytes("PASSWORD") + value_bytes("guest") + short_bytes("LOGIN") + value_bytes("guest"),
    ),
    "amqplain wrong password": (
        CAPABILITIES,
        "AMQPLAIN",
        short_bytes("LOGIN") + value_bytes("guest") + short_bytes("PASSWORD") + value_bytes("wrong"),
    ),
}
SILENT_LOGINS: dict[str, tuple[Table, str, bytes]] = {
    "wrong password without the capability": (NO_CAPABILITIES, "PLAIN", b"\0guest\0wrong"),
    "wrong password with the capability false": (
        {"capabilities": {"authentication_failure_close": False}},
        "PLAIN",
        b"\0guest\0wrong",
    ),
    "no response": (CAPABILITIES, "PLAIN", b""),
    "garbage": (CAPABILITIES, "PLAIN", b"garbage"),
    "no password": (CAPABILITIES, "PLAIN", b"\0guest"),
    "an authorisation id": (CAPABILITIES, "PLAIN", b"x\0guest\0guest"),
    "nul in the password": (CAPABILITIES, "PLAIN", b"\0guest\0guest\0more"),
    "an unknown mechanism": (CAPABILITIES, "BOGUS", PLAIN),
    "a mechanism in lower case": (CAPABILITIES, "plain", PLAIN),
    "external without tls": (CAPABILITIES, "EXTERNAL", b""),
    "no mechanism": (CAPABILITIES, "", PLAIN),
    "amqplain garbage": (CAPABILITIES, "AMQPLAIN", b"garbage"),
    "amqplain without password": (CAPABILITIES, "AMQPLAIN", short_bytes("LOGIN") + value_bytes("guest")),
    "amqplain empty": (CAPABILITIES, "AMQPLAIN", b""),
}


@area.each(LOGINS, waits=True)  # a failed one is answered late
def login(s: Script, properties: Table, mechanism: str, response: bytes) -> None:
    c = started(s)
    c.tell(ConnectionStartOk(properties, mechanism, response))
    c.event()


@area.each(SILENT_LOGINS, waits=True)
def login_in_vain(s: Script, properties: Table, mechanism: str, response: bytes) -> None:
    c = started(s)
    c.tell(ConnectionStartOk(properties, mechanism, response))
    c.event()


@area.case
def any_locale_will_do(s: Script) -> None:
    c = started(s)
    c.tell(ConnectionStartOk(CAPABILITIES, "PLAIN", PLAIN, "xx_YY"))
    c.event()


TUNES = {
    "the least": (1, 4096, 0),
    "as offered": (2047, 131072, 60),
    "a long heartbeat": (2047, 131072, 65535),
}
BAD_TUNES = {
    "no frame_max": (2047, 0, 0),
    "a large frame_max": (2047, 131073, 0),
    "a small frame_max": (2047, 4095, 0),
    "no channel_max": (0, 131072, 0),
    "a large channel_max": (2048, 131072, 0),
}


def tune(s: Script, channel_max: int, frame_max: int, heartbeat: int) -> None:
    c = tuned(s)
    c.tell(ConnectionTuneOk(channel_max, frame_max, heartbeat))
    c.tell(ConnectionOpen("/"))
    c.event()
    c.opened = True


area.each(TUNES)(tune)
area.each(BAD_TUNES, waits=True)(tune)


@area.each(
    {
        "unknown": ("nope",),
        "empty": ("",),
        "without the slash": ("//",),
        "utf-8": ("čaj",),
        "cr and lf": ("no\r\npe",),
        "255 bytes": ("v" * 255,),
    }
)
def vhost(s: Script, name: str) -> None:
    c = tuned(s)
    c.tell(ConnectionTuneOk(2047, 131072, 0))
    c.tell(ConnectionOpen(name))
    c.event()


@area.each(
    {
        "channel.open": (ChannelOpen(), 1),
        "connection.close": (ConnectionClose(200, "bye", 0, 0), 0),
        "tune-ok again": (ConnectionTuneOk(2047, 131072, 0), 0),
        "start-ok again": (ConnectionStartOk(CAPABILITIES, "PLAIN", PLAIN), 0),
    }
)
def instead_of_open(s: Script, method: Method, channel: int) -> None:
    c = tuned(s)
    c.tell(ConnectionTuneOk(2047, 131072, 0))
    c.tell(method, channel)
    c.event()


@area.each(
    {
        "open": (ConnectionOpen("/"), 0),
        "start-ok again": (ConnectionStartOk(CAPABILITIES, "PLAIN", PLAIN), 0),
        "connection.close": (ConnectionClose(200, "bye", 0, 0), 0),
        "channel.open": (ChannelOpen(), 1),
    },
    waits=True,
)
def instead_of_tune_ok(s: Script, method: Method, channel: int) -> None:
    c = tuned(s)
    c.tell(method, channel)
    c.event()


@area.each(
    {
        "open": (ConnectionOpen("/"),),
        "tune-ok": (ConnectionTuneOk(2047, 131072, 0),),
        "secure-ok": (ConnectionSecureOk(b""),),
        "connection.close": (ConnectionClose(200, "bye", 0, 0),),
    },
    waits=True,
)
def instead_of_start_ok(s: Script, method: Method) -> None:
    c = started(s)
    c.tell(method)
    c.event()


@area.case
def everything_in_one_packet(s: Script) -> None:
    c = s.bare()
    c.send_bytes(PROTOCOL_HEADER)
    c.tell(ConnectionStartOk(CAPABILITIES, "PLAIN", PLAIN))
    c.tell(ConnectionTuneOk(2047, 131072, 0))
    c.tell(ConnectionOpen("/"))
    c.tell(ChannelOpen(), 1)
    c.read_method()  # connection.start
    for _ in range(3):
        c.event()
    c.opened = True
