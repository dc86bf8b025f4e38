"""amqplib for Node: the cases are in node/amqplib.test.js, each is run by `node` against a broker of its own."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.wire.live import LiveBroker
from tests.wire.waiting import LIMIT_S

HERE = Path(__file__).parent / "node"
SCRIPT = HERE / "amqplib.test.js"
# Read, not asked for: collecting must not need node.
CASES = re.findall(r"^  async '([^']+)'\(", SCRIPT.read_text("utf-8"), re.MULTILINE)


@pytest.mark.parametrize("case", CASES)
def test_amqplib_agrees_on(broker: LiveBroker, case: str) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    if not (HERE / "node_modules" / "amqplib").is_dir():
        pytest.skip("amqplib is not installed: `make node` does it")
    done = subprocess.run(
        [node, str(SCRIPT), broker.uri, case], cwd=HERE, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert done.returncode == 0, done.stderr + broker.log
