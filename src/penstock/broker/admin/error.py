"""AdminError: what an operator asked for cannot be done. And what admin needs of the settings.

Place: raised by admin/, told by management/ and tuning.py. Not here: HTTP's numbers (management/).
"""

from __future__ import annotations

from typing import Protocol

from penstock.amqp.close import ACCESS_REFUSED, NOT_FOUND, REPLY_NAMES, CloseChannel, CloseConnection
from penstock.broker.ledger import Json


class AdminError(Exception):
    """The text is one line for the operator. `missing`: it is not there. `refused`: this user may not."""

    def __init__(self, text: str, missing: bool = False, refused: bool = False) -> None:
        super().__init__(text)
        self.missing = missing
        self.refused = refused


def from_close(error: CloseChannel | CloseConnection) -> AdminError:
    """What a client would be told, without the name of the code before it: RabbitMQ's API says it so."""
    text = error.text.removeprefix(f"{REPLY_NAMES[error.code]} - ")
    return AdminError(text, missing=error.code == NOT_FOUND, refused=error.code == ACCESS_REFUSED)


class Settings(Protocol):
    """The broker's settings; tuning.py has them."""

    def all(self) -> list[dict[str, Json]]: ...

    def change(self, name: str, text: str) -> None:
        """From now on, until the broker stops; an AdminError if that cannot be."""
        ...
