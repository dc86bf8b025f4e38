"""What the pipeline's verbs share: pages that nobody should have to read are not written."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from penstock.pipeline.common import one_line

LOST = """
import logging
try:
    raise ConnectionResetError
except ConnectionResetError:
    logging.exception("Exception while sending command.")
"""


@pytest.fixture(autouse=True)
def _loggers_as_before() -> Iterator[None]:
    root, py4j = logging.getLogger(), logging.getLogger("py4j")
    filters, level = list(root.filters), py4j.level
    yield
    root.filters[:] = filters
    py4j.setLevel(level)


def test_what_py4j_logs_of_a_jvm_that_is_gone_is_not_shown_and_all_else_is(caplog: pytest.LogCaptureFixture) -> None:
    with one_line():
        exec(compile(LOST, "/lib/py4j/java_gateway.py", "exec"), {})
        logging.getLogger("py4j.clientserver").error("Error while sending.")
        exec(compile(LOST, "/lib/other/java_gateway.py", "exec"), {})
    assert [record.pathname for record in caplog.records] == ["/lib/other/java_gateway.py"]
