"""What the documents and `make run` say of `penstock up` is what it does."""

from __future__ import annotations

import inspect
import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from penstock.up import crew
from penstock.up.command import up
from penstock.up.demo.cast import CAST
from penstock.up.demo.scenery import SCENES

ROOT = Path(__file__).parents[3]
DEFAULTS = {name: str(one.default) for name, one in inspect.signature(up).parameters.items()}


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
def test_make_run_is_penstock_up_with_its_own_defaults() -> None:
    # Without what the make that runs the tests has left here: its flags are no flags of this one.
    clean = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
    done = subprocess.run(
        ["make", "-n", "run", "ARGS=--demo"], cwd=ROOT, env=clean, capture_output=True, text=True, check=True
    )
    words = shlex.split(done.stdout.splitlines()[-1])
    assert words[:3] == ["exec", ".venv/bin/penstock", "up"]
    assert words[-1] == "--demo"
    given = dict(zip(words[3:-1:2], words[4:-1:2], strict=True))
    assert given == {f"--{name}": DEFAULTS[name] for name in ("listen", "management", "data")}


@pytest.mark.parametrize("name", ["README.md", "docs/up.md"])
def test_the_ports_that_a_document_names_are_the_default_ones(name: str) -> None:
    text = (ROOT / name).read_text("utf-8")
    assert f"# the broker on {DEFAULTS['listen']}, its page on {DEFAULTS['management']}" in text
    assert f"ready: amqp {DEFAULTS['listen']}, management http://{DEFAULTS['management']}/" in text


def test_the_document_has_the_demo_s_line_and_how_long_a_stop_may_take() -> None:
    text = (ROOT / "docs/up.md").read_text("utf-8")
    assert f"demo ready: {len(CAST)} clients on {', '.join(scene.queue for scene in SCENES)}\n" in text
    limits = f"{crew.DEMO_STOP_S:g}, {crew.PIPELINE_STOP_S:g} and {crew.BROKER_STOP_S:g} s"
    assert f"Who does not stop in {limits} is killed" in text
