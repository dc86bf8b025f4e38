"""`penstock pipeline advise` on a real broker with a bad setting, and its one line where it cannot advise.

The broker syncs slowly on purpose, so that credit alone decides how many messages share a sync: what is measured then
does not depend on the machine. Spark is the tests' own session.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner, Result

from penstock.cli import commands
from penstock.console.site import Site, SiteError
from penstock.flow.twin import Consumers, Load, Plant, Publishers, Settings
from penstock.spark.advice.adviser import FILE, Advice, Study, advise
from penstock.spark.advice.applied import BEGUN, KEPT, TAKEN_BACK, Diary, now_ms
from penstock.spark.advice.change import apply
from penstock.spark.advice.clients import NO_CEILING, Clients, ask
from penstock.spark.advice.grid import grid
from penstock.spark.advice.knob import marks_of, put, row_of, value_of
from penstock.spark.advice.load import Model
from penstock.spark.advice.observed import observe
from penstock.spark.advice.sweep import Trial, sweep
from penstock.spark.complaint import Complaint
from penstock.spark.ledger import Ledger
from penstock.spark.ledger import replace as ledger_replace
from tests.spark.pipeline.advisetables import Pushing, tables_of
from tests.spark.pipeline.test_advise_words import PERSISTENT, loaded
from tests.spark.pipeline.test_flow_signals import JAVA, SPARK_S
from tests.wire.live import LiveBroker, ServeProcess, serve_environment
from tests.wire.waiting import wait_until

HOPS = ("credit.reader_channel", "credit.channel_queue", "credit.queue_store")
BAD = "20,10"
SLOW_SYNC = "faults.store_sync_delay_ms=40"
ENOUGH = 6000  # messages: with this credit and delay they take four seconds at least, so there are samples of as many
HTTP = re.compile(r"management (http://[^/]+)/")


@pytest.fixture(scope="module")
def badly_set(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    """A broker that lets 60 messages share a sync."""
    given = [word for hop in HOPS for word in ("--set", f"{hop}={BAD}")]
    process = ServeProcess(tmp_path_factory.mktemp("advise"), "--management", "127.0.0.1:0", "--set", SLOW_SYNC, *given)
    assert process.port, process.log
    yield process
    process.kill()


@pytest.fixture
def shared(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> SparkSession:
    """The command gets the tests' session, and does not stop it."""

    @contextmanager
    def opened(*arguments: Any, **config: Any) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr("penstock.spark.session.opened", opened)
    return spark


def run(*words: str) -> Result:
    return CliRunner().invoke(commands(), ["pipeline", "advise", *words], env={"COLUMNS": "300"})


def address(process: ServeProcess) -> str:
    found = HTTP.search(process.ready_line)
    assert found is not None
    return found[1].replace("http://", "http://guest:guest@")


def test_a_bad_credit_is_found_out_replaced_and_measured_to_be_better(
    badly_set: ServeProcess, shared: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    url = address(badly_set)
    made: list[Advice] = []

    def remembered(*given: Any) -> Advice:
        made.append(advise(*given))
        return made[0]

    monkeypatch.setattr("penstock.spark.advice.adviser.advise", remembered)
    with Pushing(badly_set.uri, "orders") as pushing:
        wait_until(lambda: pushing.published >= ENOUGH)
        tables_of(shared, badly_set.uri, tmp_path)
        where = ("--tables", str(tmp_path), "--management", url)
        result = run(*where, "--settings", "30", "--goal", "throughput", "--apply", "--measure", "3s")
    assert result.exit_code == 0, result.output
    advice = json.loads((tmp_path / FILE).read_text("utf-8"))
    option = advice["options"][0]
    assert option["throughput"] > advice["current"]["throughput"] * 1.5
    assert advice["current"]["settings"]["credit.queue_store"] == BAD
    assert "times the throughput" in option["why"]
    assert any("faults.store_sync_delay_ms is 40" in line for line in advice["cures"])
    # What was promised is there: the true ratio is six or so.
    assert advice["measured"]["after"]["throughput"] > advice["measured"]["before"]["throughput"] * 1.2
    assert not advice["applied"]["rolled_back"]
    site = Site(url)
    for name, value in advice["applied"]["settings"].items():
        now = site.get("settings", name)
        assert isinstance(now, dict)
        assert now["value"] == value != BAD
    assert_told(result.stdout, advice)
    assert advice["applied"]["settings"] == advice["applies"]["settings"]
    back = run(*where, "--undo")
    assert back.exit_code == 0
    assert f"= {BAD} again, instead of " in back.stdout
    assert {value_of(site, hop) for hop in HOPS} == {BAD}
    again = run(*where, "--undo")
    assert (again.exit_code, again.stderr.count("\n")) == (1, 1)
    assert again.stderr.startswith("penstock: nothing to undo")
    # For programs: the same as a document, and nothing else.
    monkeypatch.setattr("penstock.spark.advice.adviser.study", lambda *given: None)
    monkeypatch.setattr("penstock.spark.advice.adviser.advise", lambda *given: made[0])
    assert json.loads(run(*where, "--json").stdout)["options"] == advice["options"]


def assert_told(said: str, advice: dict[str, Any]) -> None:
    """What is printed for people is what the document says."""
    option, applied = advice["options"][0], advice["applied"]
    lines = [line.strip() for line in said.splitlines()]
    assert lines[0].startswith("Load: 1 publisher, persistent messages of 100 bytes, confirms in a window of ")
    head = next(line.split() for line in lines if line.startswith("setting "))
    assert head == ["setting", "messages/s", "p99", "held"]
    rows = {
        line.split()[0]: line for line in lines if line.split()[:1] in (["measured"], ["predicted"], ["throughput"])
    }
    assert f"{advice['observed']['throughput']:,.0f}" in rows["measured"]
    assert f"{advice['current']['throughput']:,.0f}" in rows["predicted"]
    name, value = next(iter(option["settings"].items()))
    assert f"{name} = {value}" in rows["throughput"]
    assert f"{option['throughput']:,.0f}" in rows["throughput"]
    assert f"For throughput: {option['why']}" in lines
    assert "faults.store_sync_delay_ms is 40: a stage is slowed down on purpose; end that first." in lines
    shown = ", ".join(f"{name} = {value}" for name, value in applied["settings"].items())
    assert f"Set: {shown}. Credit counts until the broker stops." in lines
    assert lines[-1] == applied["sentence"]
    assert lines[-1].startswith("Measured: ")


@pytest.mark.timeout(600)
def test_ctrl_c_while_a_change_is_measured_leaves_the_old_settings_and_one_line(
    badly_set: ServeProcess, spark: SparkSession, tmp_path: Path
):
    url = address(badly_set)
    site = Site(url)

    def are_set() -> set[str]:
        return {value_of(site, hop) for hop in HOPS}

    with Pushing(badly_set.uri, "orders") as pushing:
        begun = pushing.published
        wait_until(lambda: pushing.published >= begun + 2 * ENOUGH)
        tables_of(spark, badly_set.uri, tmp_path)
        where = ("--tables", str(tmp_path), "--management", url, "--since", "6s", "--master", "local[2]")
        how = ("--settings", "30", "--goal", "throughput", "--apply", "--measure", "5s")
        process = subprocess.Popen(
            [sys.executable, "-m", "penstock", "pipeline", "advise", *where, *how],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            start_new_session=True,
            env=serve_environment(),
        )
        try:
            wait_until(lambda: process.poll() is not None or are_set() != {BAD}, SPARK_S, "what is advised to be set")
            os.killpg(process.pid, signal.SIGINT)  # as a terminal does
            out, err = process.communicate(timeout=SPARK_S)
        finally:
            process.kill()
            process.wait(60)
    assert process.returncode == 130, (out, err)
    said = [one for one in err.splitlines() if not one.startswith((JAVA, "WARNING: Using incubator modules: "))]
    assert said == ["penstock: interrupted: the settings are as they were"]
    assert "For throughput: " in out
    assert are_set() == {BAD}
    assert [one.state for one in Diary(tmp_path).changes()] == [TAKEN_BACK]


def test_marks_of_a_real_queue_are_set_by_a_policy_that_keeps_what_another_says_and_goes_with_undo(
    badly_set: ServeProcess, tmp_path: Path
):
    site, diary, name = Site(address(badly_set)), Diary(tmp_path), marks_of("/", "orders")
    with Pushing(badly_set.uri, "orders") as pushing:
        site.put("policies", "/", "all", body={"pattern": ".*", "priority": 3, "definition": {"message-ttl": 600_000}})
        begun = pushing.published
        wait_until(lambda: pushing.published > begun)
        # Its x-max-length is 5000, and it drops: never above this mark, it holds nobody back.
        change = apply(site, {name: "5000,4000"}, measure_s=1.0, rollback=False, diary=diary)
        assert change.old == {name: "as declared"}
        row, flow = site.get("queues", "/", "orders"), site.get("flow")
        assert isinstance(row, dict)
        assert isinstance(flow, dict)
        assert row["policy"] == "penstock-advice-orders"
        assert row["effective_policy_definition"] == {
            "message-ttl": 600_000,
            "flow-stop-count": 5000,
            "flow-resume-count": 4000,
        }
        assert row_of(name, flow)["watermark"] == {
            "stop_count": 5000,
            "resume_count": 4000,
            "stop_bytes": None,
            "resume_bytes": None,
        }
        with pytest.raises(Complaint, match=r"cannot be 9000,7000, they are 5000,5000"):
            put(site, name, "9000,7000")
        ceiling = ask(site, 1, 0.0).ceilings["queue orders"]
        assert ceiling == (5000, NO_CEILING)
        tried = grid(PERSISTENT, Settings(stop=5000, resume=4000), 1000, ceiling)
        largest = max(tried, key=lambda one: (one.stop, one.resume))
        put(site, name, f"{largest.stop},{largest.resume}")
        assert largest.stop == 5000
        put(site, name, "2000,1000")
        assert ask(site, 1, 0.0).ceilings["queue orders"] == (2000, NO_CEILING)
        site.put("users", "eve", body={"password": "eve", "tags": "monitoring"})
        other = Site(address(badly_set).replace("guest:guest", "eve:eve"))
        with pytest.raises(Complaint, match="cannot be set by a policy: user 'eve' needs the tag administrator or"):
            put(other, name, "800,700")
        put(site, name, "5000,4000")
    assert "marks of queue orders = as declared again, instead of 5000,4000" in diary.undo(site)
    policies = site.get("policies")
    assert isinstance(policies, list)
    assert [one["name"] for one in policies if isinstance(one, dict)] == ["all"]
    site.delete("policies", "/", "all")


def test_a_real_broker_that_refuses_does_worse_or_is_killed_has_its_old_settings_or_that_is_said(
    badly_set: ServeProcess, tmp_path: Path
):
    site, diary = Site(address(badly_set)), Diary(tmp_path)
    with Pushing(badly_set.uri, "orders") as pushing:
        begun = pushing.published
        wait_until(lambda: pushing.published > begun)
        with pytest.raises(SiteError, match="more_after"):
            apply(site, {HOPS[0]: "400,200", HOPS[1]: "5,10"}, measure_s=1.0, diary=diary)
        assert {value_of(site, hop) for hop in HOPS} == {BAD}
        change = apply(site, {HOPS[0]: "2,1"}, measure_s=1.0, diary=diary)  # two messages a sync, not sixty
        assert change.rolled_back
        assert "That is worse (less throughput), so the old values are set again" in change.sentence
        assert {value_of(site, hop) for hop in HOPS} == {BAD}

        def kill(what: str, done: float, whole: float) -> None:
            if what == "after":
                badly_set.kill()

        with pytest.raises(Complaint, match=r"^no answer from .*; not set back: .*A broker that has stopped forgets"):
            apply(site, {HOPS[0]: "400,200"}, measure_s=1.0, watch=kill, diary=diary)
    assert [one.state for one in diary.changes()] == [TAKEN_BACK, TAKEN_BACK, BEGUN]


def study(load: Load, blocked: float) -> Study:
    observed = observe(loaded(blocked), 600)
    return Study(observed, Model(Plant(), load, Settings(), 0.0, ()), {})


def test_where_nothing_is_better_that_is_said_and_nothing_proposed(spark: SparkSession):
    paced = Load(Publishers(rate=1000.0, window=100, persistent=True), Consumers(count=0))
    told: list[tuple[str, int, int]] = []
    advice = advise(spark, study(paced, 0.0), "throughput", 24, lambda *step: told.append(step))
    assert advice.options == ()
    assert advice.to_apply == {}
    assert advice.sentence.startswith("Nothing to change: of 24 settings none promises more throughput")
    assert any("holds nobody back" in line for line in advice.cures)
    assert ("settings", 24, 24) in told
    assert json.loads(json.dumps(advice.document()))["options"] == []


def test_a_twin_that_misses_what_was_measured_gives_no_advice(spark: SparkSession):
    faster = Load(Publishers(window=100, persistent=True), Consumers(count=0))
    advice = advise(spark, study(faster, 0.93), "throughput", 4)
    assert advice.options == ()
    assert advice.sentence.startswith("No advice: the twin misses the measured throughput by")


def test_spark_says_of_each_setting_what_the_twin_says_here(spark: SparkSession):
    trial = Trial(Plant(), Load(Publishers(window=50), Consumers(count=0)), 0.02)
    tried = [Settings(reader_channel=f"{2 + at},1") for at in range(20)]
    found = sweep(spark, trial, tried)
    assert [one.settings for one in found] == tried
    assert found[7].outcome == trial.outcome(tried[7])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--tables", "/nowhere/at/all"), "penstock: there are no tables in /nowhere/at/all"),
        (("--since", "soon"), "penstock: --since soon: not a time; as in 30s, 15m, 1h, 7d"),
        (("--since", "10"), "penstock: --since 10: not a time; as in"),
        (("--goal", "glory"), "penstock: --goal glory: there are throughput, latency, memory, balanced"),
        (("--settings", "1"), "penstock: --settings 1: 2 to 100000"),
        (("--set", "credit"), "penstock: --set credit: it looks like"),
        (("--set", "credit.typo=1,1"), "penstock: credit.typo is no setting that advice knows"),
        (("--since", "9999999999d"), "penstock: --since 9999999999d: that is more than ten years"),
        (("--management", "nonsense"), "penstock: the URL is not http://user:password@host:port"),
        (("--undo", "--tables", "/nowhere/at/all"), "penstock: nothing to undo: /nowhere/at/all/applied.json has no"),
    ],
)
def test_a_user_s_mistake_is_one_line(words: tuple[str, ...], said: str):
    result = run(*words)
    assert result.exit_code == 1
    assert result.stderr.startswith(said)
    assert result.stderr.count("\n") == 1


def test_tables_that_are_empty_or_old_and_a_broker_that_is_away_are_one_line_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def says(said: str, *words: str) -> None:
        result = run("--tables", str(tmp_path), *words)
        assert result.exit_code == 1
        assert result.stderr.startswith(f"penstock: {said}"), result.stderr
        assert result.stderr.count("\n") == 1

    away = "http://127.0.0.1:1"
    with Ledger(tmp_path).writing() as ledger:
        ledger.commit(None, [], window_s=10)
        says("the tables in ", "--uri", "amqp://guest:guest@127.0.0.1:1")
        hour_ago = datetime.now(UTC) - timedelta(hours=1)
        old = pa.table({"window": [hour_ago], "at": [hour_ago], "day": [hour_ago.date()]})
        ledger.commit(None, [ledger_replace("resources", old)], window_s=10)
    says(f"no answer from {away}: ", "--management", away)
    says(f"no answer from {away}: ", "--management", away, "--apply", "--set", "credit.queue_store=9,9")
    monkeypatch.setattr("penstock.pipeline.advise.HTTP_PORT", 1)
    says(f"no answer from {away}: ", "--uri", "amqp://127.0.0.1")
    says("no samples in the last 600 s", "--uri", "amqp://127.0.0.1", "--set", "credit.queue_store=9,9")
    monkeypatch.setattr("penstock.spark.advice.clients.ask", lambda site: Clients())
    says(f"the newest in {tmp_path} is of ")
    says("no samples in the last 600 s", "--stale")


def test_ctrl_c_after_a_change_was_kept_says_what_stays_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with Ledger(tmp_path).writing() as ledger:
        now = datetime.now(UTC)
        rows = pa.table({"window": [now], "at": [now], "day": [now.date()]})
        ledger.commit(None, [ledger_replace("resources", rows)], window_s=10)

    @contextmanager
    def opened(*arguments: Any) -> Iterator[None]:
        yield

    def kept(api: Site, wanted: dict[str, str], *given: Any, diary: Diary) -> None:
        diary.begin(wanted, dict.fromkeys(wanted, BAD))
        diary.end(KEPT, now_ms())
        raise KeyboardInterrupt  # while it is written and told

    def interrupted(diary: Diary, api: Site) -> str:
        raise KeyboardInterrupt

    advised = SimpleNamespace(document=lambda notes: {}, to_apply={"credit.queue_store": "2000,500"})
    monkeypatch.setattr("penstock.spark.session.opened", opened)
    monkeypatch.setattr("penstock.spark.advice.clients.ask", lambda site: Clients())
    monkeypatch.setattr("penstock.spark.advice.adviser.study", lambda *given: None)
    monkeypatch.setattr("penstock.spark.advice.adviser.advise", lambda *given: advised)
    monkeypatch.setattr("penstock.spark.advice.change.apply", kept)
    result = run("--tables", str(tmp_path), "--apply", "--json")
    said = "penstock: interrupted: what was set stays set: credit.queue_store = 2000,500; back with: penstock pipeline "
    assert (result.exit_code, result.stderr) == (130, f"{said}advise --undo\n")
    monkeypatch.setattr(Diary, "undo", interrupted)
    result = run("--tables", str(tmp_path), "--undo")
    said = "penstock: interrupted: some settings may be set back already; --undo again does the rest\n"
    assert (result.exit_code, result.stderr) == (130, said)


def test_a_wrong_password_is_one_line(tmp_path: Path):
    with LiveBroker() as broker:
        url = f"http://guest:wrong@127.0.0.1:{broker.manage()}"
        with Ledger(tmp_path).writing() as ledger:
            now = datetime.now(UTC)
            rows = pa.table({"window": [now], "at": [now], "day": [now.date()]})
            ledger.commit(None, [ledger_replace("resources", rows)], window_s=10)
        result = run("--tables", str(tmp_path), "--management", url)
    assert result.exit_code == 1
    assert "does not let this user in" in result.stderr
    assert result.stderr.count("\n") == 1
