"""Options: what the user wrote behind `.option(…)`, read and checked once, before anything talks to a broker.

Upstream: Spark, which hands over names in lower case and all values as text.  Downstream: every reader and writer here.
A wrong option is an OptionError: one line that names the option and says what is allowed. Neither that line nor `repr`
ever shows a password: an address is shown without it, and what may hold a secret is not repeated.
Not here: what is on the broker (streamview.py), what a position means in offsets (offsets.py).
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from enum import Enum
from typing import Any, Final

from penstock.amqp.table import SHORT_STRING_BYTES_MAX
from penstock.client.uri import Uri, UriError, parse_uri
from penstock.spark.offsets import EARLIEST, LATEST, Position, PositionError, parse_position


class OptionError(ValueError):
    """An option that cannot be used; the text is one line that names it."""


class Use(Enum):
    """What a data source is asked for; an option that means nothing there is refused, not ignored."""

    STREAM = "readStream on a stream"
    STREAM_BATCH = "read on a stream"
    QUEUE = "readStream on a queue"
    QUEUE_BATCH = "read on a queue"
    SINK = "writeStream"
    SINK_BATCH = "write"


ALL: Final = frozenset(Use)
STREAMS: Final = frozenset({Use.STREAM, Use.STREAM_BATCH})
QUEUES: Final = frozenset({Use.QUEUE, Use.QUEUE_BATCH})
SOURCES: Final = STREAMS | QUEUES
SINKS: Final = frozenset({Use.SINK, Use.SINK_BATCH})

WINDOW: Final = 1000  # publishes not yet confirmed: enough for one sync of the broker's disk to cover many
_UNITS: Final = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_TEXTS_TRUE: Final = frozenset({"true", "1", "yes", "on"})
_TEXTS_FALSE: Final = frozenset({"false", "0", "no", "off"})
# Spark puts these of its own into the options of a query; they are not for us.
_OF_SPARK: Final = frozenset({"checkpointlocation", "queryname", "outputmode"})


@dataclass(frozen=True, slots=True, repr=False)
class Options:
    """All options, with their defaults. None is "not given"."""

    uri: Uri  # with the options username, password and tls.* put in
    stream: str | None = None
    queue: str | None = None
    starting_offsets: Position | None = None
    starting_timestamp_ms: int | None = None
    ending_offsets: Position | None = None
    max_records: int | None = None
    max_bytes: int | None = None
    min_partitions: int | None = None
    fail_on_data_loss: bool = True
    prefetch: int | None = None
    consumer_name: str | None = None
    spool_dir: str | None = None
    ack_mode: str = "commit"
    exchange: str | None = None
    routing_key: str | None = None
    window: int = WINDOW
    mandatory: bool = False
    deduplicate: bool = True
    given: frozenset[str] = frozenset()  # names as in NAMES

    def __repr__(self) -> str:
        shown = (
            f"{one.name}={getattr(self, one.name)}"
            for one in fields(self)
            if one.name != "given" and getattr(self, one.name) != one.default
        )
        return f"<Options {' '.join(shown)}>"

    def check_source(self) -> None:
        """OptionError if nothing can be read with these, be it as a stream or in a batch."""
        if (self.stream is None) == (self.queue is None):
            both = "both are given" if self.stream is not None else "neither is given"
            raise OptionError(f"one of the options stream and queue says what to read: {both}")
        self._check_uses(STREAMS if self.stream is not None else QUEUES)

    def check(self, use: Use) -> None:
        """OptionError if something is missing for this use, or given and without a meaning in it."""
        if use in SOURCES:
            self.check_source()
        self._check_uses(frozenset({use}))
        if self.starting_offsets is not None and self.starting_timestamp_ms is not None:
            raise OptionError("options startingOffsets and startingTimestamp: only one of them says where to begin")
        if use is Use.STREAM_BATCH and self.starting_offsets == LATEST:
            raise OptionError(
                "option startingOffsets: latest leaves nothing to read in a batch; earliest, a number or JSON"
            )
        if use is Use.STREAM_BATCH and self.ending_offsets == EARLIEST:
            raise OptionError("option endingOffsets: earliest leaves nothing to read; latest, a number or JSON")

    def _check_uses(self, wanted: frozenset[Use]) -> None:
        for name in sorted(self.given):
            uses = _TABLE[name].uses
            if not uses & wanted:
                asked, allowed = (", ".join(one.value for one in Use if one in some) for some in (wanted, uses))
                raise OptionError(f"option {name} means nothing in {asked}; it is for {allowed}")


@dataclass(frozen=True, slots=True)
class _Row:
    """One line of the table: the field it fills, how its text is read, where it means something."""

    field: str
    read: Callable[[str, str], Any]
    uses: frozenset[Use]


def parse_options(given: Mapping[str, str]) -> Options:
    """Read all options; names in any case. Unknown names and values that are not allowed are an OptionError."""
    values: dict[str, Any] = {}
    names: set[str] = set()
    for key, text in given.items():
        name = NAMES.get(key.lower())
        if name is None:
            if _is_of_spark(key.lower(), text):
                continue
            raise OptionError(_unknown(key))
        row = _TABLE[name]
        values[row.field] = row.read(name, text)
        names.add(name)
    if "uri" not in values:
        raise OptionError("option uri is missing: the broker's address, as amqp://user:password@host:5672/vhost")
    values["uri"] = _whole_uri(values)
    return Options(**values, given=frozenset(names))


def _is_of_spark(key: str, text: str) -> bool:
    if key == "asyncprogresstrackingenabled" and text.lower() == "true":
        # Spark would ask for the next batch before this one is in its commit log: what is acked then may be lost.
        raise OptionError("option asyncProgressTrackingEnabled: not with the format amqp, only false is allowed")
    if key == "path":
        raise OptionError("a path means nothing to the format amqp; name what to read with the option stream or queue")
    return key in _OF_SPARK or key.startswith(("asyncprogresstracking", "__"))


def _unknown(key: str) -> str:
    near = difflib.get_close_matches(key.lower(), NAMES, 1)
    hint = f" (did you mean {NAMES[near[0]]}?)" if near else ""
    return f"unknown option {key}{hint}; allowed are: {', '.join(_TABLE)}"


def _whole_uri(values: dict[str, Any]) -> Uri:
    """The address with login and TLS of their own options in it, which win over what the address says."""
    login = {key: values.pop(key) for key in ("user", "password") if key in values}
    tls = {key: values.pop(key) for key in ("ca_file", "cert_file", "key_file", "verify") if key in values}
    uri: Uri = values["uri"].with_login(**login)
    if "key_file" in tls and "cert_file" not in tls:
        raise OptionError("option tls.keyFile: a key is of no use without tls.certFile")
    if tls and uri.tls is None:
        raise OptionError(f"options tls.* need an address that begins with amqps://, not {uri}")
    return uri.with_tls(replace(uri.tls, **tls)) if uri.tls is not None else uri


def _wrong(name: str, allowed: str, text: str) -> OptionError:
    return OptionError(f"option {name}: {allowed}, not {text!r}")


def _read_uri(name: str, text: str) -> Uri:
    try:
        return parse_uri(text)
    except UriError as error:
        raise OptionError(f"option {name}: {error}") from None


def _read_text(name: str, text: str) -> str:
    if not text:
        raise OptionError(f"option {name} is empty")
    return text


def _read_any_text(name: str, text: str) -> str:
    return text


def _read_name(name: str, text: str) -> str:
    return _read_short(name, _read_text(name, text))


def _read_short(name: str, text: str) -> str:
    """A short string of AMQP. Also the empty one: the default exchange has no name."""
    size = len(text.encode("utf-8", "surrogateescape"))
    if size > SHORT_STRING_BYTES_MAX:
        raise OptionError(f"option {name}: at most {SHORT_STRING_BYTES_MAX} bytes, not {size}")
    return text


def _read_flag(name: str, text: str) -> bool:
    lower = text.strip().lower()
    if lower in _TEXTS_TRUE:
        return True
    if lower in _TEXTS_FALSE:
        return False
    raise _wrong(name, "true or false", text)


def _read_count(name: str, text: str) -> int:
    digits = text.strip().replace("_", "")
    if not digits.isdecimal() or int(digits) == 0:
        raise _wrong(name, "a whole number above 0", text)
    return int(digits)


def _read_prefetch(name: str, text: str) -> int:
    count = _read_count(name, text)
    if count > 65_535:
        raise _wrong(name, "a whole number from 1 to 65535", text)
    return count


def _read_millis(name: str, text: str) -> int:
    if not text.strip().isdecimal():
        raise _wrong(name, "milliseconds since 1970", text)
    return int(text)


def _read_size(name: str, text: str) -> int:
    lower = text.strip().lower().removesuffix("b")
    unit = _UNITS.get(lower[-1:], 1)
    digits = lower[:-1].strip() if unit > 1 else lower
    if not digits.isdecimal() or int(digits) == 0:
        raise _wrong(name, "a number of bytes above 0, also as 64k, 64m or 1g", text)
    return int(digits) * unit


def _read_position(name: str, text: str) -> Position:
    try:
        return parse_position(text)
    except PositionError as error:
        raise OptionError(f"option {name}: {error}") from None


def _read_ack_mode(name: str, text: str) -> str:
    lower = text.strip().lower()
    if lower not in ("commit", "spool"):
        raise _wrong(name, "commit (after Spark has the batch) or spool (once on the spool's disk)", text)
    return lower


_TABLE: Final[dict[str, _Row]] = {
    "uri": _Row("uri", _read_uri, ALL),
    "stream": _Row("stream", _read_name, STREAMS),
    "queue": _Row("queue", _read_name, QUEUES),
    "startingOffsets": _Row("starting_offsets", _read_position, STREAMS),
    "startingTimestamp": _Row("starting_timestamp_ms", _read_millis, STREAMS),
    "endingOffsets": _Row("ending_offsets", _read_position, frozenset({Use.STREAM_BATCH})),
    "maxRecordsPerTrigger": _Row("max_records", _read_count, QUEUES | {Use.STREAM}),
    "maxBytesPerTrigger": _Row("max_bytes", _read_size, QUEUES | {Use.STREAM}),
    "minPartitions": _Row("min_partitions", _read_count, SOURCES - {Use.QUEUE_BATCH}),
    "failOnDataLoss": _Row("fail_on_data_loss", _read_flag, SOURCES - {Use.QUEUE_BATCH}),
    "prefetch": _Row("prefetch", _read_prefetch, SOURCES - {Use.QUEUE_BATCH}),
    "consumerName": _Row("consumer_name", _read_name, SOURCES),
    "spoolDir": _Row("spool_dir", _read_text, frozenset({Use.QUEUE})),
    "ackMode": _Row("ack_mode", _read_ack_mode, frozenset({Use.QUEUE})),
    "exchange": _Row("exchange", _read_short, SINKS),
    "routingKey": _Row("routing_key", _read_short, SINKS),
    "window": _Row("window", _read_count, SINKS),
    "mandatory": _Row("mandatory", _read_flag, SINKS),
    "deduplicate": _Row("deduplicate", _read_flag, frozenset({Use.SINK})),
    "username": _Row("user", _read_text, ALL),
    "password": _Row("password", _read_any_text, ALL),
    "tls.caFile": _Row("ca_file", _read_text, ALL),
    "tls.certFile": _Row("cert_file", _read_text, ALL),
    "tls.keyFile": _Row("key_file", _read_text, ALL),
    "tls.verify": _Row("verify", _read_flag, ALL),
}

# Spark's options know no case: lower case -> as documented.
# `url` is `uri` by a name whose value Spark hides in plans by itself, whatever is in it.
NAMES: Final[dict[str, str]] = {name.lower(): name for name in _TABLE} | {"url": "uri"}
