"""Command line: `penstock serve`, `up`, `definitions`, `perf`, `pipeline`; for a running broker, what is in console/.

A user's mistake is one line on stderr and a non-zero exit.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock import __version__
from penstock.config import ConfigError, load
from penstock.console import objects, rules
from penstock.console.status import status
from penstock.console.top import top
from penstock.console.why import why
from penstock.definitionscommand import definitions
from penstock.perf.command import perf
from penstock.pipeline.command import pipeline
from penstock.streamcommand import stream
from penstock.up.command import up

if TYPE_CHECKING:
    from penstock.server import Server

TLS_PORT = 5671  # AMQP's, when TLS is on and no address is given

GROUPS = {
    "definitions": definitions,
    "stream": stream,
    "connection": objects.connection,
    "vhost": objects.vhost,
    "queue": objects.queue,
    "exchange": objects.exchange,
    "binding": objects.binding,
    "user": rules.user,
    "permission": rules.permission,
    "policy": rules.policy,
    "setting": rules.setting,
}

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
    listen_tls: Annotated[
        str | None, typer.Option(help="Address for AMQP over TLS; if tls.certificate is set, by default port 5671.")
    ] = None,
    management: Annotated[
        str | None, typer.Option(help="Address of the HTTP API, as 127.0.0.1:15672; off without it.")
    ] = None,
    data: Annotated[Path, typer.Option(help="Directory for all that is kept.")] = Path("data"),
    config: Annotated[Path | None, typer.Option(help="Settings in TOML.")] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", help="One setting: section.key=value.")] = None,
) -> None:
    """Run the broker until it is told to stop (SIGTERM, Ctrl-C)."""
    # Here, because no other command needs it: `penstock why` starts in a third of the time.
    from penstock.server import StartError, prepare_data, run_loop
    from penstock.server import serve as run_server

    try:
        host, port = address(listen)
        http = address(management) if management is not None else None
        loaded = load(config, os.environ, settings or [])
        tls = address(listen_tls) if listen_tls is not None else None
        if tls is None and loaded.word("tls.certificate"):
            tls = host, TLS_PORT
        prepare_data(data)
        run_loop(run_server(loaded, host, port, _ready, tls, data, http))
    except (ConfigError, StartError) as error:
        raise fail(str(error)) from None


def _ready(server: Server) -> None:
    tls = f", amqps {_shown(server.tls_host)}:{server.tls_port}" if server.tls_port else ""
    http = f", management http://{_shown(server.management_host)}:{server.management_port}/"
    management = http if server.management_port else ""
    print(f"ready: amqp {_shown(server.host)}:{server.port}{tls}{management}", flush=True)


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def commands() -> typer.Typer:
    """All of the command line."""
    for command in (up, perf, status, why, top):
        app.command()(command)
    for name, group in GROUPS.items():
        app.add_typer(group, name=name)
    app.add_typer(pipeline(), name="pipeline")
    return app


def main() -> None:
    commands()()
