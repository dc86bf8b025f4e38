"""Benchmarks are run by hand, weeks apart: what they import must still be there, and their judgement must be right."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.wire.live import serve_environment

BENCH = Path(__file__).parents[2] / "bench"
# In one process, which costs a second: they share what they import.
IMPORT = "import importlib, sys\nfor name in sys.argv[1:]:\n    print(name)\n    importlib.import_module(name)\n"


@pytest.mark.skipif(find_spec("pyspark") is None, reason="some benchmarks need pyspark")
def test_every_benchmark_can_be_imported():
    names = sorted(path.stem for path in BENCH.glob("*.py"))
    command = [sys.executable, "-c", IMPORT, *names]
    run = subprocess.run(command, capture_output=True, text=True, cwd=BENCH, env=serve_environment(), check=False)
    assert run.returncode == 0, f"{run.stdout.split()[-1]}: {run.stderr}"
    assert run.stdout.split() == names


@pytest.mark.parametrize(
    ("ratios", "complaint"),
    [
        ([1.0, 1.02, 1.01, 0.99], ""),
        ([1.03, 1.03, 1.03, 1.03], "events take at least 3.0% of CPU per message, 2% is allowed"),
        ([1.0, 1.12, 0.98, 1.10], ""),  # 1.05 by chance: the standard error is 0.035
        ([1.04, 1.06, 1.05, 1.05], "events take at least 4.2% of CPU per message, 2% is allowed"),
        ([1.0], "too few pairs of windows to judge by, 1: --seconds must be more"),
        ([], "too few pairs of windows to judge by, 0: --seconds must be more"),
    ],
)
def test_events_are_too_dear_if_it_cannot_be_chance(
    monkeypatch: pytest.MonkeyPatch, ratios: list[float], complaint: str
):
    monkeypatch.syspath_prepend(str(BENCH))
    assert import_module("events").too_dear(ratios) == complaint


@pytest.mark.parametrize(("name", "words"), [("twin", ["kb", "kbb"]), ("twin", ["kbb"]), ("advise", ["kbb"])])
def test_a_name_that_nothing_has_is_told_before_anything_is_played(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, words: list[str]
):
    monkeypatch.syspath_prepend(str(BENCH))
    monkeypatch.setattr(sys, "argv", [name, *words])
    bench = import_module(name)
    monkeypatch.setattr(bench, "end_with_us", lambda: None)
    monkeypatch.setattr(bench, "run", lambda *given: pytest.fail("it is played"))
    with pytest.raises(SystemExit) as end:
        bench.main()
    assert end.value.code == 2
    assert ": kbb; there are " in capsys.readouterr().err


def test_advice_after_which_nothing_goes_through_is_not_good(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(BENCH))
    advise, measured = import_module("advise"), import_module("twinload").Measured
    (case,) = [one for one in advise.CASES if one.goal == "latency"]
    before = measured(1000.0, 50.0, 100.0, [0], [0], 0.0, 5.0)
    better, nothing = replace(before, p99_ms=10.0), replace(before, throughput=0.0, p99_ms=0.0)
    assert advise.Line(case, {}, before, better).is_good
    assert not advise.Line(case, {}, before, nothing).is_good


@pytest.mark.parametrize(
    ("predicted", "measured", "tuned", "shown", "right"),
    [
        (110.0, [90.0, 100.0, 130.0], False, "+10%", True),
        (130.0, [90.0, 100.0, 130.0], False, "+30% !", False),  # as one stretch was, but not the median
        (190.0, [90.0, 100.0, 130.0], False, "**+90%**", False),
        (190.0, [90.0, 100.0, 130.0], True, "**+90%**", True),  # what it was told is no prediction
        (5000.0, [0.0, 0.0], False, "**+inf%**", False),
    ],
)
def test_the_twin_is_wrong_if_a_prediction_is_far_from_the_median(
    monkeypatch: pytest.MonkeyPatch, predicted: float, measured: list[float], tuned: bool, shown: str, right: bool
):
    monkeypatch.syspath_prepend(str(BENCH))
    twin = import_module("twin")
    figure = twin.Figure("msg/s", predicted, measured, tuned)
    assert (figure.cells()[-1], twin.is_right([figure])) == (shown, right)
    assert twin.verdict([figure]).startswith(f"{int(right and not tuned)} of {int(not tuned)} predictions are within")


def test_only_what_comes_and_goes_within_a_turn_is_too_small_to_be_told(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(BENCH))
    twin = import_module("twin")
    assert not twin.Figure("held", 500.0, [0.0, 2.0], False).is_told
    assert twin.Figure("held", 5000.0, [0.0, 2.0], False).is_told
    assert twin.Figure("msg/s", 0.0, [0.0, 2.0], False).is_told


def test_a_p99_is_told_no_finer_than_threads_wake(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(BENCH))
    twin = import_module("twin")
    fine, coarse = (twin.Figure("p99 ms", predicted, [0.10, 0.16, 0.29], False) for predicted in (0.23, 0.27))
    assert (fine.cells()[-1], twin.is_right([fine])) == ("+44%, small", True)
    assert (coarse.cells()[-1], twin.is_right([coarse])) == ("+69% !", False)
    assert not twin.Figure("msg/s", 0.23, [0.16], False).is_near


def test_the_benchmark_of_one_event_fails_if_all_that_are_allowed_take_too_much():
    command = [sys.executable, str(BENCH / "events.py"), "each"]
    run = subprocess.run(command, capture_output=True, text=True, env=serve_environment(), check=False)
    cost = re.fullmatch(r"an event: [\d.]+ us of CPU; .* a second: ([\d.]+)% of a core\n", run.stdout)
    assert cost is not None, run.stdout + run.stderr
    assert run.returncode == int(float(cost[1]) > 2)
    assert bool(run.stderr) == bool(run.returncode)
