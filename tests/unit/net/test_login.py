"""Login: who it is, by mechanism; or nobody."""

from __future__ import annotations

import pytest

from penstock.amqp.table import Table, encode_table
from penstock.net.login import MECHANISMS, credentials


def amqplain(table: Table) -> bytes:
    return encode_table(table)[4:]


@pytest.mark.parametrize(
    ("mechanism", "response", "expected"),
    [
        ("PLAIN", b"\0guest\0secret", ("guest", "secret")),
        ("PLAIN", b"\0\0", ("", "")),
        ("PLAIN", "\0jürgen\0pässwort".encode(), ("jürgen", "pässwort")),
        ("PLAIN", b"\0u\0\xff\xfe", ("u", "\udcff\udcfe")),
        ("PLAIN", b"", None),
        ("PLAIN", b"guest\0secret", None),
        ("PLAIN", b"\0guest", None),
        ("PLAIN", b"\0a\0b\0c", None),
        ("PLAIN", b"other\0guest\0secret", None),
        ("AMQPLAIN", amqplain({"LOGIN": "guest", "PASSWORD": "secret"}), ("guest", "secret")),
        ("AMQPLAIN", amqplain({"PASSWORD": "secret", "LOGIN": "guest", "more": 1}), ("guest", "secret")),
        ("AMQPLAIN", amqplain({"LOGIN": "guest"}), None),
        ("AMQPLAIN", amqplain({"LOGIN": 1, "PASSWORD": "secret"}), None),
        ("AMQPLAIN", b"\0guest\0secret", None),
        ("AMQPLAIN", b"", None),
        ("AMQPLAIN", b"\xff" * 40, None),
        ("EXTERNAL", b"\0guest\0secret", None),
        ("plain", b"\0guest\0secret", None),
        ("", b"", None),
    ],
)
def test_credentials_are_read_or_nobody_is_there(
    mechanism: str, response: bytes, expected: tuple[str, str] | None
) -> None:
    assert credentials(mechanism, response) == expected


def test_what_is_offered_is_what_is_understood() -> None:
    assert MECHANISMS == b"PLAIN AMQPLAIN"
