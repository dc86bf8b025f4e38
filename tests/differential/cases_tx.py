"""Cases: transactions, alone and against confirms."""

from __future__ import annotations

from penstock.amqp.method import (
    BasicAck,
    BasicNack,
    BasicReject,
    ChannelClose,
    ConfirmSelect,
    Method,
    QueueDelete,
    TxCommit,
    TxRollback,
    TxSelect,
)
from tests.differential.player import Area
from tests.differential.script import Channel, Script

area = Area("tx")


def transactional(s: Script, *bodies: bytes) -> Channel:
    """Channel 1 in tx mode; channel 2 looks on."""
    watcher = s.channel(2)
    watcher.declare("q")
    watcher.fill("q", *bodies)
    c = s.channel()
    c.ask(TxSelect())
    return c


MODES: dict[str, tuple[Method, ...]] = {
    "select": (TxSelect(),),
    "select twice": (TxSelect(), TxSelect()),
    "commit without select": (TxCommit(),),
    "rollback without select": (TxRollback(),),
    "empty commit": (TxSelect(), TxCommit()),
    "empty rollback": (TxSelect(), TxRollback()),
    "select, then confirm": (TxSelect(), ConfirmSelect()),
    "select, then confirm nowait": (TxSelect(), ConfirmSelect(nowait=True)),
    "confirm, then select": (ConfirmSelect(), TxSelect()),
    "confirm, then commit": (ConfirmSelect(), TxCommit()),
    "confirm, then rollback": (ConfirmSelect(), TxRollback()),
    "commit twice": (TxSelect(), TxCommit(), TxCommit()),
}


@area.each({name: (methods,) for name, methods in MODES.items()})
def modes(s: Script, methods: tuple[Method, ...]) -> None:
    c = s.channel()
    for method in methods:
        c.ask(method)


@area.case
def publishes_appear_at_commit(s: Script) -> None:
    c = transactional(s)
    c.publish("q", b"1")
    c.publish("q", b"2")
    c.barrier()
    s.channel(2).get("q")
    c.ask(TxCommit())
    s.until_count("q", 2)
    s.channel(2).drain("q")


@area.case
def publishes_vanish_at_rollback(s: Script) -> None:
    c = transactional(s)
    c.publish("q", b"1")
    c.ask(TxRollback())
    c.publish("q", b"2")
    c.ask(TxCommit())
    s.until_count("q", 1)
    s.channel(2).drain("q")


@area.case
def publishes_vanish_with_the_channel(s: Script) -> None:
    c = transactional(s)
    c.publish("q", b"1")
    c.ask(ChannelClose(200, "bye"))
    s.channel(2).drain("q")


@area.case
def publishes_vanish_with_an_error(s: Script) -> None:
    c = transactional(s)
    c.publish("q", b"1")
    c.publish("q", b"2", "nope")
    c.ask(TxCommit())
    s.channel(2).drain("q")


@area.case
def a_missing_exchange_is_seen_at_once(s: Script) -> None:
    c = transactional(s)
    c.publish("q", b"1", "nope")
    c.barrier()


@area.case
def a_bad_expiration_is_seen_at_once(s: Script) -> None:
    c = transactional(s)
    c.publish("q", b"1", expiration="abc")
    c.barrier()


@area.case
def returns_come_at_commit_before_commit_ok(s: Script) -> None:
    c = transactional(s)
    c.publish("nope", b"1", mandatory=True)
    c.barrier()
    c.ask(TxCommit())


@area.case
def no_return_after_rollback(s: Script) -> None:
    c = transactional(s)
    c.publish("nope", b"1", mandatory=True)
    c.ask(TxRollback())
    c.ask(TxCommit())


@area.case
def a_message_is_routed_when_published(s: Script) -> None:
    c = transactional(s)
    s.channel(2).bind("q", "amq.direct", "k")
    c.publish("k", b"1", "amq.direct", mandatory=True)
    c.barrier()
    s.channel(2).declare("r")
    s.channel(2).bind("r", "amq.direct", "k")
    c.ask(TxCommit())
    s.until_count("q", 1)
    s.channel(2).drain("r")


@area.case
def a_queue_deleted_before_commit(s: Script) -> None:
    c = transactional(s)
    c.publish("q", b"1", mandatory=True)
    c.barrier()
    s.channel(2).ask(QueueDelete("q"))
    c.ask(TxCommit())


@area.case
def acks_count_at_commit(s: Script) -> None:
    c = transactional(s, b"1", b"2")
    c.get("q", no_ack=False)
    c.get("q", no_ack=False)
    c.send(BasicAck(2, True))
    c.ask(TxCommit())
    c.ask(ChannelClose(200, "bye"))
    s.channel(2).drain("q")


@area.case
def acks_without_commit_do_not_count(s: Script) -> None:
    c = transactional(s, b"1", b"2")
    c.get("q", no_ack=False)
    c.get("q", no_ack=False)
    c.send(BasicAck(2, True))
    c.ask(ChannelClose(200, "bye"))
    s.until_count("q", 2)
    s.channel(2).drain("q")


@area.case
def acks_are_taken_back_at_rollback(s: Script) -> None:
    c = transactional(s, b"1")
    c.get("q", no_ack=False)
    c.send(BasicAck(1))
    c.ask(TxRollback())
    c.send(BasicAck(1))
    c.ask(TxCommit())
    c.get("q")


@area.case
def a_rollback_redelivers_nothing(s: Script) -> None:
    c = transactional(s, b"1")
    c.consume("q")
    c.deliveries(1)
    c.send(BasicAck(1))
    c.ask(TxRollback())
    c.barrier("q")
    c.send(BasicReject(1, True))
    c.ask(TxCommit())
    c.deliveries(1)


@area.case
def an_unknown_tag_is_seen_at_once(s: Script) -> None:
    c = transactional(s)
    c.send(BasicAck(5))
    c.barrier()


@area.case
def a_tag_twice_in_a_transaction(s: Script) -> None:
    c = transactional(s, b"1")
    c.get("q", no_ack=False)
    c.send(BasicAck(1))
    c.send(BasicAck(1))
    c.barrier()


@area.case
def a_reject_counts_at_commit(s: Script) -> None:
    c = transactional(s, b"1")
    c.get("q", no_ack=False)
    c.send(BasicReject(1, True))
    c.barrier()
    s.channel(2).get("q")
    c.ask(TxCommit())
    s.until_count("q", 1)
    s.channel(2).drain("q")


@area.case
def a_nack_of_many_counts_at_commit(s: Script) -> None:
    c = transactional(s, b"1", b"2", b"3")
    for _ in range(3):
        c.get("q", no_ack=False)
    c.send(BasicNack(2, True, True))
    c.ask(TxCommit())
    s.until_count("q", 2)
    s.channel(2).drain("q")


@area.case
def acks_and_publishes_together(s: Script) -> None:
    c = transactional(s, b"1")
    c.get("q", no_ack=False)
    c.publish("q", b"2")
    c.send(BasicAck(1))
    c.publish("q", b"3")
    c.ask(TxCommit())
    s.until_count("q", 2)
    s.channel(2).drain("q")


@area.case
def acks_and_publishes_rolled_back_together(s: Script) -> None:
    c = transactional(s, b"1")
    c.get("q", no_ack=False)
    c.publish("q", b"2")
    c.send(BasicAck(1))
    c.ask(TxRollback())
    c.ask(ChannelClose(200, "bye"))
    s.until_count("q", 1)
    s.channel(2).drain("q")


@area.case
def what_was_acked_before_select_is_gone(s: Script) -> None:
    c = s.channel()
    c.declare("q")
    c.fill("q", b"1", b"2")
    c.get("q", no_ack=False)
    c.get("q", no_ack=False)
    c.send(BasicAck(1))
    c.ask(TxSelect())
    c.send(BasicAck(2))
    c.ask(TxRollback())
    c.ask(ChannelClose(200, "bye"))
    s.until_count("q", 1)
    s.channel(2).drain("q")


@area.case
def a_full_queue_that_rejects_fails_the_commit(s: Script) -> None:
    c = s.channel()
    c.declare("q", x_max_length=1, x_overflow="reject-publish")
    c.fill("q", b"1")
    c.ask(TxSelect())
    c.publish("q", b"2")
    c.ask(TxCommit())
    s.channel(2).drain("q")
