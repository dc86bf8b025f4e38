"""Submission: where Spark is to run and with how much memory, checked before any of Spark is there.

    local[2], 512m  ->  session.py        what makes no sense  ->  a Complaint

Upstream: pipeline/common.py (the options of all verbs) and whatever starts a verb.  Downstream: session.py.
A wrong word would otherwise be found by the JVM seconds later, in pages that do not name the option.
Not here: pyspark, which takes a second to import; whether there is a cluster at that address.
"""

from __future__ import annotations

import re
from typing import Final

from penstock.spark.complaint import Complaint

LOCAL: Final = re.compile(r"local(?:\[(\*|[1-9]\d{0,4})\])?")
# A standalone cluster may have several masters, one of which leads: spark://one:7077,two:7077.
_HOST_PORT: Final = r"(?:[\w.-]+|\[[0-9a-fA-F:]+\]):\d{1,5}"
REMOTE: Final = re.compile(rf"spark://{_HOST_PORT}(?:,{_HOST_PORT})*|k8s://\S+|yarn")

MEMORY: Final = re.compile(r"(\d+)([kmgt])", re.IGNORECASE)  # what Java's -Xmx takes; Spark hands it on as it is
UNITS_BYTES: Final = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
MEMORY_BYTES_MIN: Final = 512 << 20  # Spark starts on no heap below 450 MB, and a part of a heap does not count
MEMORY_BYTES_MAX: Final = 1 << 40  # a terabyte: what is more is a slip of the finger


def check_master(text: str) -> str:
    """The same, or a Complaint: a master of Spark is local, local[*], local[2], spark://host:7077, k8s://… or yarn."""
    if LOCAL.fullmatch(text) is None and REMOTE.fullmatch(text) is None:
        raise Complaint(f"--master {text!r} is no master of Spark: local[*], local[2], spark://host:7077")
    return text


def check_memory(text: str) -> str:
    """The same, or a Complaint: a heap is a number and a unit, from MEMORY_BYTES_MIN to MEMORY_BYTES_MAX."""
    found = MEMORY.fullmatch(text)
    if found is None:
        raise Complaint(f"--memory {text!r} is no size of a heap: as 512m or 2g")
    size_bytes = int(found[1]) * UNITS_BYTES[found[2].lower()]
    if size_bytes < MEMORY_BYTES_MIN:
        raise Complaint(f"--memory {text!r} is too little for Spark, which needs 512m or more")
    if size_bytes > MEMORY_BYTES_MAX:
        raise Complaint(f"--memory {text!r} is more than a terabyte")
    return text
