"""Page: page.json after commits. It is a picture of the tables: that it cannot be drawn must not stop them.

Upstream: job.py, rebuild.py.  Downstream: report/page.py.
"""

from __future__ import annotations

import logging

from penstock.spark.report.page import PageWriter

log = logging.getLogger("penstock.spark")


def draw(pages: PageWriter, whole: bool = False) -> None:
    """whole: all of it anew."""
    try:
        pages.write(whole)
    except Exception:
        log.exception("page.json could not be written")
