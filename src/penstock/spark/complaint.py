"""Complaint: an error made for the person who runs a job: one line. And which of other errors are such a line.

Raised by all that `penstock pipeline` runs: a directory that cannot be written, a table that is not there, a value that
makes no sense.  Upstream: pipeline/common.py, which prints the line and exits.
Not here: what a source says inside Spark (fault.py, options.py): Spark wraps that, `line_of` takes it out again.
"""

from __future__ import annotations

import re

from penstock.spark.fault import SourceError
from penstock.spark.java import JavaMissing
from penstock.spark.options import OptionError

# Spark's texts begin with the names of conditions and classes, Python's own of exceptions.
PREFIX = re.compile(r"^(?:\[[A-Z0-9_.]+\] |(?:\w+\.)*[A-Z]\w*(?:Error|Exception|Away|Refused|Unreachable): )+")
# A traceback of a source is in Spark's text as a whole; its last line is the one that was written for people.
RAISED = re.compile(r"^(?:penstock|pyspark)\.[\w.]+: (.+)$", re.MULTILINE)
TRACE = "Traceback (most recent call last)"


class Complaint(Exception):
    """The job cannot be done; the text is one line that says why and, where there is one, what helps."""


def line_of(error: BaseException) -> str | None:
    """The one line of an error that a user can cause; None: a bug of ours, whose traceback is wanted."""
    if isinstance(error, (Complaint, JavaMissing, SourceError, OptionError)):
        return str(error)
    from pyspark.errors import PySparkException

    if isinstance(error, PySparkException):
        return first_line(str(error))
    return None


def first_line(text: str) -> str:
    """Of one of Spark's texts, which may be pages: the line that says what is wrong."""
    raised = RAISED.findall(text)
    if raised:
        return str(raised[-1]).strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return "Spark failed and did not say why"
    # A traceback says what happened at its end.
    return PREFIX.sub("", lines[0]) if TRACE not in text else lines[-1]
