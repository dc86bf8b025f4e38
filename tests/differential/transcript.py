"""Transcript: what a broker said in one case, one line per event, per connection and channel.

A line has all that was on the wire: method and arguments, the code, ids and text of a close, the properties of content
in their order, headers with their type letters. It is read from the bytes here, not by Penstock's own table codec,
which does not keep letters apart.

What may differ between two right brokers is normalised, all of it in this file, nothing else:

1. Names the broker makes up: `amq.gen-…`, `amq.ctag-…` and direct reply-to's tokens become `amq.gen-#1` and so on,
   numbered as they appear, so that the same name twice is the same number twice.
2. `time` in `x-death`: any time of the last hour is `now`.
3. Confirms: `basic.ack` and `basic.nack` to a publisher become the set of numbers they cover, told when the script asks
   for it (script.py: `confirmed`). Which frames they came in, in which order, is lost; a case may ask for the frames.
4. Blanks and newlines in texts become one blank, none before a number: Erlang breaks long terms into lines.
5. The keys of an entry of `x-death` are sorted: RabbitMQ's order depends on how often the message died before.
6. In a refusal (403) the words configure, write and read before `access to` are left out: newer RabbitMQs say them.
7. Of `connection.start`, only the version, the mechanisms, the locales and the capabilities (sorted, without Penstock's
   own) are kept.
8. An end of the socket is `gone`, with FIN or RST alike.
9. Each channel of each connection has a list of its own: nothing is said about the order between channels.

A script that waits in vain for something has a line for that too.
"""

from __future__ import annotations

import hashlib
import re
import struct
import time
from collections.abc import Callable
from typing import Final

from penstock.amqp.method import ChannelClose, ConnectionClose, ConnectionStart, Method

Transcript = dict[str, list[str]]

HOUR_S: Final = 3600
BODY_BYTES_SHOWN: Final = 64  # longer bodies are told by size and digest

DEATH_ENTRY: Final = "an entry of x-death"  # what its table goes by, having no key

_PERMISSION: Final = re.compile(r"\b(configure|write|read) access to ")
_BROKEN_TERM: Final = re.compile(r", (?=[0-9])")
_MADE_UP: Final = re.compile(
    r"amq\.(?P<kind>gen|ctag)-(?P<token>[A-Za-z0-9_+/=-]{20,})|amq\.rabbitmq\.reply-to\.(?P<reply>[A-Za-z0-9_.+/=-]+)"
)
_PROPERTIES: Final = (
    ("content_type", "s"),
    ("content_encoding", "s"),
    ("headers", "F"),
    ("delivery_mode", "o"),
    ("priority", "o"),
    ("correlation_id", "s"),
    ("reply_to", "s"),
    ("expiration", "s"),
    ("message_id", "s"),
    ("timestamp", "T"),
    ("type", "s"),
    ("user_id", "s"),
    ("app_id", "s"),
    ("cluster_id", "s"),
)
_FIXED: Final = {
    "b": ">b",
    "B": ">B",
    "s": ">h",
    "u": ">H",
    "I": ">i",
    "i": ">I",
    "l": ">q",
    "L": ">q",
    "f": ">f",
    "d": ">d",
    "T": ">Q",
}


class Names:
    """The names the broker made up in one case, numbered as they appear."""

    def __init__(self) -> None:
        self._numbers: dict[str, dict[str, int]] = {}

    def normalise(self, text: str) -> str:
        return _MADE_UP.sub(self._number, text)

    def _number(self, found: re.Match[str]) -> str:
        kind = f"amq.{found['kind']}-" if found["kind"] else "amq.rabbitmq.reply-to."
        known = self._numbers.setdefault(kind, {})
        number = known.setdefault(found["token"] or found["reply"], len(known) + 1)
        return f"{kind}#{number}"


def show_method(method: Method) -> str:
    """Name and arguments; of a close, the code first."""
    if isinstance(method, ChannelClose | ConnectionClose):
        text = _BROKEN_TERM.sub(",", _PERMISSION.sub("access to ", " ".join(method.reply_text.split())))
        return f"{method.NAME} {method.reply_code} ({method.class_id},{method.method_id}) {text}"
    if isinstance(method, ConnectionStart):
        return _show_start(method)
    shown = (f"{name.rstrip('_')}={getattr(method, name)!r}" for name in method.__match_args__)
    return " ".join((method.NAME, *shown))


def _show_start(method: ConnectionStart) -> str:
    capabilities = method.server_properties.get("capabilities")
    names = sorted(capabilities) if isinstance(capabilities, dict) else []
    names = [name for name in names if not name.startswith("penstock.")]
    version = f"{method.version_major}-{method.version_minor}"
    mechanisms, locales = sorted(method.mechanisms.split()), method.locales
    return f"{method.NAME} {version} mechanisms={mechanisms} locales={locales!r} capabilities={names}"


def show_content(header: bytes, body: bytes, body_frames: int) -> str:
    """Properties and body; `header` is a content header's payload."""
    shown = repr(body)
    if len(body) > BODY_BYTES_SHOWN:
        shown = f"{len(body)} bytes in {body_frames} frames, {hashlib.sha256(body).hexdigest()[:12]}"
    return f"{{{', '.join(_show_properties(header))}}} {shown}"


def read_reply_to(header: bytes) -> str:
    """The reply_to of a content header, as it is; empty if there is none."""
    return next((_unquote(part) for part in _show_properties(header) if part.startswith("reply_to=")), "")


def _unquote(part: str) -> str:
    return part.split("'", 1)[1][:-1]


def _show_properties(header: bytes) -> list[str]:
    (flags,) = struct.unpack_from(">H", header, 12)
    at = 14
    shown = []
    for index, (name, kind) in enumerate(_PROPERTIES):
        if not flags & 1 << 15 - index:
            continue
        if kind == "s":
            text = header[at + 1 : at + 1 + header[at]].decode("utf-8", "backslashreplace")
            shown.append(f"{name}={text!r}")
            at += 1 + header[at]
        elif kind == "o":
            shown.append(f"{name}={header[at]}")
            at += 1
        else:
            value, at = show_value(header, at, kind)
            shown.append(f"{name}={value}")
    if at != len(header):
        shown.append(f"and {len(header) - at} bytes more")
    return shown


def show_value(data: bytes, at: int, letter: str, key: str = "") -> tuple[str, int]:
    """A table value of this letter, and the position behind it."""
    if letter in _FIXED:
        form = _FIXED[letter]
        (number,) = struct.unpack_from(form, data, at)
        return _show_number(letter, number, key), at + struct.calcsize(form)
    if letter == "t":
        return f"t:{bool(data[at])}", at + 1
    if letter == "V":
        return "V", at
    if letter == "D":
        scale, value = struct.unpack_from(">BI", data, at)
        return f"D:{value}e-{scale}", at + 5
    start, end = at + 4, at + 4 + struct.unpack_from(">I", data, at)[0]
    if letter in "Sx":
        return f"{letter}:{data[start:end].decode('utf-8', 'backslashreplace')!r}", end
    assert letter in "FA", f"a value with the letter {letter!r}"
    read: Callable[[bytes, int], tuple[str, int]] = _show_pair
    if letter == "A":
        read = _show_death if key == "x-death" else _show_element
    parts = []
    while start < end:
        part, start = read(data, start)
        parts.append(part)
    if letter == "F" and key == DEATH_ENTRY:
        parts.sort()
    assert start == end, "a table or an array that does not end where it says"
    return (f"{{{', '.join(parts)}}}" if letter == "F" else f"[{', '.join(parts)}]"), end


def _show_pair(data: bytes, at: int) -> tuple[str, int]:
    behind = at + 1 + data[at]
    key = data[at + 1 : behind].decode("utf-8", "backslashreplace")
    value, end = show_value(data, behind + 1, chr(data[behind]), key)
    return f"{key} {value}", end


def _show_element(data: bytes, at: int) -> tuple[str, int]:
    return show_value(data, at + 1, chr(data[at]))


def _show_death(data: bytes, at: int) -> tuple[str, int]:
    return show_value(data, at + 1, chr(data[at]), DEATH_ENTRY)


def _show_number(letter: str, number: float, key: str) -> str:
    if letter == "T" and key == "time" and abs(time.time() - number) < HOUR_S:
        return "T:now"
    return f"{letter}:{number}"
