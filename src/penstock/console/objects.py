"""`penstock vhost | queue | exchange | binding | connection`: look at what is there, make it, take it away.

Place: cli.py adds them. One command is one request of the HTTP API; the broker checks and refuses.
Not here: users, permissions, policies and settings (rules.py).
"""

from __future__ import annotations

import json
from typing import Annotated, Final

import typer

from penstock.console.picture import show
from penstock.console.site import (
    DEFAULT_URL,
    Json,
    JsonOption,
    Row,
    Saying,
    Site,
    SiteError,
    UrlOption,
    VhostOption,
    rows,
)

PAGE_ROWS: Final = "500"  # the most that the API gives at once

QUEUES: Final = (
    "vhost",
    "name",
    "type",
    "state",
    "messages_ready",
    "messages_unacknowledged",
    "consumers",
    "blocked_by",
)
EXCHANGES: Final = ("vhost", "name", "type", "durable", "auto_delete", "internal", "arguments")
BINDINGS: Final = ("vhost", "source", "destination", "destination_type", "routing_key", "arguments")
CONNECTIONS: Final = ("name", "user", "vhost", "state", "channels", "blocked_by")
CHANNELS: Final = (
    "name",
    "user",
    "vhost",
    "state",
    "consumer_count",
    "messages_unacknowledged",
    "prefetch_count",
    "blocked_by",
)
CONSUMERS: Final = (
    "queue.vhost",
    "queue.name",
    "consumer_tag",
    "channel_details.name",
    "ack_required",
    "prefetch_count",
)

NameArgument = Annotated[str, typer.Argument(help="Its name.")]
AnyVhostOption = Annotated[str | None, typer.Option("--vhost", help="Only of this virtual host.")]
ArgumentOption = Annotated[
    list[str] | None,
    typer.Option("--argument", help="x-name=value; a value is JSON, or else a string. May be repeated."),
]

vhost = typer.Typer(help="Virtual hosts of a running broker.", no_args_is_help=True)
queue = typer.Typer(help="Queues of a running broker.", no_args_is_help=True)
exchange = typer.Typer(help="Exchanges of a running broker.", no_args_is_help=True)
binding = typer.Typer(help="Bindings of a running broker.", no_args_is_help=True)
connection = typer.Typer(help="Connections of a running broker.", no_args_is_help=True)


def listed(site: Site, *path: str) -> list[Row]:
    """All rows of a listing, page by page: a broker with very many answers each page at once."""
    found: list[Row] = []
    page = 1
    while True:
        answer = site.get(*path, page=str(page), page_size=PAGE_ROWS)
        if not isinstance(answer, dict):
            return rows(answer)
        found += rows(answer.get("items"))
        pages = answer.get("page_count")
        if not isinstance(pages, int) or page >= pages:
            return found
        page += 1


def arguments_of(given: list[str] | None) -> dict[str, Json]:
    """`x-max-length=10` is a number, `x-queue-type=stream` a string."""
    found: dict[str, Json] = {}
    for one in given or []:
        name, equals, text = one.partition("=")
        if not equals or not name:
            raise SiteError(f"--argument {one}: expected name=value")
        try:
            found[name] = json.loads(text)
        except ValueError:
            found[name] = text
    return found


# Virtual hosts.


@vhost.command("list")
def list_vhosts(url: UrlOption = DEFAULT_URL, as_json: JsonOption = False) -> None:
    """All virtual hosts."""
    with Saying("vhost list"):
        show(rows(Site(url).get("vhosts")), ("name", "description", "tags"), as_json)


@vhost.command("add")
def add_vhost(
    name: NameArgument, description: Annotated[str, typer.Option(help="For people.")] = "", url: UrlOption = DEFAULT_URL
) -> None:
    """Make a virtual host; nobody may use it before `penstock permission set`."""
    with Saying("vhost add"):
        Site(url).put("vhosts", name, body={"description": description} if description else {})
    print(f"added: vhost {name}")


@vhost.command("delete")
def delete_vhost(name: NameArgument, url: UrlOption = DEFAULT_URL) -> None:
    """Delete a virtual host with all its queues and messages; its connections are closed."""
    with Saying("vhost delete"):
        Site(url).delete("vhosts", name)
    print(f"deleted: vhost {name}")


# Queues.


@queue.command("list")
def list_queues(vhost: AnyVhostOption = None, url: UrlOption = DEFAULT_URL, as_json: JsonOption = False) -> None:
    """Queues and streams, what they hold, and what blocks them."""
    with Saying("queue list"):
        show(listed(Site(url), "queues", *([vhost] if vhost else [])), QUEUES, as_json, "there are no queues")


@queue.command("show")
def show_queue(name: NameArgument, vhost: VhostOption = "/", url: UrlOption = DEFAULT_URL) -> None:
    """All that the broker says about one queue, as JSON."""
    with Saying("queue show"):
        print(json.dumps(Site(url).get("queues", vhost, name), indent=2, ensure_ascii=False))


@queue.command("declare")
def declare_queue(
    name: NameArgument,
    vhost: VhostOption = "/",
    durable: Annotated[bool, typer.Option(help="It outlives the broker's process.")] = True,
    auto_delete: Annotated[bool, typer.Option("--auto-delete", help="It goes with its last consumer.")] = False,
    argument: ArgumentOption = None,
    url: UrlOption = DEFAULT_URL,
) -> None:
    """Declare a queue. It may be there already, if it is the same."""
    with Saying("queue declare"):
        body: Json = {"durable": durable, "auto_delete": auto_delete, "arguments": arguments_of(argument)}
        Site(url).put("queues", vhost, name, body=body)
    print(f"declared: queue {name} in vhost {vhost}")


@queue.command("purge")
def purge_queue(name: NameArgument, vhost: VhostOption = "/", url: UrlOption = DEFAULT_URL) -> None:
    """Drop all messages that are ready."""
    with Saying("queue purge"):
        Site(url).delete("queues", vhost, name, "contents")
    print(f"purged: queue {name} in vhost {vhost}")


@queue.command("delete")
def delete_queue(
    name: NameArgument,
    vhost: VhostOption = "/",
    if_empty: Annotated[bool, typer.Option("--if-empty", help="Only if it has no messages.")] = False,
    if_unused: Annotated[bool, typer.Option("--if-unused", help="Only if it has no consumers.")] = False,
    url: UrlOption = DEFAULT_URL,
) -> None:
    """Delete a queue with its messages."""
    query = {"if-empty": "true"} if if_empty else {}
    if if_unused:
        query["if-unused"] = "true"
    with Saying("queue delete"):
        Site(url).delete("queues", vhost, name, **query)
    print(f"deleted: queue {name} in vhost {vhost}")


@queue.command("consumers")
def list_consumers(vhost: AnyVhostOption = None, url: UrlOption = DEFAULT_URL, as_json: JsonOption = False) -> None:
    """Who consumes from which queue."""
    with Saying("queue consumers"):
        found = listed(Site(url), "consumers", *([vhost] if vhost else []))
        show(found, CONSUMERS, as_json, "there are no consumers")


# Exchanges and bindings.


@exchange.command("list")
def list_exchanges(vhost: AnyVhostOption = None, url: UrlOption = DEFAULT_URL, as_json: JsonOption = False) -> None:
    """All exchanges; the default one has no name."""
    with Saying("exchange list"):
        show(listed(Site(url), "exchanges", *([vhost] if vhost else [])), EXCHANGES, as_json)


@exchange.command("declare")
def declare_exchange(
    name: NameArgument,
    kind: Annotated[str, typer.Option("--type", help="direct, fanout, topic, headers, x-consistent-hash …")] = "direct",
    vhost: VhostOption = "/",
    durable: Annotated[bool, typer.Option(help="It outlives the broker's process.")] = True,
    argument: ArgumentOption = None,
    url: UrlOption = DEFAULT_URL,
) -> None:
    """Declare an exchange. It may be there already, if it is the same."""
    with Saying("exchange declare"):
        body: Json = {"type": kind, "durable": durable, "arguments": arguments_of(argument)}
        Site(url).put("exchanges", vhost, name, body=body)
    print(f"declared: exchange {name} in vhost {vhost}")


@exchange.command("delete")
def delete_exchange(name: NameArgument, vhost: VhostOption = "/", url: UrlOption = DEFAULT_URL) -> None:
    """Delete an exchange with its bindings."""
    with Saying("exchange delete"):
        Site(url).delete("exchanges", vhost, name)
    print(f"deleted: exchange {name} in vhost {vhost}")


@binding.command("list")
def list_bindings(vhost: AnyVhostOption = None, url: UrlOption = DEFAULT_URL, as_json: JsonOption = False) -> None:
    """What goes where."""
    with Saying("binding list"):
        show(listed(Site(url), "bindings", *([vhost] if vhost else [])), BINDINGS, as_json)


@binding.command("add")
def add_binding(
    source: Annotated[str, typer.Argument(help="The exchange.")],
    destination: Annotated[str, typer.Argument(help="The queue.")],
    key: Annotated[str, typer.Option(help="The routing key or pattern.")] = "",
    vhost: VhostOption = "/",
    argument: ArgumentOption = None,
    url: UrlOption = DEFAULT_URL,
) -> None:
    """Bind a queue to an exchange."""
    with Saying("binding add"):
        body: Json = {"routing_key": key, "arguments": arguments_of(argument)}
        Site(url).post("bindings", vhost, "e", source, "q", destination, body=body)
    print(f"bound: {source} to {destination} by {key!r}")


@binding.command("delete")
def delete_binding(
    source: Annotated[str, typer.Argument(help="The exchange.")],
    destination: Annotated[str, typer.Argument(help="The queue.")],
    key: Annotated[str, typer.Option(help="The routing key or pattern.")] = "",
    vhost: VhostOption = "/",
    url: UrlOption = DEFAULT_URL,
) -> None:
    """Take away the bindings of a queue to an exchange that have this key."""
    with Saying("binding delete"):
        site = Site(url)
        found = [
            one for one in rows(site.get("bindings", vhost, "e", source, "q", destination)) if one["routing_key"] == key
        ]
        if not found:
            raise SiteError(f"no binding of {source} to {destination} by {key!r} in vhost {vhost}")
        for one in found:
            site.delete("bindings", vhost, "e", source, "q", destination, str(one["properties_key"]))
    print(f"unbound: {source} from {destination} by {key!r}")


# Connections and channels.


@connection.command("list")
def list_connections(url: UrlOption = DEFAULT_URL, as_json: JsonOption = False) -> None:
    """Who is connected, and what holds them back."""
    with Saying("connection list"):
        show(listed(Site(url), "connections"), CONNECTIONS, as_json, "nobody is connected")


@connection.command("channels")
def list_channels(url: UrlOption = DEFAULT_URL, as_json: JsonOption = False) -> None:
    """The channels of all connections."""
    with Saying("connection channels"):
        show(listed(Site(url), "channels"), CHANNELS, as_json, "nobody is connected")


@connection.command("close")
def close_connection(
    name: Annotated[str, typer.Argument(help="As `penstock connection list` shows it.")],
    url: UrlOption = DEFAULT_URL,
) -> None:
    """Close a connection; its client is told."""
    with Saying("connection close"):
        Site(url).delete("connections", name)
    print(f"closed: {name}")
