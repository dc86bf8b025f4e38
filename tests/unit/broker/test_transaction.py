"""Transactions, through real channels: nothing happens before the commit, and after a rollback nothing has."""

from __future__ import annotations

import pytest

from penstock.amqp.close import CloseChannel
from penstock.amqp.method import (
    BasicGet,
    BasicGetOk,
    BasicRecover,
    BasicRecoverOk,
    BasicReturn,
    ChannelClose,
    ChannelCloseOk,
    ConfirmSelect,
    ConfirmSelectOk,
    Method,
    QueueDelete,
    QueueDeleteOk,
    TxCommit,
    TxCommitOk,
    TxRollback,
    TxRollbackOk,
    TxSelect,
    TxSelectOk,
)
from penstock.amqp.table import Table
from penstock.broker.queue import Queue
from penstock.broker.transaction import POSTED_BYTES, TRANSACTION_BYTES_MAX, Posted, Transaction
from tests.unit.fakes import FakePeer, House, publish_method


class Bank:
    """Channel 1 is in transactions, channel 2 is not."""

    def __init__(self, arguments: Table | None = None) -> None:
        self.house = House()
        self.house.clock.advance(1)
        self.queue: Queue = self.house.queue("q", arguments=arguments or {})
        self.peer: FakePeer = self.house.peer()
        self.channel = self.peer.open(1)
        self.peer.open(2)
        assert self.peer.ask(1, TxSelect()) == [TxSelectOk()]

    def publish(self, *bodies: bytes, number: int = 1) -> list[Method]:
        self.peer.publish(number, "q", *bodies)
        return self.peer.methods()

    def get(self, count: int = 1) -> None:
        for _ in range(count):
            (reply,) = self.peer.ask(1, BasicGet("q"))
            assert isinstance(reply, BasicGetOk)

    def commit(self) -> list[Method]:
        return self.peer.ask(1, TxCommit())

    def counts(self) -> tuple[int, int]:
        return self.queue.count(), len(self.queue.unacked)


@pytest.fixture
def bank() -> Bank:
    return Bank()


def closed(replies: list[Method]) -> tuple[int, str, tuple[int, int]]:
    close = replies[-1]
    assert isinstance(close, ChannelClose)
    return close.reply_code, close.reply_text, (close.class_id, close.method_id)


def test_publishes_arrive_with_the_commit(bank: Bank) -> None:
    assert bank.publish(b"0", b"1") == []
    assert bank.counts() == (0, 0)
    assert bank.commit() == [TxCommitOk()]
    assert bank.counts() == (2, 0)
    assert bank.commit() == [TxCommitOk()]
    assert bank.counts() == (2, 0)


def test_rolled_back_publishes_never_arrive(bank: Bank) -> None:
    bank.publish(b"0")
    assert bank.peer.ask(1, TxRollback()) == [TxRollbackOk()]
    assert bank.commit() == [TxCommitOk()]
    assert bank.counts() == (0, 0)


def test_commit_ok_waits_for_the_queue(bank: Bank) -> None:
    bank.publish(b"0")
    bank.queue.mailbox.hold()
    assert bank.commit() == []
    bank.queue.mailbox.release()
    assert bank.peer.methods() == [TxCommitOk()]


def test_what_follows_a_commit_waits_for_its_end(bank: Bank) -> None:
    bank.publish(b"0")
    bank.queue.mailbox.hold()
    bank.commit()
    bank.peer.tell(1, TxSelect())
    assert bank.peer.methods() == []
    bank.queue.mailbox.release()
    assert bank.peer.methods() == [TxCommitOk(), TxSelectOk()]


@pytest.mark.parametrize(("requeue", "after"), [(True, (1, 0)), (False, (0, 0))])
def test_acks_take_effect_with_the_commit(requeue: bool, after: tuple[int, int]) -> None:
    bank = Bank()
    bank.publish(b"0", b"1", number=2)
    bank.get(2)
    bank.peer.ack(1, 1)
    bank.peer.nack(1, 2, requeue=requeue)
    bank.house.run_until_idle()
    assert bank.counts() == (0, 2)
    bank.commit()
    assert bank.counts() == after


def test_after_a_rollback_the_tags_are_unacked_again_and_nothing_is_redelivered(bank: Bank) -> None:
    bank.publish(b"0", b"1", b"2", number=2)
    bank.get(3)
    bank.peer.ack(1, 2, multiple=True)
    bank.peer.nack(1, 3)
    assert bank.peer.ask(1, TxRollback()) == [TxRollbackOk()]
    assert list(bank.channel.deliveries.unacked) == [1, 2, 3]
    assert bank.counts() == (0, 3)
    bank.peer.ack(1, 0, multiple=True)
    assert bank.commit() == [TxCommitOk()]
    assert bank.counts() == (0, 0)


def test_a_tag_acked_twice_in_a_transaction_is_unknown_at_once(bank: Bank) -> None:
    bank.publish(b"0", number=2)
    bank.get()
    bank.peer.ack(1, 1)
    bank.peer.ack(1, 1)
    assert closed(bank.peer.methods()) == (406, "PRECONDITION_FAILED - unknown delivery tag 1", (60, 80))
    assert bank.counts() == (1, 0)  # the ack was never committed


def test_recover_spares_what_was_acked_in_the_transaction(bank: Bank) -> None:
    bank.publish(b"0", b"1", number=2)
    bank.get(2)
    bank.peer.ack(1, 1)
    assert bank.peer.ask(1, BasicRecover(True)) == [BasicRecoverOk()]
    assert bank.counts() == (1, 1)
    bank.commit()
    assert bank.counts() == (1, 0)


def test_prefetch_has_room_again_only_with_the_commit(bank: Bank) -> None:
    bank.channel.prefetch = 1
    bank.publish(b"0", b"1", number=2)
    bank.peer.consume(1)
    assert bank.peer.bodies() == [b"0"]
    bank.peer.ack(1, 1)
    assert bank.peer.bodies() == []
    bank.peer.tell(1, TxCommit())
    assert bank.peer.bodies() == [b"1"]


def test_closing_the_channel_rolls_back(bank: Bank) -> None:
    bank.publish(b"0", number=2)
    bank.get()
    bank.peer.ack(1, 1)
    bank.publish(b"1")
    assert bank.peer.ask(1, ChannelClose(200, "bye")) == [ChannelCloseOk()]
    assert bank.counts() == (1, 0)


def test_losing_the_connection_rolls_back(bank: Bank) -> None:
    bank.publish(b"0", number=2)
    bank.get()
    bank.peer.ack(1, 1)
    bank.publish(b"1")
    bank.peer.reader.shut_down()
    bank.house.run_until_idle()
    assert bank.counts() == (1, 0)


def test_a_missing_exchange_is_an_error_at_once(bank: Bank) -> None:
    bank.publish(b"0")
    bank.peer.publish(1, "q", b"x", exchange="nope")
    assert closed(bank.peer.methods())[:2] == (404, "NOT_FOUND - no exchange 'nope' in vhost '/'")
    assert bank.counts() == (0, 0)


def test_an_unroutable_mandatory_message_comes_back_at_the_commit_before_its_ok(bank: Bank) -> None:
    bank.peer.publish(1, "nowhere", b"x", mandatory=True)
    assert bank.peer.methods() == []
    assert bank.commit() == [BasicReturn(312, "NO_ROUTE", "", "nowhere"), TxCommitOk()]


def test_a_queue_deleted_before_the_commit_does_not_keep_it_waiting(bank: Bank) -> None:
    bank.publish(b"0")
    assert bank.peer.ask(2, QueueDelete("q")) == [QueueDeleteOk(0)]
    assert bank.commit() == [TxCommitOk()]


def test_a_queue_that_refuses_a_part_of_a_transaction_ends_the_channel() -> None:
    bank = Bank({"x-max-length": 1, "x-overflow": "reject-publish"})
    bank.publish(b"0", b"1")
    assert closed(bank.commit()) == (406, "PRECONDITION_FAILED - partial tx completion", (90, 20))
    assert bank.counts() == (1, 0)


def test_a_time_to_live_begins_with_the_commit() -> None:
    bank = Bank({"x-message-ttl": 1000})
    bank.publish(b"0")
    bank.house.clock.advance(5)
    bank.commit()
    bank.house.clock.advance(0.999)
    bank.house.run_until_idle()
    assert bank.counts() == (1, 0)


@pytest.mark.parametrize("method", [TxCommit(), TxRollback()])
def test_a_channel_without_transactions_has_nothing_to_commit(method: Method) -> None:
    bank = Bank()
    assert closed(bank.peer.ask(2, method))[:2] == (406, "PRECONDITION_FAILED - channel is not transactional")


def test_transactions_and_confirms_exclude_each_other(bank: Bank) -> None:
    refusal = "PRECONDITION_FAILED - cannot switch from tx to confirm mode"
    assert closed(bank.peer.ask(1, ConfirmSelect())) == (406, refusal, (85, 10))
    assert bank.peer.ask(2, ConfirmSelect()) == [ConfirmSelectOk()]
    refusal = "PRECONDITION_FAILED - cannot switch from confirm to tx mode"
    assert closed(bank.peer.ask(2, TxSelect())) == (406, refusal, (90, 10))


def test_a_transaction_holds_so_many_bytes_and_not_one_more() -> None:
    transaction = Transaction(1)
    publish = publish_method(1, "q")
    half = bytes(TRANSACTION_BYTES_MAX // 2 - POSTED_BYTES)
    transaction.post(Posted((publish, half), (), -1, None))
    transaction.post(Posted((publish, half), (), -1, None))
    with pytest.raises(CloseChannel) as raised:
        transaction.post(Posted((publish, b""), (), -1, None))
    assert raised.value.code == 406
    assert str(TRANSACTION_BYTES_MAX) in raised.value.text


@pytest.mark.parametrize("end", ["begin_commit", "roll_back"])
def test_bytes_are_counted_anew_after_each_end(end: str) -> None:
    transaction = Transaction(1)
    publish = publish_method(1, "q")
    transaction.post(Posted((publish, bytes(TRANSACTION_BYTES_MAX - POSTED_BYTES)), (), -1, None))
    getattr(transaction, end)()
    transaction.post(Posted((publish, b"x"), (), -1, None))
    assert len(transaction.begin_commit()) == 1
