"""Fault: why a source cannot go on, as one line for the person who runs the query.

Raised by the readers of this package, in the driver and in tasks; Spark shows the text at the end of its own.
An address is shown as Uri shows it, without the password.
Not here: wrong options (options.py).
"""

from __future__ import annotations

import logging

from penstock.client.error import ClientError
from penstock.client.uri import Uri

log = logging.getLogger("penstock.spark")


class SourceError(RuntimeError):
    """The query cannot go on; the text is one line that says why and, where there is one, what helps."""


class BrokerAway(SourceError):
    """No broker answers. One that was there before may come back."""


def broker_fault(error: ClientError, uri: Uri) -> SourceError:
    return SourceError(f"{error} (uri {uri})")


def missing_stream(stream: str, uri: Uri) -> SourceError:
    return SourceError(f"there is no stream {stream} and no partitioned stream {stream}-0, … at {uri}")


def not_a_stream(stream: str, uri: Uri) -> SourceError:
    return SourceError(
        f"{stream} at {uri} is not a stream: its messages carry no offset; read it with the option queue"
    )


def report_loss(stream: str, wanted: int, first: int, fail: bool) -> None:
    """Messages from `wanted` on are gone: a SourceError, or with failOnDataLoss=false a line in the log."""
    lost = f"stream {stream}: the query goes on at offset {wanted}, but the first one that is left is {first}"
    _report(f"{lost}; retention has removed {first - wanted} messages that were not read", fail)


def report_hole(stream: str, wanted: int, following: int, fail: bool) -> None:
    """The broker passes over offsets that retention did not remove: it cannot read them any more."""
    _report(
        f"stream {stream}: the broker has no messages from offset {wanted} to {following - 1}: they are damaged", fail
    )


def report_rewind(stream: str, wanted: int, following: int, fail: bool) -> None:
    """The stream ends before the place the query has read to: it is another stream of the same name."""
    _report(
        f"stream {stream}: the query has read to offset {wanted}, but the stream ends at {following}: it was made anew",
        fail,
    )


def report_gone(stream: str, wanted: int, fail: bool) -> None:
    """A partition that the query has read from is not there any more."""
    _report(f"stream {stream}: the query has read to offset {wanted}, but there is no such stream any more", fail)


def _report(text: str, fail: bool) -> None:
    if fail:
        raise SourceError(f"{text}. Set the option failOnDataLoss to false to go on without them")
    log.warning("%s; failOnDataLoss is false, so the query goes on", text)
