"""Session: a SparkSession on this machine, with the settings that streaming from a broker does well with.

`local_session` starts one; a program that builds its own calls `prepare` first, which finds Java and Python for Spark.
`opened` is for a command whose user names the master: here the same, on a cluster with the cluster's settings.
Upstream: examples, tests, the pipeline's commands.  Downstream: pyspark, and register for the format "amqp".
Not here: where Java comes from (java.py); which masters and sizes there are (submission.py); clusters, whose settings
are their owners' (docs/spark.md).
"""

import os
import signal
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkContext
from pyspark.sql import SparkSession

from penstock.spark import register
from penstock.spark.java import ensure_java
from penstock.spark.submission import LOCAL, check_master, check_memory

# Setting, value, and why.
SETTINGS: tuple[tuple[str, str, str], ...] = (
    (
        "spark.sql.streaming.checkpointFileManagerClass",
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager",
        "the default starts processes for every file of the checkpoint: half of a small batch's 200 ms",
    ),
    ("spark.driver.host", "127.0.0.1", "a machine whose own name does not resolve must work too"),
    ("spark.driver.bindAddress", "127.0.0.1", "nothing of a local session is for other machines"),
    ("spark.ui.enabled", "false", "a port and some memory for a page that nobody asked for"),
    ("spark.ui.showConsoleProgress", "false", "progress bars among a program's own lines"),
)

JAVA_OPTIONS: tuple[tuple[str, str], ...] = (
    ("-XX:+UseSerialGC", "a small heap on few cores, which the Python workers need more than a collector's threads do"),
    (
        f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}",
        "errors only: a start and every query print warnings that tell their reader nothing; setLogLevel has more",
    ),
)


def prepare() -> None:
    """Before a SparkSession starts: Java for its JVM; for its workers this Python."""
    ensure_java()
    # Spark's own default is the first python3 on the PATH, which in an environment that is not activated is another.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def local_session(app: str = "penstock", cores: int | None = None, memory: str = "1g", **config: str) -> SparkSession:
    """The running session, or a new one on this machine: `cores` tasks at a time, a heap of `memory`, format "amqp".

    config: more of Spark's settings, which win: local_session(**{"spark.ui.enabled": "true"}). Options for Java are
    added to JAVA_OPTIONS.
    """
    prepare()
    cores = cores or os.cpu_count() or 1
    given = {name: value for name, value, _ in SETTINGS}
    given["spark.driver.memory"] = memory
    # Spark's default of 200 is for clusters: each is a task, and for a stateful query a directory, in every batch.
    given["spark.sql.shuffle.partitions"] = str(cores)
    return _started(app, f"local[{cores}]", given | config)


def _started(app: str, master: str, given: dict[str, str]) -> SparkSession:
    """A session with these settings, and JAVA_OPTIONS before those that are given."""
    options = [*(option for option, _ in JAVA_OPTIONS), given.get("spark.driver.extraJavaOptions", "")]
    builder = SparkSession.builder.appName(app).master(master)
    for name, value in {**given, "spark.driver.extraJavaOptions": " ".join(options)}.items():
        builder = builder.config(name, value)
    found = builder.getOrCreate()
    register(found)
    return found


# What any session of ours has: the others of SETTINGS are for a session on one machine.
ANYWHERE = frozenset({"spark.sql.streaming.checkpointFileManagerClass", "spark.ui.showConsoleProgress"})
# Of a session that may live for months: what Spark remembers of past batches for a page that nobody opens.
LONG_LIVED = {
    "spark.sql.ui.retainedExecutions": "5",
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "200",
    "spark.sql.streaming.numRecentProgressUpdates": "5",
}
# Of a local session whose tasks are many and small. Over TCP each of them waits 40 ms for an acknowledgement, as Spark
# writes to its Python workers in small pieces. Large batches are better off there: more of them is under way at a time.
UNIX_SOCKETS = {
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.daemon.module": "penstock.spark.daemon",  # a worker that was idle for long ends without a traceback
}
CLUSTER_SHUFFLES = "8"  # tables of a micro-batch are small: 200 tasks, Spark's default, would only wait for each other


def session(app: str, master: str, memory: str = "1g", **config: str) -> SparkSession:
    """A session at this master: local[*], local[2], spark://host:7077 …; what makes no sense is a Complaint."""
    check_master(master)
    check_memory(memory)
    here = LOCAL.fullmatch(master)
    if here is not None:
        cores = os.cpu_count() if here[1] == "*" else int(here[1] or 1)
        return local_session(app, cores, memory, **config)
    prepare()
    given = {name: value for name, value, _ in SETTINGS if name in ANYWHERE}
    given |= {"spark.driver.memory": memory, "spark.executor.memory": memory}
    return _started(app, master, given | {"spark.sql.shuffle.partitions": CLUSTER_SHUFFLES, **config})


def is_local(master: str) -> bool:
    """Whether all of Spark is on this machine."""
    return LOCAL.fullmatch(master) is not None


def fresh(spark: SparkSession) -> SparkSession:
    """A session of its own in the Spark that is running: what is set there is nobody else's. Times in it are UTC: a job
    that goes on elsewhere, or in summer, must find the rows that it had."""
    own = spark.newSession()
    own.conf.set("spark.sql.session.timeZone", "UTC")
    register(own)
    return own


@contextmanager
def opened(app: str, master: str = "local[*]", memory: str = "1g", **config: str) -> Iterator[SparkSession]:
    """`session`, stopped at the end. That its JVM is gone by then, by a signal to all of the group, is no error."""
    with tempfile.TemporaryDirectory(prefix="penstock-spark-", ignore_cleanup_errors=True) as scratch:
        if is_local(master):  # where a mistyped name is looked for, and which is made for that; by default right here
            config = {"spark.sql.warehouse.dir": f"{scratch}/warehouse", **config}
        found = session(app, master, memory, **config)
        # What counts in tasks, which nothing of ours uses, is told to a server here; it prints a page when the JVM ends
        vars(found.sparkContext._accumulatorServer)["handle_error"] = _silent
        try:
            yield found
        finally:
            with warnings.catch_warnings(), suppress(Py4JError, OSError):
                warnings.simplefilter("ignore")
                found.stop()


def abandon() -> None:
    """Before a process gives up in the middle of a start: the JVM that has not answered yet ends. By itself it would
    look for a file that is gone then, and print a page. For the main thread; where the system does not tell which
    children there are, nothing happens.
    """
    if SparkContext._gateway is not None:
        return
    try:
        children = Path(f"/proc/self/task/{os.getpid()}/children").read_text("ascii").split()
    except OSError:
        return
    for pid in children:
        with suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)


def _silent(*_: object) -> None:
    """Instead of a traceback for a connection that has ended."""
