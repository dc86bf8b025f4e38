"""Command line: `penstock serve`, `penstock perf`. A user's mistake is one line on stderr and a non-zero exit."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from penstock import __version__
from penstock.config import ConfigError, load
from penstock.perf.command import perf
from penstock.server import Server, StartError, prepare_data, run_loop
from penstock.server import serve as run_server

app = typer.Typer(
    name="penstock",
    help="An AMQP 0-9-1 broker with credit-based back-pressure.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def fail(text: str) -> typer.Exit:
    print(f"penstock: {text}", file=sys.stderr)
    return typer.Exit(1)


def address(text: str) -> tuple[str, int]:
    """`host:port`, with an IPv6 host in brackets."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise ConfigError(f"{text!r} is not an address host:port, as 127.0.0.1:5672")
    return host.strip("[]") or "0.0.0.0", int(port)


@app.callback(invoke_without_command=True)
def main_options(
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    if version:
        print(f"penstock {__version__}")
        raise typer.Exit


@app.command()
def serve(
    listen: Annotated[str, typer.Option(help="Address for AMQP; port 0 takes a free one.")] = "127.0.0.1:5672",
    management: Annotated[str | None, typer.Option(help="Address of the management page (not built yet).")] = None,
    data: Annotated[Path, typer.Option(help="Directory for all that is kept.")] = Path("data"),
    config: Annotated[Path | None, typer.Option(help="Settings in TOML.")] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", help="One setting: section.key=value.")] = None,
) -> None:
    """Run the broker until it is told to stop (SIGTERM, Ctrl-C)."""
    try:
        host, port = address(listen)
        if management is not None:
            address(management)
        loaded = load(config, os.environ, settings or [])
        prepare_data(data)
        if management is not None:
            print("penstock: the management page is not built yet, --management has no effect", file=sys.stderr)
        run_loop(run_server(loaded, host, port, _ready))
    except (ConfigError, StartError) as error:
        raise fail(str(error)) from None


def _ready(server: Server) -> None:
    server.log.warning("messages are kept in memory only: the store is not built yet, a restart loses them")
    host = f"[{server.host}]" if ":" in server.host else server.host
    print(f"ready: amqp {host}:{server.port}", flush=True)


def main() -> None:
    app.command()(perf)
    app()
