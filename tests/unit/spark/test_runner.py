"""The runner: which ends of it are told on stderr, and that other processes are left as they are."""

from __future__ import annotations

import pickle
import signal
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from itertools import pairwise
from types import ModuleType

import pytest

from penstock.spark.runner import RUNNER, leave_in_order
from penstock.spark.source import PenstockDataSource


@pytest.fixture
def main(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """This process as if it had been started otherwise."""
    module = ModuleType("__main__")
    module.__spec__ = ModuleSpec(RUNNER, None)
    monkeypatch.setitem(sys.modules, "__main__", module)
    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)
    before = signal.getsignal(signal.SIGTERM)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield module
    signal.signal(signal.SIGTERM, before)


def shown(capsys: pytest.CaptureFixture[str], *errors: BaseException) -> str:
    """What is printed at the end of a process when each of these is raised while the one before is handled."""
    for before, error in pairwise(errors):
        error.__context__ = before
    sys.excepthook(type(errors[-1]), errors[-1], None)
    return capsys.readouterr().err


@pytest.mark.parametrize("first", [EOFError(), SystemExit(0), BrokenPipeError()])
def test_that_spark_hung_up_is_no_error(
    main: ModuleType, capsys: pytest.CaptureFixture[str], first: BaseException
) -> None:
    leave_in_order()
    assert shown(capsys, first, BrokenPipeError(), BrokenPipeError()) == ""


def test_the_process_ends_in_order_as_soon_as_it_has_the_source(main: ModuleType) -> None:
    pickle.loads(pickle.dumps(PenstockDataSource({"uri": "amqp://127.0.0.1", "stream": "s"})))
    assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    assert sys.excepthook is not sys.__excepthook__


def test_an_error_that_spark_could_not_be_told_of_is_shown(
    main: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    leave_in_order()
    assert "ValueError: broken" in shown(capsys, ValueError("broken"), BrokenPipeError())
    assert "EOFError" in shown(capsys, EOFError())


@pytest.mark.parametrize("name", [None, "pytest"])
def test_another_process_is_left_as_it_is(main: ModuleType, name: str | None) -> None:
    main.__spec__ = ModuleSpec(name, None) if name is not None else None
    leave_in_order()
    assert sys.excepthook is sys.__excepthook__
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
