"""Exposition: numbers as text, in Prometheus' format 0.0.4 or in OpenMetrics 1.0.

Written here and not with prometheus_client: that makes an object per sample, and ten thousand queues have two hundred
thousand of them; the tests read the text back with its parser.
Place: metrics.py says what is shown; here is only how it looks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

PLAIN: Final = "text/plain; version=0.0.4; charset=utf-8"
OPEN: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
END: Final = "# EOF\n"  # the end of OpenMetrics, without which it was cut off

COUNTER: Final = "counter"
GAUGE: Final = "gauge"
HISTOGRAM: Final = "histogram"

NUMBERS: Final = frozenset((int, float))  # the types that are written as they are

Number = int | float
Labels = tuple[tuple[str, str], ...]


class Family(NamedTuple):
    """One metric: all its samples stand together, under its name, type and meaning."""

    name: str  # of a counter with _total
    kind: str
    text: str

    def head(self, is_open: bool) -> str:
        # OpenMetrics names a counter without the _total of its samples.
        name = self.name.removesuffix("_total") if is_open and self.kind == COUNTER else self.name
        return f"# HELP {name} {self.text}\n# TYPE {name} {self.kind}\n"


def wants_open(accept: str) -> bool:
    """True if the Accept header names OpenMetrics; Prometheus does, and puts it first."""
    return "application/openmetrics-text" in accept


def number(value: object) -> Number:
    """What is no number is 0; true is 1."""
    if isinstance(value, bool):
        return int(value)
    return value if isinstance(value, int | float) else 0


def labels(pairs: Labels) -> str:
    return "{" + ",".join(f'{name}="{escape(value)}"' for name, value in pairs) + "}" if pairs else ""


def escape(value: str) -> str:
    if "\\" in value or '"' in value or "\n" in value:
        return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return value


def family(family: Family, samples: Iterable[tuple[Labels, Number]], is_open: bool) -> str:
    lines = [f"{family.name}{labels(pairs)} {value}\n" for pairs, value in samples]
    return family.head(is_open) + "".join(lines)


def lines(name: str, labels: list[str], values: Sequence[object]) -> str:
    """A sample of each object, its labels written already, with a space behind them. Of thousands of queues most are
    idle: where all have the same value, one join makes all lines."""
    if not NUMBERS.issuperset(map(type, values)):
        values = [number(value) for value in values]
    if values.count(values[0]) == len(values):
        return name + f"{values[0]}\n{name}".join(labels) + f"{values[0]}\n"
    return "".join([f"{name}{label}{value}\n" for label, value in zip(labels, values)])


def histogram(family: Family, bounds: list[float], counts: list[int], total: float, is_open: bool) -> str:
    """`counts` are those of each class, the last one above all bounds."""
    lines = [family.head(is_open)]
    count = 0
    for bound, more in zip([*(repr(float(bound)) for bound in bounds), "+Inf"], counts):
        count += more
        lines.append(f'{family.name}_bucket{{le="{bound}"}} {count}\n')
    lines.append(f"{family.name}_sum {total}\n{family.name}_count {count}\n")
    return "".join(lines)
