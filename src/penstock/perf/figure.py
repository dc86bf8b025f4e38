"""Figure: one measured number, and how numbers of several rounds and two brokers are set side by side. No I/O."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

MESSAGES_PER_S = "msg/s"
MEGABYTES_PER_S = "MB/s"
MICROSECONDS = "µs"


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of one scenario in one round. CPU is per message; None where the broker's process is unknown."""

    label: str
    value: float
    unit: str
    broker_cpu_us: float | None
    load_cpu_us: float


@dataclass(frozen=True, slots=True)
class Summary:
    """The medians of one figure over the rounds of one broker."""

    value: float
    values: tuple[float, ...]
    broker_cpu_us: float | None
    load_cpu_us: float


def summarise(figures: Sequence[Figure]) -> Summary:
    values = tuple(figure.value for figure in figures)
    cpu = [figure.broker_cpu_us for figure in figures if figure.broker_cpu_us is not None]
    return Summary(
        value=statistics.median(values),
        values=values,
        broker_cpu_us=statistics.median(cpu) if cpu else None,
        load_cpu_us=statistics.median(figure.load_cpu_us for figure in figures),
    )


def ratio(first: float, second: float, unit: str) -> float:
    """How much better the first is: above 1.0 it is ahead, whether much (rates) or little (times) is good."""
    if unit == MICROSECONDS:
        first, second = second, first
    return first / second if second else math.inf


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The nearest rank: the least value that `percent` of all values do not exceed. `ordered` is sorted, not empty."""
    rank = math.ceil(len(ordered) * percent / 100)
    return ordered[max(rank, 1) - 1]
