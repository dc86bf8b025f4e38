"""Work of the queue source that is done ahead: one at a time, waited for, and its error is not lost."""

from __future__ import annotations

import threading
from functools import partial

import pytest

from penstock.spark.ahead import Ahead


def test_what_is_done_ahead_is_done_when_it_was_waited_for():
    ahead, go = Ahead(), threading.Event()
    done: list[int] = []

    def work() -> None:
        go.wait(60)
        done.append(1)

    assert ahead.wait()
    ahead.begin(work)
    assert ahead.busy
    assert not ahead.wait(0.01)
    go.set()
    assert ahead.wait()
    assert done == [1]
    assert not ahead.busy


def test_an_error_is_raised_once_by_the_next_who_waits():
    def work() -> None:
        raise ValueError("no")

    ahead = Ahead()
    ahead.begin(work)
    with pytest.raises(ValueError, match="no"):
        ahead.wait()
    assert ahead.wait()


def test_the_next_begins_when_the_one_before_has_ended():
    ahead = Ahead()
    order: list[int] = []
    for number in range(5):
        ahead.begin(partial(order.append, number))
    ahead.wait()
    assert order == [0, 1, 2, 3, 4]
