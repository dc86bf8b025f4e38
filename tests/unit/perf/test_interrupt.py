"""Ctrl-C while something is declared or deleted: it waits for the end, is not lost, and then works as before."""

import signal

import pytest

from penstock.perf.interrupt import uninterrupted


def interrupted_work(done):
    with uninterrupted():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        done.append("all")


def test_an_interrupt_is_kept_until_the_work_is_whole():
    done: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        interrupted_work(done)
    assert done == ["all"]


def test_an_inner_stretch_hands_the_interrupt_to_the_outer_one():
    with pytest.raises(KeyboardInterrupt), uninterrupted(), uninterrupted():
        signal.raise_signal(signal.SIGINT)


def test_an_error_inside_is_raised_and_ctrl_c_works_again():
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(ValueError, match="broken"), uninterrupted():
        raise ValueError("broken")
    assert signal.getsignal(signal.SIGINT) is before
