"""amqplib for Node on an ordinary day: the cases are in node/amqplib.everyday.js, each run by a `node` of its own.

The script asks this process, line by line, for what only it can do: end the broker, delete a queue from outside.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.everyday.answers import ANSWERS, FORCED
from tests.everyday.conftest import Outage, SomebodyElse
from tests.wire.waiting import LIMIT_S

SCRIPT = Path(__file__).parent / "node" / "amqplib.everyday.js"
# `make node` installs amqplib for the wire tests; here it is only looked up.
MODULES = Path(__file__).parents[1] / "wire" / "node" / "node_modules"
SECTIONS = dict(
    re.findall(r"^const (outages|cases) = \{\n(.*?)^\};", SCRIPT.read_text("utf-8"), re.MULTILINE | re.DOTALL)
)
# Read, not asked for: collecting must not need node.
CASES, OUTAGES = (re.findall(r"^  async '([^']+)'\(", SECTIONS[name], re.MULTILINE) for name in ("cases", "outages"))


def run_node(*arguments: str, duties: Mapping[str, Callable[[], Any]]) -> None:
    """Run the script; its every line is one of the duties, answered with what that returns."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    if not (MODULES / "amqplib").is_dir():
        pytest.skip("amqplib is not installed: `make node` does it")
    with subprocess.Popen(
        [node, str(SCRIPT), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "NODE_PATH": str(MODULES)},
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            for line in process.stdout:
                print(json.dumps(duties[line.strip()]()), file=process.stdin, flush=True)
            complaint = process.stderr.read()
            assert process.wait(LIMIT_S) == 0, complaint
        finally:
            process.kill()


@pytest.mark.parametrize("case", CASES)
def test_amqplib_sees(uri: str, other: SomebodyElse, q: str, case: str) -> None:
    run_node(uri, q, case, duties={"delete": lambda: other.delete(q)})


@pytest.mark.parametrize("what", ANSWERS)
def test_wrong_use_rejects_the_promise_and_emits_error_with_code_and_text(uri: str, q: str, what: str) -> None:
    answer = ANSWERS[what]
    run_node(uri, q, "wrong use", what, duties={"expected": lambda: {"code": answer.code, "text": answer.said(q)}})


@pytest.mark.parametrize("case", OUTAGES)
def test_amqplib_goes_on(outage: Outage, q: str, case: str) -> None:
    facts = {"told": outage.told, "keepsMessages": outage.keeps_messages, "forced": list(FORCED)}
    run_node(outage.uri, q, case, duties={"facts": lambda: facts, "begin": outage.begin, "end": outage.end})
