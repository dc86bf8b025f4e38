"""What goes wrong between this client and a broker, as exceptions whose text is one line for the caller's user.

Raised by the other modules of this package; connection.py hands on the four that it raises.
"""

from typing import Final

# The broker's own words for "not now": shutting down, an internal error, a leader that is being elected. 0 is no word
# at all: the connection broke.
PASSING_CODES: Final = frozenset({0, 320, 541})


class ClientError(Exception):
    """Something about the broker that the caller's user must hear; the text is one line."""


class Unreachable(ClientError):
    """No broker answers at this address."""


class LoginRefused(ClientError):
    """The broker knows no such user, password or vhost."""


class Closed(ClientError):
    """The broker closed the channel or the connection, or the connection broke."""

    def __init__(self, text: str, code: int = 0) -> None:
        super().__init__(text)
        self.code = code

    def __reduce__(self) -> tuple[type["Closed"], tuple[str, int]]:
        # Spark's tasks hand exceptions on by pickle: the code goes with them.
        return type(self), (str(self), self.code)


class Refused(ClientError):
    """The broker did not take a message that was published: it said so (nack), or no queue wanted it (return).

    `numbers` are those of the publishes, as many as could be told, in rising order: the first on a channel is 1."""

    def __init__(self, text: str, numbers: list[int]) -> None:
        super().__init__(text)
        self.numbers = numbers

    def __reduce__(self) -> tuple[type["Refused"], tuple[str, list[int]]]:
        return type(self), (str(self), self.numbers)


def reason_of(error: OSError) -> str:
    """Why a call of the system failed, in lower-case words."""
    if isinstance(error, BlockingIOError | TimeoutError):
        return "it did not answer in time"
    return (error.strerror or str(error)).lower()
