"""What the pipeline's verbs share: their options, and a user's mistake as one line.

Upstream: the verbs beside it.  Downstream: penstock.spark, only when a verb runs.
Not here: the Spark session (spark/session.py:opened).
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from penstock.client.error import ClientError
from penstock.client.uri import UriError
from penstock.console.picture import printable

DEFAULT_URI = "amqp://guest:guest@127.0.0.1:5672"
DEFAULT_TABLES = Path("tables")
DEFAULT_MASTER = "local[*]"
DEFAULT_MEMORY = "1g"

UriOption = Annotated[
    str,
    typer.Option(
        envvar="PENSTOCK_URI",
        help="The broker: amqp://user:password@host:port/vhost; or in PENSTOCK_URI, where no ps shows it.",
    ),
]
TablesOption = Annotated[Path, typer.Option(help="The directory of the tables; executors must see the same path.")]


def _master(text: str) -> str:
    with one_line():
        from penstock.spark.submission import check_master

        return check_master(text)


def _memory(text: str) -> str:
    with one_line():
        from penstock.spark.submission import check_memory

        return check_memory(text)


# Checked with the line itself: before a broker is looked for, a directory made, and Spark started.
MasterOption = Annotated[
    str, typer.Option(help="Where Spark runs: local[*], local[2], spark://host:7077.", callback=_master)
]
MemoryOption = Annotated[
    str, typer.Option(help="Heap of Spark's driver, and on a cluster of each executor, as 1g.", callback=_memory)
]

SPAN = re.compile(r"(\d+(?:\.\d+)?)([smhd])")
UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
SPAN_S_MAX = 3660 * 86_400  # ten years: what is longer is a slip of the finger

EXTRA = 'this needs Spark: pip install "penstock[spark]"'
SPARK_PACKAGES = frozenset({"pyspark", "pyarrow", "pandas", "numpy", "py4j"})


def say(line: str) -> None:
    """How a job gets on."""
    print(printable(line), flush=True)


def warn(line: str) -> None:
    """What a person should see, and the job goes on."""
    print(f"penstock: {printable(line)}", file=sys.stderr, flush=True)


def fail(text: str) -> NoReturn:
    """One line on stderr, exit 1. Names in it are clients' own: a terminal must not do what they say."""
    print(f"penstock: {printable(text)}", file=sys.stderr)
    raise typer.Exit(1)


def span_s(option: str, text: str) -> float | None:
    """`30s`, `10m`, `1.5h`, `7d` in seconds; None: it is no such thing. The unit is never left out."""
    found = SPAN.fullmatch(text.strip())
    if found is None:
        return None
    seconds = float(found[1]) * UNITS_S[found[2]]
    if seconds > SPAN_S_MAX:
        fail(f"{option} {text}: that is more than ten years")
    return seconds


def hush_py4j() -> None:
    """What py4j logs when the JVM is gone, or a signal meets a call, are pages; the verbs say it in a line."""
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_is_not_of_py4j)  # the worst of it goes to the root logger


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return Path(record.pathname).parent.name != "py4j"


@contextmanager
def one_line() -> Iterator[None]:
    """Around all that a verb does: what a user can cause is one line; a bug of ours keeps its traceback.

    Expected are errors of the client and of addresses, OSError, spark/complaint.py's Complaint, Spark's own errors, and
    that Spark is not installed.
    """
    hush_py4j()
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in SPARK_PACKAGES:
            raise
        fail(EXTRA)
    except (ClientError, UriError) as error:
        fail(str(error))
    except OSError as error:
        named = f"{error.filename}: " if error.filename else ""
        fail(f"{named}{error.strerror or error}")
    except typer.Exit:
        raise
    except Exception as error:
        from penstock.spark.complaint import line_of

        text = line_of(error)
        if text is None:
            raise
        fail(text)
