"""Command: `penstock perf`, mounted by cli.py; also `python -m penstock.perf`.

Results go to stdout, progress and complaints to stderr.
Exit code 2: the command line is wrong; 1: a broker or a scenario failed.
Not here: the work (run.py), the table (table.py).
"""

import json
import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from penstock.client.connection import ClientError
from penstock.client.uri import UriError
from penstock.perf.run import ROUNDS, SECONDS, Report, UnknownScenario, run, runs
from penstock.perf.scenario import SCENARIOS
from penstock.perf.table import table

WRONG_USE = 2
FAILED = 1
INTERRUPTED = 130
SCENARIO_HELP = "\n\n".join(f"{scenario.name}: {scenario.about}" for scenario in SCENARIOS)


def perf(
    scenarios: Annotated[
        list[str],
        typer.Argument(
            metavar="SCENARIO…",
            help=f"What to measure, or all, or a pattern: persist-*.\n\n{SCENARIO_HELP}",
            show_default=False,
        ),
    ],
    uri: Annotated[str, typer.Option(help="The broker, as amqp://user:password@host:port/vhost.")] = "amqp://localhost",
    compare: Annotated[str | None, typer.Option(help="A second broker, measured in turns with the first.")] = None,
    seconds: Annotated[
        float, typer.Option(min=0.1, help="How long each run is measured, after its warm-up.")
    ] = SECONDS,
    rounds: Annotated[
        int | None, typer.Option(min=1, help=f"Runs of each scenario on each broker: {ROUNDS} with --compare, else 1.")
    ] = None,
    size: Annotated[int | None, typer.Option(min=0, help="Body size in bytes, instead of each scenario's own.")] = None,
    pid: Annotated[
        int | None, typer.Option(help="The broker's process, for its CPU time; if local, found by its port.")
    ] = None,
    compare_pid: Annotated[int | None, typer.Option(help="The same for the second broker.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Write the results to stdout as JSON.")] = False,
) -> None:
    """Put load on an AMQP 0-9-1 broker and say how fast it is; or on two, and say who is ahead."""
    turns = rounds or (ROUNDS if compare else 1)
    try:
        report = measured(scenarios, uri, compare, seconds, turns, size, pid, compare_pid)
    except (UriError, UnknownScenario) as error:
        raise _complaint(str(error), WRONG_USE) from None
    except ClientError as error:
        raise _complaint(str(error), FAILED) from None
    except KeyboardInterrupt:
        raise _complaint("stopped", INTERRUPTED) from None
    show(report, as_json)
    if report.errors:
        raise typer.Exit(FAILED)


def measured(
    scenarios: list[str],
    uri: str,
    compare: str | None,
    seconds: float,
    rounds: int,
    size: int | None = None,
    pid: int | None = None,
    compare_pid: int | None = None,
) -> Report:
    """run.run with a progress bar, if stderr is a terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    # Twice a second: drawing costs CPU that is the broker's.
    with Progress(
        *columns, console=console, transient=True, refresh_per_second=2, disable=not console.is_terminal
    ) as progress:
        task = progress.add_task("connecting", total=runs(scenarios, 2 if compare else 1, rounds))
        started = False

        def tell(what: str) -> None:
            nonlocal started
            progress.update(task, description=what, advance=1 if started else 0)
            started = True

        return run(
            scenarios,
            uri,
            compare,
            seconds=seconds,
            rounds=rounds,
            size=size,
            pid=pid,
            compare_pid=compare_pid,
            tell=tell,
        )


def show(report: Report, as_json: bool) -> None:
    """The results on stdout, the errors on stderr."""
    if as_json:
        print(json.dumps(report.as_json(), indent=2, ensure_ascii=False))
    elif report.rows:
        Console().print(table(report))
    for error in report.errors:
        print(f"penstock perf: {error}", file=sys.stderr)


def _complaint(text: str, code: int) -> typer.Exit:
    print(f"penstock perf: {text}", file=sys.stderr)
    return typer.Exit(code)
