"""`penstock up`: the command line of it.

Upstream: cli.py.  Downstream: check.py, then crew.py, by a Plan (plan.py).
A user's mistake is one line on stderr and a non-zero exit, before anything is started.
"""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Final

import typer

from penstock.client.uri import UriError, parse_uri
from penstock.config import Config, ConfigError, load
from penstock.up.check import Mistake, check_tables, check_words
from penstock.up.crew import Crew
from penstock.up.plan import NO_EVENTS, NO_SPARK, TABLES, URI_VARIABLE, Plan
from penstock.up.printer import Printer

LAST_LINES_S: Final = 2.0  # for a terminal to take what was said last


def up(
    listen: Annotated[str, typer.Option(help="Address for AMQP; port 0 takes a free one.")] = "127.0.0.1:5672",
    listen_tls: Annotated[
        str | None, typer.Option(help="Address for AMQP over TLS; if tls.certificate is set, by default port 5671.")
    ] = None,
    management: Annotated[str, typer.Option(help="Address of the page and the HTTP API.")] = "127.0.0.1:15672",
    data: Annotated[Path, typer.Option(help="Directory for all that is kept.")] = Path("data"),
    config: Annotated[Path | None, typer.Option(help="Settings in TOML.")] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", help="One setting: section.key=value.")] = None,
    tables: Annotated[
        Path | None, typer.Option(help="Directory of the pipeline's tables; DATA/pipeline by default.")
    ] = None,
    window: Annotated[int, typer.Option(help="Seconds that a row of the tables stands for, 1 to 600.")] = 10,
    master: Annotated[str, typer.Option(help="Where Spark runs: local[*], local[2], spark://host:7077.")] = "local[*]",
    memory: Annotated[str, typer.Option(help="Heap of Spark's JVM, as 1g.")] = "1g",
    demo: Annotated[bool, typer.Option("--demo", help="Play a load: producers, a slow consumer, bursts.")] = False,
    uri: Annotated[
        str | None,
        typer.Option(
            envvar=URI_VARIABLE,
            help="How pipeline and demo reach the broker, if not as guest: amqp://user:password@host:port; better in "
            "PENSTOCK_URI, where no ps shows it.",
        ),
    ] = None,
) -> None:
    """Run the broker, its page and the flow pipeline on a local Spark until told to stop (SIGTERM, Ctrl-C)."""
    try:
        loaded = load(config, os.environ, settings or [])
        if uri is not None:
            parse_uri(uri)
        check_words(window, master, memory)
        where, off = _tables(tables, loaded, data), _pipeline_off(loaded)
        if not off:
            check_tables(where, window)
    except (ConfigError, UriError, Mistake) as error:
        print(f"penstock: {error}", file=sys.stderr)
        raise typer.Exit(1) from None
    plan = Plan(
        listen=listen,
        listen_tls=listen_tls,
        management=management,
        data=data,
        tables=where,
        config=config,
        settings=settings or [],
        window_s=window,
        master=master,
        memory=memory,
        uri=uri,
        pipeline_off=off,
        with_demo=demo,
    )
    printer = Printer(loaded.word("log.format") == "json")
    code = Crew(plan, printer).run()
    printer.close(LAST_LINES_S)
    raise typer.Exit(code)


def _tables(given: Path | None, config: Config, data: Path) -> Path:
    """Where the tables are: as the command line says, else as the page's setting says, else with the broker's data."""
    named = config.word("management.tables")
    return (given or (Path(named) if named else data / TABLES)).absolute()


def _pipeline_off(config: Config) -> str:
    """Why there can be no pipeline; empty if there can."""
    if config.word("events.enabled") == "false":
        return NO_EVENTS
    return NO_SPARK if any(find_spec(name) is None for name in ("pyspark", "pyarrow")) else ""
