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
# Of any other traceback too: the line behind its indented ones.
TRACE = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n)+(\S.*)")
# An error of Java's that Spark has no class for in Python, as that of a failed task: a line that says nothing, then
# classes and what the task said, then pages; the last cause of all is what happened.
CALLING = "An error occurred while calling"
OF_TASK = re.compile(r"^.*\(TID \d+\) \([^)]*\): ")
CLASSES = re.compile(r"^:? ?(?:[\w.$]+(?:Exception|Error): )+")
CAUSE = re.compile(r"^Caused by: (.+)$", re.MULTILINE)


class Complaint(Exception):
    """The job cannot be done; the text is one line that says why and, where there is one, what helps."""


def line_of(error: BaseException) -> str | None:
    """The one line of an error that a user can cause; None: a bug of ours, whose traceback is wanted."""
    if isinstance(error, (Complaint, JavaMissing, SourceError, OptionError)):
        return str(error)
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    if isinstance(error, (PySparkException, Py4JJavaError)):
        return first_line(str(error))
    return None


def first_line(text: str) -> str:
    """Of one of Spark's texts, which may be pages: the line that says what is wrong."""
    raised = RAISED.findall(text) or TRACE.findall(text)
    if raised:
        return str(raised[-1]).strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return "Spark failed and did not say why"
    if lines[0].startswith(CALLING):
        return _java_line(lines[1:], text)
    return PREFIX.sub("", lines[0])


def _java_line(lines: list[str], text: str) -> str:
    """What its first line says, and its last cause where that is another."""
    if not lines:
        return "Spark failed and did not say why"
    line, *causes = (CLASSES.sub("", OF_TASK.sub("", one)).strip() for one in (lines[0], *CAUSE.findall(text)[-1:]))
    return f"{line}: {causes[0]}" if causes and causes[0] not in line else line
