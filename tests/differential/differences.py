"""Differences: the cases in which Penstock says something else than RabbitMQ on purpose, and what it says.

A reason in one line each; the table with all of them is in docs/protocol.md ("Deliberate differences"). A feature that
is not there yet is no difference: its case fails.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tests.differential.transcript import Transcript


@dataclass(frozen=True, slots=True)
class Difference:
    why: str
    instead: Transcript  # the streams that differ, as Penstock has them


A_CODE_SAYS_WHY = "RabbitMQ drops the socket without a word; a code says why"
CLIENT_S_FAULT = "RabbitMQ crashes on it (541); it is the client's fault, and is told to the client"

REQUESTS = "queue.declare-ok queue='requests' message_count=0 consumer_count=0"
REQUEST = (
    "basic.get-ok delivery_tag=1 redelivered=False exchange='' routing_key='requests' message_count=0 "
    "{correlation_id='7', reply_to='amq.rabbitmq.reply-to.#1'} b'question'"
)

STREAM_READ = [
    "queue.declare-ok queue='s' message_count=0 consumer_count=0",
    "confirm.select-ok",
    "confirms: 1 ack, 2 ack, 3 ack, 4 ack, 5 ack, 6 ack",
    "basic.qos-ok",
    "basic.consume-ok consumer_tag='c'",
    *(
        f"basic.deliver consumer_tag='c' delivery_tag={offset + 1} redelivered=False exchange='' routing_key='s' "
        f"{{headers={{x-stream-offset l:{offset}}}}} b'{offset}'"
        for offset in range(6)
    ),
]
READERS_CLOSE_SO = (
    "clients such as pika nack what they have not handled when they close; newer RabbitMQ takes it as an ack"
)

DIFFERENCES: Final[dict[str, Difference]] = {
    "channels/frame: an unknown class": Difference(
        A_CODE_SAYS_WHY,
        {"c.0": ["connection.close 503 (99,10) COMMAND_INVALID - unimplemented method 99.10", "gone"]},
    ),
    "channels/frame: an unknown method": Difference(
        A_CODE_SAYS_WHY,
        {"c.0": ["connection.close 503 (50,99) COMMAND_INVALID - unimplemented method 50.99", "gone"]},
    ),
    "channels/frame: a table with an unknown letter": Difference(
        A_CODE_SAYS_WHY,
        {"c.0": ["connection.close 501 (50,10) FRAME_ERROR - cannot decode table: unknown type 'z'", "gone"]},
    ),
    "channels/frame: broken properties": Difference(
        CLIENT_S_FAULT,
        {"c.0": ["connection.close 501 (60,40) FRAME_ERROR - cannot decode properties: they end too early", "gone"]},
    ),
    "exchanges/hash by: header 5": Difference(
        CLIENT_S_FAULT,
        {
            "c.0": [],
            "c.1": [
                "channel.close 406 (40,10) PRECONDITION_FAILED - invalid type 'signedint' for arg 'hash-header'",
            ],
        },
    ),
    "exchanges/hash by: property 5": Difference(
        CLIENT_S_FAULT,
        {
            "c.0": [],
            "c.1": [
                "channel.close 406 (40,10) PRECONDITION_FAILED - invalid type 'signedint' for arg 'hash-property'",
            ],
        },
    ),
    "replyto/a reply to a garbage token": Difference(
        "RabbitMQ crashes on it (541); it is a reply to nobody",
        {
            "c.0": [],
            "c.1": [
                "basic.return reply_code=312 reply_text='NO_ROUTE' exchange='' "
                "routing_key='amq.rabbitmq.reply-to.#1' {} b'answer'"
            ],
        },
    ),
    "prefetch/flow not active": Difference(
        "the specification has it: deliveries pause",
        {"c.0": [], "c.1": ["channel.flow-ok active=False"]},
    ),
    "queues/declared with: x-delivery-limit 5": Difference(
        "classic queues have a delivery limit too; RabbitMQ has it for quorum queues only",
        {"c.1": ["queue.declare-ok queue='q' message_count=0 consumer_count=0"] * 2},
    ),
    "queues/declared with bad arguments: quorum": Difference(
        "there are no quorum queues yet, and saying so is better than pretending",
        {
            "c.0": [
                "connection.close 540 (50,10) NOT_IMPLEMENTED - x-queue-type 'quorum' is not supported yet",
                "gone",
            ],
            "c.1": [],
        },
    ),
    "exchanges/a hash binding of the same queue twice": Difference(
        "RabbitMQ forgets the queue when one of its two bindings goes; the other one still stands",
        {
            "c.1": [
                "exchange.declare-ok",
                "queue.declare-ok queue='q' message_count=0 consumer_count=0",
                "queue.bind-ok",
                "queue.bind-ok",
                "basic.get-ok delivery_tag=1 redelivered=False exchange='x' routing_key='k' message_count=0 {} b'1'",
                "basic.get-empty",
                "queue.unbind-ok",
                "basic.get-ok delivery_tag=2 redelivered=False exchange='x' routing_key='k' message_count=0 {} b'2'",
                "basic.get-empty",
            ]
        },
    ),
    f"publish/with expiration: <{'1' * 60}>60": Difference(
        "the same text, but RabbitMQ's has blanks in it and is cut at 255 bytes",
        {
            "c.1": [
                f"channel.close 406 (60,40) PRECONDITION_FAILED - invalid expiration '{'1' * 60}': "
                f"{{value_too_large,{'1' * 60}}}"
            ]
        },
    ),
    "replyto/a request carries a token and a reply comes back": Difference(
        "RabbitMQ returns a mandatory reply as unroutable although it delivers it",
        {"d.1": [REQUESTS, REQUEST]},
    ),
    "replyto/a reply is confirmed": Difference(
        "RabbitMQ returns a mandatory reply as unroutable although it delivers it",
        {"d.1": [REQUESTS, REQUEST, "confirm.select-ok", "confirms: 1 ack"]},
    ),
    "replyto/several replies to one request": Difference(
        "RabbitMQ gives all direct replies the delivery tag 1; the specification has them counted",
        {
            "c.1": [
                "basic.consume-ok consumer_tag='replies'",
                *(
                    f"basic.deliver consumer_tag='replies' delivery_tag={tag} redelivered=False exchange='' "
                    f"routing_key='amq.rabbitmq.reply-to.#1' {{}} b'{tag}'"
                    for tag in (1, 2, 3)
                ),
            ]
        },
    ),
    "routing/headers match: nested int letters": Difference(
        "one rule for numbers: RabbitMQ compares them by value, but inside of arrays by width too",
        {
            "c.1": [
                "queue.declare-ok queue='q' message_count=0 consumer_count=0",
                "queue.bind-ok",
                "basic.get-ok delivery_tag=1 redelivered=False exchange='amq.headers' routing_key='' message_count=0 "
                "{headers={a [I:1]}} b''",
                "basic.get-empty",
            ]
        },
    ),
    "streams/read from nonsense: a word": Difference(
        CLIENT_S_FAULT,
        {
            "c.0": [],
            "c.1": [
                *STREAM_READ[:4],
                "channel.close 406 (60,20) PRECONDITION_FAILED - invalid arg 'x-stream-offset' for queue 's' "
                "in vhost '/': "
                '{invalid_stream_offset_arg,{longstr,<<"soon">>}}',
            ],
        },
    ),
    "streams/nacked": Difference(READERS_CLOSE_SO, {"c.0": [], "c.1": [*STREAM_READ, "basic.qos-ok"]}),
    "streams/rejected": Difference(READERS_CLOSE_SO, {"c.0": [], "c.1": [*STREAM_READ, "basic.qos-ok"]}),
}
