"""Fit: from measured samples and syncs to a plant.

What a stage was busy with in a second is so many turns and so many messages. Seconds with different batches tell the
two apart; that is least squares. Where all batches are alike they cannot be told apart, and the prior decides: the
prior's own split, scaled to what was measured. Both are one formula: least squares with a pull towards the scaled prior
that is weak against many different seconds and decides where these say nothing.
Upstream: rows of the tables `samples`, `syncs` and `resources`, as plain mappings.  Downstream: simulate.py.
Not here: reading tables (spark/).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from penstock.flow.twin.clients import DELIVER_BYTES, METHOD_BYTES
from penstock.flow.twin.disk import RECORD_BYTES
from penstock.flow.twin.machine import LONG_WAITS
from penstock.flow.twin.plant import Cost, Plant
from penstock.flow.twin.stages import FRAMING_BYTES

Row = Mapping[str, object]

PULL: Final = 0.04  # of the prior: a few seconds with different batches weigh as much
SAMPLED: Final = ("connection", "channel", "queue")  # kinds whose samples tell of the broker's thread
SWITCH_US: Final = 25.0  # waits for a core this short, on average, are the kernel's way to a thread that was woken
LITTLE: Final = 0.1  # of what the prior says: less was hardly measured
GAP_S: Final = 3.0  # samples further apart than that are no interval: between them the settings may have been others
SYNC_STEPS: Final = 2000  # sync times: what is rarer than one in 2000 hardly shows in a p99
SYNC_BOUNDS_US: Final = (500, 1000, 2500, 5000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000)
WRITE_BYTE_MAX_US: Final = 0.05  # 20 MB/s
REST_MAX: Final = 2.5  # what the prior says of unmeasured work is believed up to this factor


class Interval:
    """What one stage did between two samples."""

    __slots__ = ("busy_us", "received", "sent", "stage", "turns", "write_us")

    def __init__(
        self, stage: str, busy_us: float, turns: float, received: float, sent: float, write_us: float = 0.0
    ) -> None:
        self.stage = stage
        self.busy_us = busy_us
        self.turns = turns
        self.received = received
        self.sent = sent
        self.write_us = write_us


def fit(
    samples: Iterable[Row],
    syncs: Iterable[Row] = (),
    resources: Iterable[Row] = (),
    prior: Plant | None = None,
    settings: Mapping[str, object] | None = None,
    body_bytes: int = 100,
) -> Plant:
    """The plant that these rows were measured on. `settings` are those of the broker in force then (`faults.*` and
    `limits.parked_bytes` count), `body_bytes` the size of its messages; what the rows say nothing of is the prior's."""
    plant = _with_settings(prior if prior is not None else Plant(), settings or {})
    syncs = list(syncs)
    times = sync_times(syncs)
    if times:
        plant = replace(plant, sync_us=times, sync_delay_us=0.0)  # a delay by faults.* is in what was measured
    whole = Whole(resources)
    by_kind: dict[str, list[Interval]] = {}
    for kind, interval in intervals(samples):
        by_kind.setdefault(kind, []).append(interval)
    channels, queues = by_kind.get("channel", []), by_kind.get("queue", [])
    # Delays by faults.* are counted as work, of a queue for acks too.
    for one in channels:
        one.busy_us = max(0.0, one.busy_us - one.received * plant.channel_delay_us)
    for one in queues:
        own_us = one.busy_us - one.received * plant.queue_delay_us
        acks_us = one.sent * plant.queue_delay_us
        one.busy_us = max(0.0, own_us - acks_us if own_us >= acks_us else own_us)
    plant = _fit_journal(plant, by_kind.get("store", []), syncs, body_bytes)
    on_cpu = _on_cpu(plant, whole, by_kind, body_bytes)
    for found in by_kind.values():
        for one in found:
            one.busy_us *= on_cpu
            one.write_us *= on_cpu
    plant = _fit_channel(plant, channels)
    plant = _fit_queue(plant, queues)
    plant = _fit_reader(plant, by_kind.get("connection", []), body_bytes)
    plant = _fit_rest(plant, whole, by_kind, body_bytes)
    if whole.waits > 0 and whole.cpu_us > 0:
        mean_us = whole.wait_us / whole.waits
        steal_us = mean_us / LONG_WAITS if mean_us > SWITCH_US else mean_us
        plant = replace(plant, stolen=whole.wait_us / whole.cpu_us, steal_us=max(1.0, steal_us))
    return plant


class Whole:
    """What the broker's thread as a whole did while it was sampled: the table `resources`, added up."""

    __slots__ = ("cpu_us", "elapsed_us", "wait_us", "waits")

    def __init__(self, resources: Iterable[Row]) -> None:
        self.cpu_us = self.wait_us = self.waits = self.elapsed_us = 0.0
        before: Row | None = None
        for row in sorted(resources, key=_when):
            if row.get("cpu_us") is None:
                continue
            if before is not None and _when(row) - _when(before) <= GAP_S and _more(row, before, "cpu_us") >= 0:
                self.elapsed_us += (_when(row) - _when(before)) * 1e6
                self.cpu_us += _more(row, before, "cpu_us")
                self.wait_us += max(0.0, _more(row, before, "wait_us"))
                self.waits += max(0.0, _more(row, before, "waits"))
            before = row

    @property
    def load(self) -> float:
        """The part of the time that it could have worked in which it did."""
        free_us = self.elapsed_us - self.wait_us
        return min(1.0, self.cpu_us / free_us) if free_us > 0 else 1.0


def intervals(samples: Iterable[Row]) -> list[tuple[str, Interval]]:
    """Differences of one stage's counters from sample to sample, with its kind; none where they went back."""
    last: dict[str, Row] = {}
    found: list[tuple[str, Interval]] = []
    for row in sorted(samples, key=_when):
        if row.get("busy_us") is None or row.get("turns") is None:
            continue
        stage = str(row.get("stage"))
        before = last.get(stage)
        last[stage] = row
        if before is None or _when(row) - _when(before) > GAP_S:
            continue
        deltas = [_more(row, before, name) for name in ("busy_us", "turns", "received", "sent", "write_us")]
        if min(deltas) < 0 or deltas[1] <= 0:
            continue
        found.append((str(row.get("kind")), Interval(stage, *deltas)))
    return found


def _fit_channel(plant: Plant, found: Sequence[Interval]) -> Plant:
    publishing = [one for one in found if one.received > 0]
    if not publishing:
        return plant
    turn_us, message_us = solve(
        [(one.turns, one.received) for one in publishing],
        [one.busy_us for one in publishing],
        (plant.channel.turn_us, plant.channel.message_us),
    )
    # Turns that tell of confirms are among them: one cost for both kinds.
    return replace(plant, channel=Cost(turn_us, message_us), confirm=Cost(turn_us, plant.confirm.message_us))


def _fit_queue(plant: Plant, found: Sequence[Interval]) -> Plant:
    """Arrivals, deliveries and acks are in the same turns: what is there for a turn and a message is scaled as one."""
    if not found:
        return plant
    out_us = plant.deliver.message_us + plant.settle.message_us
    prior = (plant.queue.turn_us + plant.deliver.turn_us, plant.queue.message_us, out_us)
    turn_us, in_us, given_us = solve(
        [(one.turns, one.received, one.sent) for one in found], [one.busy_us for one in found], prior
    )
    turns, given = _ratio(turn_us, prior[0]), _ratio(given_us, prior[2])
    return replace(
        plant,
        queue=Cost(plant.queue.turn_us * turns, in_us),
        deliver=Cost(plant.deliver.turn_us * turns, plant.deliver.message_us * given),
        settle=Cost(plant.settle.turn_us * turns, plant.settle.message_us * given),
    )


def _fit_reader(plant: Plant, found: Sequence[Interval], body_bytes: int) -> Plant:
    """Reads and the reader's own turns are counted together: there are far more of the latter at full load."""
    reading = [one for one in found if one.received > 0]
    if not reading:
        return plant
    wire = body_bytes + FRAMING_BYTES + METHOD_BYTES
    message_us = plant.read.message_us + plant.reader.message_us + wire * plant.byte_us
    per_read = max(1, plant.read_bytes // wire)
    prior = (plant.reader.turn_us, message_us + plant.read.turn_us / per_read)
    turn_us, each_us = solve([(one.turns, one.received) for one in reading], [one.busy_us for one in reading], prior)
    turns, each = _ratio(turn_us, prior[0]), _ratio(each_us, prior[1])
    return replace(
        plant,
        reader=Cost(plant.reader.turn_us * turns, plant.reader.message_us * each),
        read=Cost(
            plant.read.turn_us * turns,
            max(0.0, message_us * each - plant.reader.message_us * each - wire * plant.byte_us),
        ),
    )


def _on_cpu(plant: Plant, whole: Whole, by_kind: Mapping[str, Sequence[Interval]], body_bytes: int) -> float:
    """The part of the time that stages were busy, by the clock, in which they had a core. Some of the time in which the
    thread waited for a core is in what was timed and some is between; the prior says how much CPU time the samples
    should be of all, and what was timed is believed as far as there were no waits at all."""
    sampled_us = _sampled_us(by_kind)
    if whole.cpu_us <= 0 or whole.wait_us <= 0 or sampled_us <= 0:
        return 1.0
    expected_us = _prior_sampled_us(plant, by_kind, body_bytes)
    rest_us = _prior_rest_us(plant, whole, by_kind, body_bytes)
    part = whole.cpu_us * expected_us / ((expected_us + rest_us) * sampled_us)
    return min(1.0, max(whole.cpu_us / (whole.cpu_us + whole.wait_us), part))


def _fit_rest(plant: Plant, whole: Whole, by_kind: Mapping[str, Sequence[Interval]], body_bytes: int) -> Plant:
    """What no sample tells: the store's encoding, writes to consumers, their acks, the event loop itself. Together they
    are the thread's CPU time less what the samples tell; the prior says how that is shared out."""
    rest_us = whole.cpu_us - _sampled_us(by_kind)
    prior_us = _prior_rest_us(plant, whole, by_kind, body_bytes)
    if rest_us <= 0 or prior_us <= 0:
        return plant
    scale = min(REST_MAX, max(1 / REST_MAX, rest_us / prior_us))
    return replace(
        plant,
        write=_scaled(plant.write, scale),
        ack=_scaled(plant.ack, scale),
        store=_scaled(plant.store, scale),
        deposit_us=plant.deposit_us * scale,
        synced=_scaled(plant.synced, scale),
        loop_us=plant.loop_us * scale,
        write_out_byte_us=plant.write_out_byte_us * scale,
    )


def _fit_journal(plant: Plant, found: Sequence[Interval], syncs: Iterable[Row], body_bytes: int) -> Plant:
    """What the journal's thread is busy with beside syncs is writing: so much for each byte."""
    turns, received = sum(one.turns for one in found), sum(one.received for one in found)
    count, took_us = sync_sums(syncs)
    if turns <= 0 or received <= 0 or count <= 0:
        return plant
    write_us = sum(one.busy_us for one in found) / turns - took_us / count
    bytes_ = received / turns * (body_bytes + FRAMING_BYTES + RECORD_BYTES)
    return replace(plant, write_byte_us=min(WRITE_BYTE_MAX_US, max(0.0, write_us / bytes_)))


def _sampled_us(by_kind: Mapping[str, Sequence[Interval]]) -> float:
    return sum(one.busy_us + one.write_us for kind in SAMPLED for one in by_kind.get(kind, ()))


def _prior_sampled_us(plant: Plant, by_kind: Mapping[str, Sequence[Interval]], body_bytes: int) -> float:
    """What the sampled work would take by the prior."""
    wire = body_bytes + FRAMING_BYTES + METHOD_BYTES
    read_us = plant.read.message_us + plant.reader.message_us + wire * plant.byte_us
    total = 0.0
    for one in by_kind.get("connection", ()):
        total += one.turns * plant.reader.turn_us + one.received * read_us + one.write_us
    for one in by_kind.get("channel", ()):
        total += one.turns * plant.channel.turn_us + one.received * plant.channel.message_us
    for one in by_kind.get("queue", ()):
        total += one.turns * (plant.queue.turn_us + plant.deliver.turn_us) + one.received * plant.queue.message_us
        total += one.sent * (plant.deliver.message_us + plant.settle.message_us)
    return total


def _prior_rest_us(plant: Plant, whole: Whole, by_kind: Mapping[str, Sequence[Interval]], body_bytes: int) -> float:
    """What all else would take by the prior."""
    queues, stores = by_kind.get("queue", ()), by_kind.get("store", ())
    delivered = sum(one.sent for one in queues)
    stored, syncs = sum(one.received for one in stores), sum(one.turns for one in stores)
    # Rounds of the event loop: one for each turn of a queue when there is little to do, half as many at full load.
    rounds = (1 - 0.5 * whole.load) * sum(one.turns for one in queues)
    out_bytes = body_bytes + FRAMING_BYTES + DELIVER_BYTES
    return (
        delivered * (plant.write.message_us + out_bytes * plant.write_out_byte_us + plant.ack.message_us)
        + stored * plant.store.message_us
        + syncs * (plant.store.turn_us + plant.synced.turn_us)
        + rounds * (plant.loop_us + plant.write.turn_us)
    )


def _scaled(cost: Cost, scale: float) -> Cost:
    return Cost(cost.turn_us * scale, cost.message_us * scale)


def _ratio(found: float, prior: float) -> float:
    return found / prior if prior > 0 else 1.0


def sync_sums(syncs: Iterable[Row]) -> tuple[float, float]:
    """How many there were, and how long they took together."""
    count = took_us = 0.0
    for row in syncs:
        many = _number(row, "count")
        count += many
        took_us += _number(row, "duration_us") or many * _number(row, "mean_us")
    return count, took_us


def sync_times(syncs: Iterable[Row]) -> tuple[float, ...]:
    """How long syncs take: so many that stand for equally many each, from the shortest to the longest. From the
    percentiles of each window, or from the histogram of each second as the events have it. Each is the mean of those it
    stands for, so that the longest of thousands does not count for more than one."""
    pieces: list[tuple[float, float, float]] = []  # syncs that took from this to that, and how many
    for row in syncs:
        histogram = row.get("histogram")
        if isinstance(histogram, Mapping):
            pieces += _of_histogram(row, histogram)
        else:
            pieces += _of_percentiles(row)
    total = sum(count for _, _, count in pieces)
    if total <= 0:
        return ()
    return tuple(_means(_points(pieces), total / SYNC_STEPS))


def _points(pieces: Iterable[tuple[float, float, float]]) -> list[tuple[float, float]]:
    """At each edge of a piece, how many syncs are below it, and once more with those that took exactly so long. One
    sweep over all edges: a day of windows has forty thousand pieces."""
    turns: dict[float, list[float]] = {}  # edge -> how much denser it gets there, how many pieces more, how many at it
    for low, high, count in pieces:
        begin = turns.setdefault(low, [0.0, 0.0, 0.0])
        if high <= low:
            begin[2] += count
            continue
        density = count / (high - low)
        begin[0] += density
        begin[1] += 1
        end = turns.setdefault(high, [0.0, 0.0, 0.0])
        end[0] -= density
        end[1] -= 1
    points: list[tuple[float, float]] = []
    at = below = density = open_ = 0.0
    for edge, (denser, more, many) in sorted(turns.items()):
        below += max(0.0, density) * (edge - at) if open_ else 0.0
        points += [(edge, below), (edge, below + many)]
        at, below, density, open_ = edge, below + many, density + denser, open_ + more
    return points


def _means(points: Sequence[tuple[float, float]], each: float) -> list[float]:
    """Of the shortest `each` syncs, of the next as many, and so on; between two points they lie evenly."""
    sums = [0.0] * SYNC_STEPS
    low, reached = points[0]
    for high, count in points:
        begin, begin_us = reached, low
        while count > begin:
            step = min(int(begin / each + 1e-9), SYNC_STEPS - 1)
            end = count if step == SYNC_STEPS - 1 else min(count, (step + 1) * each)
            end_us = low + (high - low) * (end - reached) / (count - reached)
            sums[step] += (end - begin) * (begin_us + end_us) / 2
            begin, begin_us = end, end_us
        low, reached = high, count
    return [sum_ / each for sum_ in sums]


def _of_percentiles(row: Row) -> list[tuple[float, float, float]]:
    count, p50 = _number(row, "count"), _number(row, "p50_us")
    if count <= 0 or p50 <= 0:
        return []
    p95 = max(p50, _number(row, "p95_us"))
    p99 = max(p95, _number(row, "p99_us"))
    longest = max(p99, _number(row, "longest_us"))
    # The longer, the rarer: of those above p99 all but the square root are in the lower half of what they range over.
    above_p99 = 0.01 * count
    rare = min(1.0, above_p99**-0.5) / 2 if longest > p99 else 0.0
    middle = (p99 + longest) / 2
    pieces = [
        (p50, p95, 0.45 * count),
        (p95, p99, 0.04 * count),
        (p99, middle, (1 - rare) * above_p99),
        (middle, longest, rare * above_p99),
    ]
    # The lower half of all is where the mean puts it, as far as it can.
    mean = _number(row, "mean_us") or p50
    above = sum(many * (low + high) / 2 for low, high, many in pieces) / count
    low = min(p50, max(0.3 * p50, 4 * (mean - above) - p50))
    return [(low, p50, 0.5 * count), *pieces]


def _of_histogram(row: Row, histogram: Mapping[str, object]) -> list[tuple[float, float, float]]:
    """Classes are wide, so each is squeezed, towards its upper or its lower end, until the mean comes out right."""
    longest, count = _number(row, "longest_us"), _number(row, "count")
    bounds = [0.0, *SYNC_BOUNDS_US]
    pieces: list[tuple[float, float, float]] = []
    for name, many in histogram.items():
        if not isinstance(many, (int, float)) or many <= 0:
            continue
        high = float(name) if name != "inf" else max(longest, SYNC_BOUNDS_US[-1])
        low = max(bound for bound in bounds if bound < high)
        pieces.append((low, min(high, longest) if longest > low else high, float(many)))
    middle = sum(many * (low + high) / 2 for low, high, many in pieces)
    spread = sum(many * (high - low) / 2 for low, high, many in pieces)
    if count <= 0 or spread <= 0:
        return pieces
    part = min(1.0, max(-1.0, (_number(row, "duration_us") - middle) / spread))
    up, down = max(part, 0.0), min(part, 0.0)
    return [(low + up * (high - low), high + down * (high - low), many) for low, high, many in pieces]


def solve(rows: Sequence[Sequence[float]], goals: Sequence[float], prior: Sequence[float]) -> tuple[float, ...]:
    """The factors, none below zero, by which the rows come nearest to the goals: least squares, pulled towards the
    prior scaled to the goals' sum. With no rows, the prior."""
    size = len(prior)
    predicted = sum(sum(x * p for x, p in zip(row, prior, strict=True)) for row in rows)
    if not rows or predicted <= 0 or sum(goals) <= 0:
        return tuple(prior)
    scale = sum(goals) / predicted
    scaled = [max(1e-9, value * scale) for value in prior]
    # In units of the scaled prior every factor is near 1, so that one pull suits all.
    units = [[x * unit for x, unit in zip(row, scaled, strict=True)] for row in rows]
    # Errors as a part of what was measured; where next to nothing was (few turns, none of them timed), of the prior.
    weights = [1.0 / max(goal, LITTLE * sum(row), 1e-9) for goal, row in zip(goals, units, strict=True)]
    free = list(range(size))
    factors = [0.0] * size
    while free:
        matrix = [
            [sum((w * u[i]) * (w * u[j]) for u, w in zip(units, weights, strict=True)) for j in free] for i in free
        ]
        right = [sum(w * u[i] * w * goal for u, w, goal in zip(units, weights, goals, strict=True)) for i in free]
        for at in range(len(free)):
            matrix[at][at] += PULL
            right[at] += PULL
        answer = _eliminate(matrix, right)
        for at, i in enumerate(free):
            factors[i] = answer[at]
        below = [i for i in free if factors[i] < 0]
        if not below:
            break
        for i in below:
            factors[i] = 0.0
        free = [i for i in free if i not in below]
    return tuple(factor * unit for factor, unit in zip(factors, scaled, strict=True))


def _eliminate(matrix: list[list[float]], right: list[float]) -> list[float]:
    """The solution of a small system of equations whose matrix is positive definite."""
    size = len(right)
    for column in range(size):
        for row in range(column + 1, size):
            factor = matrix[row][column] / matrix[column][column]
            for at in range(column, size):
                matrix[row][at] -= factor * matrix[column][at]
            right[row] -= factor * right[column]
    answer = [0.0] * size
    for row in range(size - 1, -1, -1):
        rest = sum(matrix[row][at] * answer[at] for at in range(row + 1, size))
        answer[row] = (right[row] - rest) / matrix[row][row]
    return answer


def _with_settings(plant: Plant, settings: Mapping[str, object]) -> Plant:
    def number(name: str, otherwise: float) -> float:
        value = settings.get(name)
        return float(str(value)) if value is not None else otherwise

    return replace(
        plant,
        channel_delay_us=number("faults.channel_delay_us", plant.channel_delay_us),
        queue_delay_us=number("faults.queue_delay_us", plant.queue_delay_us),
        parked_bytes_max=int(number("limits.parked_bytes", plant.parked_bytes_max)),
    )


def _when(row: Row) -> float:
    at = row.get("at")
    if isinstance(at, datetime):
        return at.timestamp()
    return float(at) if isinstance(at, (int, float)) else 0.0


def _more(row: Row, before: Row, name: str) -> float:
    return _number(row, name) - _number(before, name)


def _number(row: Row, name: str) -> float:
    value = row.get(name)
    return float(value) if isinstance(value, (int, float)) else 0.0
