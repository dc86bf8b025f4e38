"""Close: AMQP's reply codes, and the two exceptions that carry one to the peer.

Raised by the codec and by the broker when the peer is at fault; the connection turns them into `channel.close` or
`connection.close`.
Not here: the close methods (session.py), who is told and what happens to the channel afterwards (broker, net).
"""

from __future__ import annotations

from typing import Final

REPLY_SUCCESS: Final = 200
CONTENT_TOO_LARGE: Final = 311
NO_ROUTE: Final = 312
NO_CONSUMERS: Final = 313
CONNECTION_FORCED: Final = 320
INVALID_PATH: Final = 402
ACCESS_REFUSED: Final = 403
NOT_FOUND: Final = 404
RESOURCE_LOCKED: Final = 405
PRECONDITION_FAILED: Final = 406
FRAME_ERROR: Final = 501
SYNTAX_ERROR: Final = 502
COMMAND_INVALID: Final = 503
CHANNEL_ERROR: Final = 504
UNEXPECTED_FRAME: Final = 505
RESOURCE_ERROR: Final = 506
NOT_ALLOWED: Final = 530
NOT_IMPLEMENTED: Final = 540
INTERNAL_ERROR: Final = 541

REPLY_NAMES: Final[dict[int, str]] = {
    REPLY_SUCCESS: "REPLY_SUCCESS",
    CONTENT_TOO_LARGE: "CONTENT_TOO_LARGE",
    NO_ROUTE: "NO_ROUTE",
    NO_CONSUMERS: "NO_CONSUMERS",
    CONNECTION_FORCED: "CONNECTION_FORCED",
    INVALID_PATH: "INVALID_PATH",
    ACCESS_REFUSED: "ACCESS_REFUSED",
    NOT_FOUND: "NOT_FOUND",
    RESOURCE_LOCKED: "RESOURCE_LOCKED",
    PRECONDITION_FAILED: "PRECONDITION_FAILED",
    FRAME_ERROR: "FRAME_ERROR",
    SYNTAX_ERROR: "SYNTAX_ERROR",
    COMMAND_INVALID: "COMMAND_INVALID",
    CHANNEL_ERROR: "CHANNEL_ERROR",
    UNEXPECTED_FRAME: "UNEXPECTED_FRAME",
    RESOURCE_ERROR: "RESOURCE_ERROR",
    NOT_ALLOWED: "NOT_ALLOWED",
    NOT_IMPLEMENTED: "NOT_IMPLEMENTED",
    INTERNAL_ERROR: "INTERNAL_ERROR",
}

REPLY_TEXT_BYTES_MAX: Final = 255  # the reply text is a short string


class CloseChannel(Exception):
    """The peer's fault, and only its channel pays for it. A code outside REPLY_NAMES is our bug: KeyError."""

    __slots__ = ("class_id", "code", "method_id", "text")

    def __init__(self, code: int, text: str, class_id: int = 0, method_id: int = 0) -> None:
        self.code = code
        self.text = reply_text(code, text)
        self.class_id = class_id
        self.method_id = method_id
        super().__init__(self.text)

    def __repr__(self) -> str:
        return f"<CloseChannel {self.code} {self.text} by {self.class_id}.{self.method_id}>"


class CloseConnection(Exception):
    """The peer's fault, and the whole connection pays for it. A code outside REPLY_NAMES is our bug: KeyError."""

    __slots__ = ("class_id", "code", "method_id", "text")

    def __init__(self, code: int, text: str, class_id: int = 0, method_id: int = 0) -> None:
        self.code = code
        self.text = reply_text(code, text)
        self.class_id = class_id
        self.method_id = method_id
        super().__init__(self.text)

    def __repr__(self) -> str:
        return f"<CloseConnection {self.code} {self.text} by {self.class_id}.{self.method_id}>"


def reply_text(code: int, text: str) -> str:
    """The whole reply text as RabbitMQ writes it: the code's name, then the reason, cut to fit a short string."""
    name = REPLY_NAMES[code]
    whole = f"{name} - {text}" if text else name
    # Escaped, because a name the peer sent may hold bytes that are no UTF-8, and the text must reach the wire anyhow.
    encoded = whole.encode("utf-8", "backslashreplace")
    if len(encoded) <= REPLY_TEXT_BYTES_MAX:
        return encoded.decode("utf-8")
    # "ignore" drops the character that the cut went through, so the text stays UTF-8; RabbitMQ also ends it in dots.
    return encoded[: REPLY_TEXT_BYTES_MAX - 3].decode("utf-8", "ignore") + "..."
