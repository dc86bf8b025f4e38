"""Fixtures of the Spark tests, pipeline/ too: one Spark session for all in a process, and a broker for each module.

`spark` is local[2] with one JVM for the whole run: its start is most of what a first test takes. `broker` is one
`penstock serve` per module, so every test uses names of its own (`name`). A test that kills or restarts a broker starts
one with `serve_process`. Where pyspark is not installed, test_installed.py puts one line into the summary.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.perf.rabbitmq import NotInstalled, running_rabbitmq
from tests.wire.conftest import serve_process  # noqa: F401 (a fixture)
from tests.wire.live import QUICK_JAVA, ServeProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

if find_spec("pyspark") is None:
    collect_ignore_glob = ["test_[!i]*.py", "pipeline/*"]  # all but test_installed.py

numbers = itertools.count(1)

# What a test's JVM need not do: compile thoroughly, keep a checksum beside each file.
QUICK = {
    "spark.driver.extraJavaOptions": QUICK_JAVA,
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.log.level": "OFF",  # a query that a test makes fail would print pages
}
# Of a query that runs until it is cancelled: a condition that takes an hour for each row.
SLEEP = "java_method('java.lang.Thread', 'sleep', 3600000L) IS NULL"


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Spark on two cores; format "amqp" is registered."""
    from penstock.spark.session import UNIX_SOCKETS, local_session

    own = {**UNIX_SOCKETS, "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse"))}
    session = local_session("penstock tests", cores=2, memory="1g", **QUICK, **own)
    yield session
    session.stop()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    """`penstock serve` with a data directory, for all tests of a module."""
    process = ServeProcess(tmp_path_factory.mktemp("serve"))
    assert process.port, process.log
    yield process
    process.kill()


@pytest.fixture(scope="session")
def rabbitmq() -> Iterator[str]:
    """The address of a RabbitMQ, the same for the whole run; where none is installed, its tests are skipped."""
    try:
        with running_rabbitmq() as server:
            yield server.uri
    except NotInstalled as error:
        pytest.skip(str(error))


@pytest.fixture
def uri(broker: ServeProcess) -> str:
    return broker.uri


@pytest.fixture
def name() -> str:
    """A name that no other test has used: for a queue, a stream, an exchange, a table."""
    return f"t{next(numbers)}"


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    """Where a test's query keeps its offsets."""
    return str(tmp_path / "checkpoint")
