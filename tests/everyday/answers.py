"""What the broker says to wrong use: the code and text of each close, once for all client libraries.

The tests of a library bring the call that provokes it and the exception it turns into.
"""

from __future__ import annotations

from typing import Final, NamedTuple

LOCKED: Final = (
    "RESOURCE_LOCKED - cannot obtain exclusive access to locked queue '{q}' in vhost '/'. It could be originally "
    "declared on another connection or the exclusive property value does not match that of the original declaration."
)


class Answer(NamedTuple):
    code: int
    text: str

    def said(self, q: str) -> str:
        return self.text.format(q=q)


ANSWERS: Final = {
    "declare another's exclusive queue": Answer(405, LOCKED),
    "consume from another's exclusive queue": Answer(405, LOCKED),
    "consume beside an exclusive consumer": Answer(403, "ACCESS_REFUSED - queue '{q}' in vhost '/' in exclusive use"),
    "look for a missing queue": Answer(404, "NOT_FOUND - no queue '{q}' in vhost '/'"),
    "look for a missing exchange": Answer(404, "NOT_FOUND - no exchange '{q}' in vhost '/'"),
    "consume from a missing queue": Answer(404, "NOT_FOUND - no queue '{q}' in vhost '/'"),
    "bind to a missing exchange": Answer(404, "NOT_FOUND - no exchange '{q}.x' in vhost '/'"),
    "publish to a missing exchange": Answer(404, "NOT_FOUND - no exchange '{q}' in vhost '/'"),
    "declare a queue otherwise": Answer(
        406,
        "PRECONDITION_FAILED - inequivalent arg 'durable' for queue '{q}' in vhost '/': "
        "received 'true' but current is 'false'",
    ),
    "declare a queue with other arguments": Answer(
        406,
        "PRECONDITION_FAILED - inequivalent arg 'x-max-length' for queue '{q}' in vhost '/': "
        "received '6' but current is '5'",
    ),
    "declare an exchange otherwise": Answer(
        406,
        "PRECONDITION_FAILED - inequivalent arg 'type' for exchange '{q}' in vhost '/': "
        "received 'fanout' but current is 'direct'",
    ),
    "declare a reserved name": Answer(403, "ACCESS_REFUSED - queue name 'amq.{q}' contains reserved prefix 'amq.*'"),
    "delete a queue in use": Answer(406, "PRECONDITION_FAILED - queue '{q}' in vhost '/' in use"),
    "delete a queue with messages": Answer(406, "PRECONDITION_FAILED - queue '{q}' in vhost '/' not empty"),
    "ack twice": Answer(406, "PRECONDITION_FAILED - unknown delivery tag 1"),
}

FORCED: Final = Answer(320, "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'")
