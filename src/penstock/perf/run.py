"""Run: scenarios on one broker, or on two in turns, and the report of it.

Two brokers are measured A B A B …, so that what else happens on the machine meets both alike; medians are compared.
A scenario that fails is an error in the report, and the others go on.
Not here: how a scenario works (scenario.py), how a report looks (table.py).
"""

import fnmatch
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from penstock.amqp.table import Table
from penstock.client.connection import ClientError, Closed, Connection
from penstock.client.uri import Uri, parse_uri
from penstock.perf.block import NotADelivery
from penstock.perf.cpu import listener
from penstock.perf.figure import Figure, Summary, ratio, summarise
from penstock.perf.load import LoadError
from penstock.perf.scenario import SCENARIOS, Scenario
from penstock.perf.site import Site

SECONDS = 3.0
ROUNDS = 3
ALL = "all"

Tell = Callable[[str], None]  # told what is run next, for a progress bar


class UnknownScenario(ValueError):
    """There is no scenario of that name."""


@dataclass(frozen=True, slots=True)
class Broker:
    """One side of a comparison."""

    uri: Uri
    pid: int | None
    product: str


@dataclass(frozen=True, slots=True)
class Row:
    """One figure of one scenario for each broker; None where the scenario failed."""

    scenario: str
    label: str
    unit: str
    sides: tuple[Summary | None, ...]

    @property
    def name(self) -> str:
        return f"{self.scenario} {self.label}".strip()

    @property
    def ratio(self) -> float | None:
        if len(self.sides) < 2 or self.sides[0] is None or self.sides[1] is None:
            return None
        return ratio(self.sides[0].value, self.sides[1].value, self.unit)


@dataclass(slots=True)
class Report:
    brokers: list[Broker]
    seconds: float
    rounds: int
    rows: list[Row] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, object]:
        brokers = [{"uri": str(one.uri), "product": one.product, "pid": one.pid} for one in self.brokers]
        return {
            "brokers": brokers,
            "seconds": self.seconds,
            "rounds": self.rounds,
            "results": [_row_json(row) for row in self.rows],
            "errors": self.errors,
        }


def choose(names: Sequence[str]) -> list[Scenario]:
    """The scenarios of these names in the table's order; `all` is every one, and a name may be a pattern with `*`."""
    known = [scenario.name for scenario in SCENARIOS]
    chosen: set[str] = set()
    for name in names:
        found = known if name == ALL else fnmatch.filter(known, name)
        if not found:
            raise UnknownScenario(f"no scenario {name!r}; there are {', '.join(known)}, and {ALL}")
        chosen.update(found)
    return [scenario for scenario in SCENARIOS if scenario.name in chosen]


def run(
    scenarios: Sequence[str],
    uri: str,
    compare: str | None = None,
    *,
    seconds: float = SECONDS,
    rounds: int = ROUNDS,
    size: int | None = None,
    pid: int | None = None,
    compare_pid: int | None = None,
    tell: Tell | None = None,
) -> Report:
    """Play scenarios by name. UriError, UnknownScenario and ClientError mean that nothing could start."""
    chosen = choose(scenarios)
    uris = [(parse_uri(uri), pid)] + ([(parse_uri(compare), compare_pid)] if compare else [])
    report = Report([_meet(address, known) for address, known in uris], seconds, rounds)
    for scenario in chosen:
        _play_in_turns(report, scenario, scenario.body_bytes if size is None else size, tell)
    return report


def runs(scenarios: Sequence[str], brokers: int, rounds: int) -> int:
    """How often `tell` will be called."""
    return len(choose(scenarios)) * brokers * rounds


def _meet(uri: Uri, pid: int | None) -> Broker:
    """Connect once: a wrong address or password shows before anything is measured, and the broker tells its name."""
    with Connection.connect(uri) as connection:
        told = connection.server_properties
    product = product_of(told)
    return Broker(uri, pid if pid is not None else listener(uri.host, uri.port), product)


def product_of(told: Table) -> str:
    """What the broker is. Penstock behaves like RabbitMQ and says so as `product`; what it is stands beside it."""
    if "penstock" in told:
        return f"Penstock {told['penstock']!s}"
    words = [word for word in (told.get("product"), told.get("version")) if isinstance(word, str)]
    return " ".join(words) or "broker"


def _play_in_turns(report: Report, scenario: Scenario, body_bytes: int, tell: Tell | None) -> None:
    found: list[list[list[Figure]]] = [[] for _ in report.brokers]  # broker, round, figure
    failed: set[int] = set()
    for turn in range(report.rounds):
        for side, broker in enumerate(report.brokers):
            if tell:
                tell(f"{scenario.name}: {broker.product}, round {turn + 1} of {report.rounds}")
            if side in failed:
                continue
            try:
                found[side].append(_play(scenario, broker, report.seconds, body_bytes))
            except (LoadError, NotADelivery, ClientError) as error:
                failed.add(side)
                report.errors.append(f"{scenario.name} on {broker.product} at {broker.uri.address}: {error}")
    report.rows += _rows(scenario.name, [[] if side in failed else found[side] for side in range(len(found))])


def _play(scenario: Scenario, broker: Broker, seconds: float, body_bytes: int) -> list[Figure]:
    try:
        with Site(broker.uri, broker.pid, seconds, body_bytes) as site:
            return scenario.play(site)
    except OSError as error:
        raise Closed(f"connection lost: {error.strerror or error}") from None


def _rows(scenario: str, sides: Sequence[Sequence[Sequence[Figure]]]) -> list[Row]:
    """Figures by broker and round to rows by figure."""
    first = next((rounds[0] for rounds in sides if rounds), None)
    if first is None:
        return []
    return [
        Row(
            scenario,
            figure.label,
            figure.unit,
            tuple(summarise([figures[index] for figures in rounds]) if rounds else None for rounds in sides),
        )
        for index, figure in enumerate(first)
    ]


def _row_json(row: Row) -> dict[str, object]:
    sides = [
        None
        if side is None
        else {
            "median": side.value,
            "values": list(side.values),
            "broker_cpu_us": side.broker_cpu_us,
            "load_cpu_us": side.load_cpu_us,
        }
        for side in row.sides
    ]
    return {"scenario": row.scenario, "figure": row.label, "unit": row.unit, "ratio": row.ratio, "brokers": sides}
