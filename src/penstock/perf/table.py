"""Table: a report as a table for people. Rich draws it; nothing is measured or printed here."""

from rich.table import Table

from penstock.perf.figure import Summary
from penstock.perf.run import Report, Row


def table(report: Report) -> Table:
    """Scenario, each broker's median, the ratio, and what a message cost in CPU."""
    pair = len(report.brokers) > 1
    drawn = Table(caption=_caption(report), caption_justify="left")
    drawn.add_column("scenario", no_wrap=True)
    for title in titles(report):
        drawn.add_column(title, justify="right")
    if pair:
        drawn.add_column("ratio", justify="right")
    drawn.add_column("broker CPU,\nµs/message", justify="right")
    for row in report.rows:
        cells = [row.name, *(value(side, row.unit) for side in row.sides)]
        if pair:
            cells.append(_ratio(row))
        drawn.add_row(*cells, " / ".join(_cpu(side) for side in row.sides))
    return drawn


def titles(report: Report) -> list[str]:
    """The brokers' names, with their addresses where names alone would not tell them apart."""
    products = [broker.product for broker in report.brokers]
    if len(set(products)) == len(products):
        return products
    return [f"{broker.product}\n{broker.uri.address}" for broker in report.brokers]


def value(side: Summary | None, unit: str) -> str:
    if side is None:
        return "failed"
    digits = 0 if side.value >= 100 else 1
    return f"{side.value:,.{digits}f} {unit}"


def _ratio(row: Row) -> str:
    if row.ratio is None:
        return "-"
    # Green is ahead, red is behind; in a pipe there is no colour and the number says the same.
    style = "green" if row.ratio > 1 else "red"
    return f"[bold {style}]{row.ratio:.2f}[/]"


def _cpu(side: Summary | None) -> str:
    return "-" if side is None or side.broker_cpu_us is None else f"{side.broker_cpu_us:.1f}"


def _caption(report: Report) -> str:
    rounds = f"{report.rounds} rounds, medians" if report.rounds > 1 else "1 round"
    turns = ", in turns; ratio above 1: the first is ahead" if len(report.brokers) > 1 else ""
    return f"{report.seconds:g} s each, {rounds}{turns}"
