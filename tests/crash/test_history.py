"""The checker of the crash tests is fed histories that cannot be, and complains; and some that can, and does not."""

from __future__ import annotations

import pytest

from tests.crash.history import Found, History, Kind, Line

KINDS = (
    Kind("q"),
    Kind("other"),
    Kind("full", refuses=True),
    Kind("source", dead_letters_to="dead"),
    Kind("fleeting", drops=True, dead_letters_to="dead"),
    Kind("short", drops=True),
    Kind("dead", ordered=False),
)
A, B, C = (1, 1), (1, 2), (1, 3)


@pytest.fixture
def history() -> History:
    return History(KINDS)


def found(*keys: tuple[int, int], redelivered: bool = False, priority: int = 0) -> list[Found]:
    return [Found(key, priority, redelivered) for key in keys]


def only_complaint(history: History) -> str:
    (complaint,) = history.complaints
    return complaint


def publish(history: History, *keys: tuple[int, int], queue: str = "q") -> None:
    for key in keys:
        history.published(key, (queue,))
        history.confirmed(key)


def test_a_broker_that_keeps_everything_is_not_complained_about(history: History) -> None:
    publish(history, A, B)
    history.published(C, ("q",))
    history.restarted()
    history.check({"q": found(A, B)})
    history.restarted()
    history.check({"q": found(A, B, redelivered=True)})
    assert history.complaints == []


def test_a_confirmed_message_that_is_lost_is_noticed(history: History) -> None:
    publish(history, A, B)
    history.restarted()
    history.check({"q": found(B)})
    assert "1-1 in q was confirmed and never settled, and is not there" in only_complaint(history)


def test_a_message_that_is_lost_in_one_of_two_queues_is_noticed(history: History) -> None:
    history.published(A, ("q", "other"))
    history.confirmed(A)
    history.restarted()
    history.check({"q": found(A), "other": []})
    assert "1-1 in other" in only_complaint(history)


def test_an_unconfirmed_or_transient_message_may_be_lost(history: History) -> None:
    history.published(A, ("q",))
    history.published(B, ("q",), persistent=False)
    history.confirmed(B)
    history.restarted()
    history.check({"q": []})
    assert history.complaints == []


def test_an_unconfirmed_message_that_was_found_is_owed_from_then_on(history: History) -> None:
    history.published(A, ("q",))
    history.restarted()
    history.check({"q": found(A)})
    history.restarted()
    history.check({"q": []})
    assert "not there" in only_complaint(history)


def test_a_message_that_is_there_twice_is_noticed(history: History) -> None:
    publish(history, A)
    history.restarted()
    history.check({"q": found(A, A)})
    assert "is there 2 times" in history.report()


def test_a_message_out_of_order_is_noticed(history: History) -> None:
    publish(history, A, B)
    history.restarted()
    history.check({"q": found(B, A)})
    assert "1-1 in q is behind message 1-2" in only_complaint(history)


def test_publishers_may_be_mixed_in_any_order(history: History) -> None:
    publish(history, A, (2, 7), B)
    history.restarted()
    history.check({"q": found((2, 7), A, B)})
    assert history.complaints == []


def test_priorities_in_the_wrong_order_are_noticed(history: History) -> None:
    history.published(A, ("q",), priority=1)
    history.published(B, ("q",), priority=4)
    history.restarted()
    history.check({"q": found(A, priority=1) + found(B, priority=4)})
    assert "has priority 4 and is behind one with 1" in only_complaint(history)


def test_a_changed_priority_is_noticed(history: History) -> None:
    history.published(A, ("q",), priority=4)
    history.restarted()
    history.check({"q": found(A, priority=1)})
    assert "published with priority 4" in only_complaint(history)


def test_a_message_that_nobody_sent_is_noticed(history: History) -> None:
    history.restarted()
    history.check({"q": found(A)})
    assert "never published" in only_complaint(history)


def test_a_message_in_the_wrong_queue_is_noticed(history: History) -> None:
    publish(history, A)
    history.restarted()
    history.check({"q": found(A), "other": found(A)})
    assert "1-1 in other is there" in only_complaint(history)


def test_an_acked_message_may_come_back_redelivered(history: History) -> None:
    publish(history, A)
    history.delivered("q", A, 0, False, Line())
    history.acked("q", A)
    history.restarted()
    history.check({"q": found(A, redelivered=True)})
    assert history.complaints == []


def test_an_acked_message_that_comes_back_as_new_is_noticed(history: History) -> None:
    publish(history, A)
    history.delivered("q", A, 0, False, Line())
    history.acked("q", A)
    history.restarted()
    history.check({"q": found(A)})
    assert "was acked before, and comes without the redelivered flag" in only_complaint(history)


def test_an_acked_message_that_was_gone_and_comes_back_is_noticed(history: History) -> None:
    publish(history, A)
    history.delivered("q", A, 0, False, Line())
    history.acked("q", A)
    history.restarted()
    history.check({"q": []})
    history.restarted()
    history.check({"q": found(A, redelivered=True)})
    assert "settled and gone" in only_complaint(history)


def test_an_acked_message_that_came_back_is_owed_again(history: History) -> None:
    publish(history, A)
    history.delivered("q", A, 0, False, Line())
    history.acked("q", A)
    history.restarted()
    history.check({"q": found(A, redelivered=True)})
    history.restarted()
    history.check({"q": []})
    assert "not there" in only_complaint(history)


def test_an_acked_message_that_comes_back_after_a_clean_stop_is_noticed(history: History) -> None:
    publish(history, A)
    history.delivered("q", A, 0, False, Line())
    history.acked("q", A)
    history.restarted(clean=True)
    history.check({"q": found(A, redelivered=True)})
    assert "settled and gone" in only_complaint(history)


def test_a_delivery_to_two_consumers_at_once_is_noticed(history: History) -> None:
    publish(history, A)
    history.delivered("q", A, 0, False, Line())
    history.delivered("q", A, 0, True, Line())
    assert "while another consumer has it" in only_complaint(history)


def test_a_delivery_after_the_ack_is_noticed(history: History) -> None:
    publish(history, A)
    history.delivered("q", A, 0, False, Line())
    history.acked("q", A)
    history.delivered("q", A, 0, True, Line())
    assert "after it was acked" in only_complaint(history)


def test_a_requeued_message_that_comes_as_new_is_noticed(history: History) -> None:
    publish(history, A)
    history.delivered("q", A, 0, False, Line())
    history.requeued("q", A)
    history.delivered("q", A, 0, False, Line())
    assert "without the redelivered flag" in only_complaint(history)


def test_new_messages_out_of_order_are_noticed(history: History) -> None:
    line = Line()
    publish(history, A, B)
    history.delivered("q", B, 0, False, line)
    history.delivered("q", A, 0, False, line)
    assert "1-1 in q was delivered behind message 1-2" in only_complaint(history)


def test_a_nack_from_a_queue_that_never_refuses_is_noticed(history: History) -> None:
    history.published(A, ("q",))
    history.nacked(A)
    assert "none of q may refuse" in only_complaint(history)


def test_a_refused_message_that_is_there_is_noticed(history: History) -> None:
    history.published(A, ("full",))
    history.nacked(A)
    history.restarted()
    history.check({"full": found(A)})
    assert "1-1 in full is there" in only_complaint(history)


def test_a_message_nacked_because_of_the_disk_may_be_there_or_not() -> None:
    history = History(KINDS, faulty=True)
    history.published(A, ("q",))
    history.nacked(A)
    history.published(B, ("q",))
    history.nacked(B)
    history.restarted()
    history.check({"q": found(B)})
    assert history.complaints == []


def test_a_second_confirm_is_noticed(history: History) -> None:
    publish(history, A)
    history.confirmed(A)
    assert "nothing of the kind was under way" in only_complaint(history)


def test_a_rolled_back_message_that_is_there_is_noticed(history: History) -> None:
    history.published(A, ("q",))
    history.withdrawn(A)
    history.restarted()
    history.check({"q": found(A)})
    assert "never published" in only_complaint(history)


def test_a_message_of_a_deleted_queue_in_the_next_one_of_its_name_is_noticed(history: History) -> None:
    publish(history, A)
    history.excuse("q")
    history.deleted("q")
    publish(history, B)
    history.restarted()
    history.check({"q": found(A, B)})
    assert "1-1 in q is there" in only_complaint(history)


def test_a_purged_message_may_be_there_or_not_and_a_later_one_must(history: History) -> None:
    publish(history, A)
    history.excuse("q")
    publish(history, B)
    history.restarted()
    history.check({"q": []})
    assert "1-2 in q" in only_complaint(history)


def test_a_rejected_message_is_among_the_dead_letters_or_still_in_its_queue(history: History) -> None:
    publish(history, A, B, queue="source")
    for key in (A, B):
        history.delivered("source", key, 0, False, Line())
        history.rejected("source", key)
    history.restarted()
    history.check({"source": found(A, redelivered=True), "dead": found(B)})
    assert history.complaints == []
    history.restarted()
    history.check({"source": found(A, redelivered=True), "dead": []})
    assert "1-2 in dead" in only_complaint(history)


def test_a_rejected_message_in_neither_queue_is_noticed(history: History) -> None:
    publish(history, A, queue="source")
    history.delivered("source", A, 0, False, Line())
    history.rejected("source", A)
    history.restarted()
    lost: dict[str, list[Found]] = {"source": [], "dead": []}
    assert history.missing_letters(lost)
    history.check(lost)
    assert "left for dead, where it is not" in only_complaint(history)


def test_an_acked_message_needs_no_letter(history: History) -> None:
    publish(history, A, queue="source")
    publish(history, B, queue="fleeting")
    for queue, key in (("source", A), ("fleeting", B)):
        history.delivered(queue, key, 0, False, Line())
        history.acked(queue, key)
    history.restarted()
    history.check({"source": [], "fleeting": [], "dead": []})
    assert history.complaints == []


def test_a_dead_letter_without_a_reject_is_noticed(history: History) -> None:
    publish(history, A, queue="source")
    history.restarted()
    history.check({"source": [], "dead": found(A)})
    assert "1-1 in dead is there, but it was settled and gone, or never published" in history.report()
    assert "1-1 in source was confirmed and never settled" in history.report()


def test_an_expired_message_is_among_the_dead_letters_at_last(history: History) -> None:
    publish(history, A, B, queue="fleeting")
    history.restarted()
    history.check({"fleeting": found(A), "dead": found(B)})
    history.restarted()
    history.check({"fleeting": [], "dead": found(A) + found(B, redelivered=True)})
    assert history.complaints == []
    history.restarted()
    history.check({"fleeting": [], "dead": found(A, redelivered=True)})
    assert "1-2 in dead" in only_complaint(history)


def test_an_expired_message_in_neither_queue_is_noticed(history: History) -> None:
    publish(history, A, queue="fleeting")
    history.restarted()
    history.check({"fleeting": [], "dead": []})
    assert "left for dead, where it is not" in only_complaint(history)


def test_a_queue_that_drops_may_have_lost_anything_but_not_the_order(history: History) -> None:
    publish(history, A, B, C, queue="short")
    history.restarted()
    history.check({"short": found(C, B)})
    assert "1-2 in short is behind message 1-3" in only_complaint(history)
