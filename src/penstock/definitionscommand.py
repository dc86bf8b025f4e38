"""`penstock definitions`: export and import, of a data directory or of a running broker.

Place: a part of the command line. What only one of the commands needs is imported there: `penstock why` should not wait
for it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from penstock.console.definitions import fetch_definitions, send_definitions
from penstock.console.site import Json, SiteError

definitions = typer.Typer(help="Users, vhosts, queues and so on in RabbitMQ's JSON.", no_args_is_help=True)


@definitions.command("export")
def export_definitions(
    data: Annotated[Path, typer.Option(help="Data directory; a broker may be running in it.")] = Path("data"),
    output: Annotated[Path | None, typer.Option(help="File to write; without it, standard output.")] = None,
    url: Annotated[
        str | None, typer.Option(help="Ask this running broker instead: http://user:password@host:port.")
    ] = None,
) -> None:
    """Write what a data directory holds, or a running broker has, as RabbitMQ's definitions."""
    if url is not None:
        _export_running(url, output)
        return
    from penstock.broker.definitions import document_of
    from penstock.broker.password import SCRYPT
    from penstock.broker.records import USER
    from penstock.store.definitions import DefinitionError, read_definitions
    from penstock.store.document import shown_document, write_document

    try:
        records = read_definitions(data)
        if not records:
            raise _fail(f"data directory {data} holds no definitions: no broker has run in it")
        document = document_of(records)
        if output is None:
            print(shown_document(document), end="")
        else:
            write_document(output, document)
    except DefinitionError as error:
        raise _fail(str(error)) from None
    _say_exported(document)
    own = [str(body["name"]) for kind, _, body in records if kind == USER and body["hashing_algorithm"] == SCRYPT]
    if own:
        print(f"warning: RabbitMQ cannot check the passwords of {', '.join(own)}: set new ones there", file=sys.stderr)


def _export_running(url: str, output: Path | None) -> None:
    from penstock.store.definitions import DefinitionError
    from penstock.store.document import shown_document, write_document

    try:
        document = fetch_definitions(url)
        if output is None:
            print(shown_document(document), end="")
        else:
            write_document(output, document)
    except (SiteError, DefinitionError) as error:
        raise _fail(str(error)) from None
    _say_exported(document)


def _say_exported(document: dict[str, Json]) -> None:
    counts = [f"{len(found)} {name.replace('_', ' ')}" for name, found in document.items() if isinstance(found, list)]
    print(f"exported: {', '.join(counts)}", file=sys.stderr)


@definitions.command("import")
def import_definitions(
    file: Annotated[Path, typer.Argument(help="Definitions in RabbitMQ's JSON.")],
    data: Annotated[Path | None, typer.Option(help="Data directory; no broker may be running in it.")] = None,
    url: Annotated[str | None, typer.Option(help="A running broker instead: http://user:password@host:port.")] = None,
    vhost: Annotated[str | None, typer.Option(help="The file is of one vhost: import it into this one.")] = None,
) -> None:
    """Add a definitions file to a data directory or a running broker: all of it or, with an error, nothing."""
    if (data is None) == (url is None):
        raise _fail("where to: --data DIRECTORY, or --url of a running broker")
    from penstock.broker.definitions import import_definitions as import_document
    from penstock.server import StartError, prepare_data, stopped_broker
    from penstock.store.definitions import DefinitionError
    from penstock.store.document import read_document

    try:
        document = read_document(file)
        if data is None:
            line, warnings = send_definitions(url or "", document, vhost)
            for warning in warnings:
                print(f"warning: {warning}", file=sys.stderr)
            print(f"imported: {line}")
            return
        prepare_data(data)
        with stopped_broker(data) as broker:
            summary = import_document(broker, document, vhost)
    except (StartError, DefinitionError, SiteError) as error:
        raise _fail(str(error)) from None
    for name in summary.transient:
        summary.warnings.append(f"{name} is not durable: it is not kept until a broker starts")
    for warning in summary.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    print(f"imported: {summary.line()}")


def _fail(text: str) -> typer.Exit:
    print(f"penstock: {text}", file=sys.stderr)
    return typer.Exit(1)
