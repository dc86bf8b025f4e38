"""Command line: `penstock serve`, `penstock definitions`, `penstock stream`, `penstock perf`.

A user's mistake is one line on stderr and a non-zero exit.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from penstock import __version__
from penstock.broker.definitions import document_of
from penstock.broker.definitions import import_definitions as import_document
from penstock.broker.password import SCRYPT
from penstock.broker.records import USER
from penstock.config import ConfigError, load
from penstock.perf.command import perf
from penstock.server import Server, StartError, prepare_data, run_loop, stopped_broker
from penstock.server import serve as run_server
from penstock.store.definitions import DefinitionError, read_definitions
from penstock.store.document import read_document, shown_document, write_document
from penstock.streamcommand import stream

TLS_PORT = 5671  # AMQP's, when TLS is on and no address is given

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


definitions = typer.Typer(help="Users, vhosts, queues and so on in RabbitMQ's JSON.", no_args_is_help=True)


@definitions.command("export")
def export_definitions(
    data: Annotated[Path, typer.Option(help="Data directory; a broker may be running in it.")] = Path("data"),
    output: Annotated[Path | None, typer.Option(help="File to write; without it, standard output.")] = None,
) -> None:
    """Write what a data directory holds as RabbitMQ's definitions."""
    try:
        records = read_definitions(data)
        if not records:
            raise fail(f"data directory {data} holds no definitions: no broker has run in it")
        document = document_of(records)
        if output is None:
            print(shown_document(document), end="")
        else:
            write_document(output, document)
    except DefinitionError as error:
        raise fail(str(error)) from None
    counts = [f"{len(found)} {name.replace('_', ' ')}" for name, found in document.items() if isinstance(found, list)]
    print(f"exported: {', '.join(counts)}", file=sys.stderr)
    own = [str(body["name"]) for kind, _, body in records if kind == USER and body["hashing_algorithm"] == SCRYPT]
    if own:
        print(f"warning: RabbitMQ cannot check the passwords of {', '.join(own)}: set new ones there", file=sys.stderr)


@definitions.command("import")
def import_definitions(
    file: Annotated[Path, typer.Argument(help="Definitions in RabbitMQ's JSON.")],
    data: Annotated[Path, typer.Option(help="Data directory; no broker may be running in it.")],
    vhost: Annotated[str | None, typer.Option(help="The file is of one vhost: import it into this one.")] = None,
) -> None:
    """Add a definitions file to a data directory: all of it or, with an error, nothing."""
    try:
        document = read_document(file)
        prepare_data(data)
        with stopped_broker(data) as broker:
            summary = import_document(broker, document, vhost)
    except (StartError, DefinitionError) as error:
        raise fail(str(error)) from None
    for name in summary.transient:
        summary.warnings.append(f"{name} is not durable: it is not kept until a broker starts")
    for warning in summary.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    print(f"imported: {summary.line()}")


def main() -> None:
    app.add_typer(definitions, name="definitions")
    app.add_typer(stream, name="stream")
    app.command()(perf)
    app()
