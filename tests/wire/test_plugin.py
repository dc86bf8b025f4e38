"""The pytest plugin, installed as a user installs it, far from this project; and every example of docs/embedding.md."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.wire.live import ROOT, serve_environment

BLOCK = re.compile(r"^```python\n# (?P<name>\w+\.py)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
EXAMPLES = {match["name"]: match["code"] for match in BLOCK.finditer((ROOT / "docs" / "embedding.md").read_text())}
START_S = 2.0  # half of them start faster; it is milliseconds, and the rest is room for a busy machine


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with penstock installed in it from a copy of the source, as `pip install penstock` does."""
    copy, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("installed")
    shutil.copytree(ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", "*.so"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    run(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", "--no-deps",
        "--no-build-isolation", "--target", str(target), str(copy), at=copy)  # fmt: skip
    return target


def run(*command: str, at: Path, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = serve_environment()
    environment["PYTHONPATH"] = str(path or "")
    environment.pop("PYTEST_ADDOPTS", None)
    done = subprocess.run(command, cwd=at, env=environment, capture_output=True, text=True, timeout=280, check=False)
    if path is None:
        assert done.returncode == 0, done.stdout + done.stderr
    return done


def run_pytest(files: dict[str, str], directory: Path, installed: Path, *arguments: str) -> str:
    """What pytest says of these files, in a folder of their own, with the installed penstock."""
    for name, code in files.items():
        (directory / name).write_text(code)
    words = ("-p", "no:cacheprovider", "--strict-markers", "-vv", "--durations=0", "--durations-min=0", *arguments)
    done = run(sys.executable, "-m", "pytest", *words, at=directory, path=installed)
    assert done.stderr == ""
    return done.stdout


# The document.


@pytest.fixture(scope="session")
def examples(tmp_path_factory: pytest.TempPathFactory, installed: Path) -> str:
    tests = {name: code for name, code in EXAMPLES.items() if name.startswith("test_")}
    return run_pytest(tests, tmp_path_factory.mktemp("examples"), installed)


def test_every_block_of_python_in_the_document_is_an_example_with_a_name() -> None:
    text = (ROOT / "docs" / "embedding.md").read_text()
    assert text.count("```python") == len(EXAMPLES)
    assert {"test_celery.py", "test_aio_pika.py", "embed_loop.py", "embed_thread.py"} <= set(EXAMPLES)


@pytest.mark.parametrize("name", [name for name in EXAMPLES if name.startswith("test_")])
def test_the_document_s_tests_pass_as_they_stand(examples: str, name: str) -> None:
    outcomes = re.findall(rf"^{re.escape(name)}::\S+ (PASSED|FAILED|ERROR|SKIPPED)", examples, re.MULTILINE)
    assert set(outcomes) == {"PASSED"}, examples


@pytest.mark.parametrize(
    ("name", "said"), [("embed_loop.py", r"hello on port \d+\n"), ("embed_thread.py", r"1 message on port \d+\n")]
)
def test_the_document_s_programs_run_as_they_stand(tmp_path: Path, installed: Path, name: str, said: str) -> None:
    (tmp_path / name).write_text(EXAMPLES[name])
    done = run(sys.executable, name, at=tmp_path, path=installed)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(said, done.stdout)


# The fixture.

CLEAN = """
import pika
import pytest


@pytest.mark.parametrize("turn", range(20))
def test_clean(amqp_broker, turn):
    assert amqp_broker.connections == []
    with pytest.raises(LookupError):
        amqp_broker.queue_depth("q")
    connection = pika.BlockingConnection(pika.URLParameters(amqp_broker.uri))
    connection.channel().queue_declare("q", durable=True)
    amqp_broker.add_vhost("mine")  # the connection stays open: the broker must end all the same
"""

FAILING = """
import pika
import pytest


def connect(amqp_broker):
    pika.BlockingConnection(pika.URLParameters(amqp_broker.uri)).close()


def test_fine(amqp_broker):
    connect(amqp_broker)


def test_wrong(amqp_broker):
    connect(amqp_broker)
    assert amqp_broker.queue_depth("orders") == 1


@pytest.mark.amqp_broker(settings={"limits.chanel_max": 5})
def test_setting(amqp_broker):
    pass
"""

FIRST = f"""
import sys


def test_a_run_that_uses_no_broker_does_not_import_one():
    assert "penstock.testing" in sys.modules
    assert "penstock.server" not in sys.modules


def test_it_is_the_installed_one():
    import penstock
    assert not penstock.__file__.startswith({str(ROOT)!r})
"""


@pytest.fixture(scope="session")
def story(tmp_path_factory: pytest.TempPathFactory, installed: Path) -> str:
    files = {"test_1_first.py": FIRST, "test_2_clean.py": CLEAN, "test_3_failing.py": FAILING}
    return run_pytest(files, tmp_path_factory.mktemp("story"), installed)


def test_a_run_that_uses_no_broker_does_not_import_one(story: str) -> None:
    assert re.search(r"does_not_import_one PASSED", story), story
    assert re.search(r"test_it_is_the_installed_one PASSED", story), story


def test_every_test_gets_a_clean_broker(story: str) -> None:
    assert len(re.findall(r"test_clean\[\d+\] PASSED", story)) == 20, story


def test_a_failing_test_shows_the_broker_s_log_and_a_passing_one_does_not(story: str) -> None:
    assert "LookupError: no queue 'orders' in vhost '/'" in story
    assert story.count("amqp_broker log") == 1
    assert len(re.findall(r'info    connection open peer="[^"]+" user=guest', story)) == 1


def test_a_wrong_setting_is_an_error_of_that_test_in_one_line(story: str) -> None:
    assert "penstock.server.StartError: no setting 'limits.chanel_max'; docs/settings.md lists them" in story
    assert "1 failed, 23 passed, 1 error" in story


def test_brokers_start_in_well_under_a_second(story: str) -> None:
    setups = [float(seconds) for seconds in re.findall(r"([\d.]+)s setup +test_2_clean", story)]
    assert len(setups) == 20, story
    assert sorted(setups)[10] < START_S  # the first one pays for the imports


def test_the_mark_is_listed(tmp_path: Path, installed: Path) -> None:
    assert "@pytest.mark.amqp_broker(settings=" in run_pytest({}, tmp_path, installed, "--markers")
