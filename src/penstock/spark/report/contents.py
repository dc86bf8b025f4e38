"""Contents: what is shown of a digest, and in which order: parts, their charts, their tables and the columns of these.

One list for the report file and for the page's History view, so that both show the same: every digest has it as
`parts`, and the page draws what it finds there. A column says where its value is in a row and of which kind it is; how
a kind looks is said once for the file (cells.py) and once for the page (management/page/app/history/cells.js).
Place: digest.py, sections.py.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

QUEUES_DRAWN: Final = 4
FORECASTS_DRAWN: Final = 4

# Kinds of which the cells stand right, one below the other.
NUMBERS: Final = ("count", "percent", "rate", "seconds", "ms", "bytes")
KINDS: Final = (
    *NUMBERS, "text", "stage", "cause", "causes", "moment", "clock", "code", "sentence", "settings", "foretold"
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Column:
    title: str
    field: str
    kind: str = "text"
    wide: bool = False  # left out on a phone: it is in the file, and on a wider screen


@dataclass(frozen=True, slots=True)
class Listing:
    """A table. folded: behind a chart that says the same; seen: so is its caption, where no heading says it."""

    id: str
    caption: str
    columns: tuple[Column, ...]
    empty: str = "None."
    folded: bool = False
    seen: bool = False


@dataclass(frozen=True, slots=True)
class Series:
    field: str
    label: str
    limit: bool = False


@dataclass(frozen=True, slots=True)
class Chart:
    """Lines over the steps. kind: of its numbers."""

    title: str
    kind: str
    series: tuple[Series, ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Part:
    """drawn: how many of its rows have a chart of their own; nothing: what stands there without charts."""

    id: str
    title: str
    tables: tuple[Listing, ...] = ()
    about: str = ""
    charts: tuple[Chart, ...] = ()
    drawn: int = 0
    nothing: str = ""


def _percentiles() -> tuple[Series, ...]:
    return tuple(Series(f"{name}_ms", name) for name in ("p50", "p95", "p99"))


PARTS: Final = (
    Part(
        "verdicts",
        "Who was held back",
        (
            Listing(
                "verdicts",
                "Verdicts",
                (
                    Column("Who", "name"),
                    Column("User", "user", wide=True),
                    Column("Vhost", "vhost", wide=True),
                    Column("Mostly by", "cause", "cause"),
                    Column("Bottleneck", "bottleneck", "stage", wide=True),
                    Column("Held back", "held_s", "seconds"),
                    Column("Causes", "by_cause_s", "causes", wide=True),
                ),
                "Nobody was held back.",
            ),
        ),
    ),
    Part(
        "timeline",
        "Blocks over time",
        (
            Listing(
                "stages",
                "Blocked stages",
                (
                    Column("Stage", "label"),
                    Column("Kind", "kind"),
                    Column("Blocked", "blocked_s", "seconds"),
                    Column("Blocks", "blocks", "count"),
                ),
                folded=True,
            ),
        ),
        about="The stronger the colour, the larger the part of the step in which a stage was blocked.",
        nothing="No stage was blocked.",
    ),
    Part("heat", "Who blocked whom", about="How long who (rows) waited for whom (columns).", nothing="Nobody."),
    Part(
        "blockers",
        "Top blockers",
        (
            Listing(
                "blockers",
                "Top blockers",
                (
                    Column("Bottleneck", "bottleneck", "stage"),
                    Column("Cause", "cause", "cause"),
                    Column("Time it cost", "blocked_s", "seconds"),
                    Column("Held somebody back", "present_s", "seconds", wide=True),
                    Column("Connections at once", "connections", "count", wide=True),
                ),
                "Nothing held anybody back.",
            ),
        ),
        about="What they cost is the time of all connections together, so it may be more than has passed.",
    ),
    Part(
        "depth",
        "Queues and their limits",
        (
            Listing(
                "depth",
                "Queues",
                (
                    Column("Queue", "stage"),
                    Column("Messages", "messages_last", "count"),
                    Column("At most", "messages_max", "count", wide=True),
                    Column("Limit", "limit", "count"),
                    Column("Limit of bytes", "limit_bytes", "bytes", wide=True),
                    Column("Of it", "limit_share", "percent"),
                    Column("Saturated", "saturated_share", "percent", wide=True),
                    Column("Blocked", "blocked_share", "percent", wide=True),
                    Column("In", "received_rate", "rate", wide=True),
                    Column("Out", "sent_rate", "rate", wide=True),
                    Column("Consumers", "consumers", "count", wide=True),
                ),
                "No queue was sampled.",
            ),
        ),
        drawn=QUEUES_DRAWN,
    ),
    Part(
        "syncs",
        "Syncs of the store",
        (
            Listing(
                "syncs",
                "Syncs",
                (
                    Column("From", "at_ms", "clock"),
                    Column("Syncs", "count", "count"),
                    Column("p50", "p50_ms", "ms"),
                    Column("p95", "p95_ms", "ms", wide=True),
                    Column("p99", "p99_ms", "ms"),
                    Column("Longest", "longest_ms", "ms", wide=True),
                ),
                folded=True,
            ),
        ),
        charts=(Chart("Time per sync", "ms", _percentiles()),),
        nothing="The store had nothing to sync.",
    ),
    Part(
        "resources",
        "Memory, disk and connections",
        (
            Listing(
                "resources",
                "Memory, disk and connections",
                (
                    Column("From", "at_ms", "clock"),
                    Column("Memory", "memory_used_bytes", "bytes"),
                    Column("Watermark", "memory_limit_bytes", "bytes", wide=True),
                    Column("Disk free", "disk_free_bytes", "bytes"),
                    Column("Low mark", "disk_limit_bytes", "bytes", wide=True),
                    Column("Connections", "connections", "count"),
                    Column("Channels", "channels", "count", wide=True),
                    Column("Queues", "queues", "count", wide=True),
                ),
                folded=True,
            ),
        ),
        charts=(
            Chart(
                "Memory",
                "bytes",
                (Series("memory_used_bytes", "Used"), Series("memory_limit_bytes", "Watermark", limit=True)),
                "publishers wait above the mark",
            ),
            Chart(
                "Disk",
                "bytes",
                (Series("disk_free_bytes", "Free"), Series("disk_limit_bytes", "Low mark", limit=True)),
                "publishers wait below the mark",
            ),
            Chart(
                "Connections, channels and queues",
                "count",
                (Series("connections", "Connections"), Series("channels", "Channels"), Series("queues", "Queues")),
            ),
        ),
        nothing="Not sampled.",
    ),
    Part(
        "forecasts",
        "Forecasts",
        (
            Listing(
                "forecasts",
                "Forecasts",
                (Column("At this trend", "", "foretold"), Column("Fit", "r2", "percent")),
                "Nothing has a limit.",
            ),
        ),
        about="A straight line through the last minutes. How well it fits says how much to believe it.",
        drawn=FORECASTS_DRAWN,
    ),
    Part(
        "advice",
        "Advice",
        (
            Listing(
                "settings",
                "Settings",
                (
                    Column("Settings", "settings", "settings"),
                    Column("Messages per second", "throughput", "count"),
                    Column("p99", "p99_ms", "ms"),
                    Column("Messages held", "memory_bytes", "bytes", wide=True),
                    Column("Why", "why", "sentence"),
                ),
                "None is better.",
            ),
            Listing(
                "measured",
                "Measured",
                (
                    Column("When", "when"),
                    Column("Messages per second", "throughput", "count"),
                    Column("To a confirm", "confirm_ms", "ms"),
                    Column("In the broker", "stay_ms", "ms", wide=True),
                    Column("Held", "held", "count", wide=True),
                    Column("Blocked", "blocked", "percent", wide=True),
                    Column("Memory", "memory_bytes", "bytes", wide=True),
                ),
                seen=True,
            ),
        ),
    ),
    Part(
        "single",
        "Single blocks",
        (
            Listing(
                "open",
                "Still blocked",
                (Column("Stage", "stage"), Column("Waits for", "cause"), Column("Since", "began_ms", "moment")),
                "Nothing.",
                seen=True,
            ),
            Listing(
                "longest",
                "Longest blocks",
                (
                    Column("Began", "began_ms", "moment", wide=True),
                    Column("Stage", "stage"),
                    Column("Waited for", "cause"),
                    Column("Bottleneck", "root", wide=True),
                    Column("Took", "longest_s", "seconds"),
                    Column("Ended by", "closed_by", wide=True),
                ),
                "No block is over yet.",
                seen=True,
            ),
        ),
    ),
    Part(
        "quality",
        "Quality of the tables",
        (
            Listing(
                "quality",
                "Checks",
                (
                    Column("Table", "table"),
                    Column("What must be true", "rule"),
                    Column("Rows", "rows", "count", wide=True),
                    Column("Failures", "failures", "count"),
                    Column("Example", "example", "code", wide=True),
                ),
                folded=True,
            ),
        ),
        nothing="Nothing was checked.",
    ),
)
LISTINGS: Final = {listing.id: listing for part in PARTS for listing in part.tables}


def parts() -> list[dict[str, Any]]:
    """As JSON has it; what is as usual is left out."""
    return [_brief(asdict(part)) for part in PARTS]


def _brief(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _brief(one) for name, one in value.items() if one not in (False, 0, "", ())}
    return [_brief(one) for one in value] if isinstance(value, list | tuple) else value
