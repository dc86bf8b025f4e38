"""Login: the credentials in a SASL response, by mechanism. PLAIN and AMQPLAIN."""

from __future__ import annotations

from typing import Final

from penstock.amqp.close import CloseConnection
from penstock.amqp.table import decode_table

MECHANISMS: Final = b"PLAIN AMQPLAIN"


def credentials(mechanism: str, response: bytes) -> tuple[str, str] | None:
    """User and password, or None if the response is not what the mechanism says or the mechanism is not known."""
    if mechanism == "PLAIN":
        parts = response.split(b"\0")
        if len(parts) != 3 or parts[0]:
            return None
        return _text(parts[1]), _text(parts[2])
    if mechanism == "AMQPLAIN":
        try:  # a table without the length in front
            table, _ = decode_table(len(response).to_bytes(4, "big") + response, 0)
        except CloseConnection:
            return None
        user, password = table.get("LOGIN"), table.get("PASSWORD")
        if isinstance(user, str) and isinstance(password, str):
            return user, password
    return None


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")
