"""`penstock user | permission | policy | setting`: who may do what, and how the broker behaves.

Place: cli.py adds them. One command is one request of the HTTP API; the broker checks and refuses.
Not here: queues, exchanges and the like (objects.py).
"""

from __future__ import annotations

import json
import sys
from typing import Annotated, Final

import typer

from penstock.console.picture import show
from penstock.console.site import DEFAULT_URL, Json, JsonOption, Saying, Site, SiteError, UrlOption, VhostOption, rows

POLICIES: Final = ("vhost", "name", "pattern", "apply-to", "priority", "definition")
SETTINGS: Final = ("name", "value", "default", "run_time")
ALL: Final = ".*"

user = typer.Typer(help="Users of a running broker.", no_args_is_help=True)
permission = typer.Typer(help="What users of a running broker may do.", no_args_is_help=True)
policy = typer.Typer(help="Policies of a running broker.", no_args_is_help=True)
setting = typer.Typer(help="Settings of a running broker.", no_args_is_help=True)

UserArgument = Annotated[str, typer.Argument(help="The user's name.")]
PasswordOption = Annotated[
    str | None, typer.Option(help="The password; without it, it is asked for, or read from standard input.")
]
TagOption = Annotated[
    list[str] | None,
    typer.Option("--tag", help="administrator, monitoring, policymaker or management. May be repeated."),
]
PolicyArgument = Annotated[str, typer.Argument(help="The policy's name.")]


# Users.


@user.command("list")
def list_users(url: UrlOption = DEFAULT_URL, as_json: JsonOption = False) -> None:
    """All users and their tags."""
    with Saying("user list"):
        show(rows(Site(url).get("users")), ("name", "tags"), as_json)


@user.command("add")
def add_user(
    name: UserArgument, password: PasswordOption = None, tag: TagOption = None, url: UrlOption = DEFAULT_URL
) -> None:
    """Make a user; it may enter no vhost before `penstock permission set`."""
    with Saying("user add"):
        site = Site(url)
        if any(one["name"] == name for one in rows(site.get("users"))):
            raise SiteError(f"there is a user {name} already: see `penstock user password` and `penstock user tags`")
        site.put("users", name, body={"password": _password(password), "tags": ",".join(tag or [])})
    print(f"added: user {name}")


@user.command("password")
def change_password(name: UserArgument, password: PasswordOption = None, url: UrlOption = DEFAULT_URL) -> None:
    """Give a user another password."""
    with Saying("user password"):
        site = Site(url)
        site.put("users", name, body={"password": _password(password), "tags": _tags(site, name)})
    print(f"changed: the password of {name}")


@user.command("tags")
def change_tags(name: UserArgument, tag: TagOption = None, url: UrlOption = DEFAULT_URL) -> None:
    """Give a user these tags and no others."""
    with Saying("user tags"):
        site = Site(url)
        found = site.get("users", name)
        assert isinstance(found, dict)
        kept: dict[str, Json] = {key: found[key] for key in ("password_hash", "hashing_algorithm") if key in found}
        site.put("users", name, body={**kept, "tags": ",".join(tag or [])})
    print(f"changed: the tags of {name} are {', '.join(tag or []) or 'none'}")


@user.command("delete")
def delete_user(name: UserArgument, url: UrlOption = DEFAULT_URL) -> None:
    """Delete a user; its connections are closed."""
    with Saying("user delete"):
        Site(url).delete("users", name)
    print(f"deleted: user {name}")


def _tags(site: Site, name: str) -> Json:
    found = site.get("users", name)
    return found.get("tags", []) if isinstance(found, dict) else []


def _password(given: str | None) -> str:
    """Asked for twice in a terminal; else the first line of standard input."""
    if given is not None:
        return given
    if sys.stdin.isatty():
        return str(typer.prompt("Password", hide_input=True, confirmation_prompt=True))
    read = sys.stdin.readline().rstrip("\n")
    if not read:
        raise SiteError("a password is needed: --password, or one line on standard input")
    return read


# Permissions.


@permission.command("list")
def list_permissions(url: UrlOption = DEFAULT_URL, as_json: JsonOption = False) -> None:
    """Who may do what where: three patterns of names."""
    with Saying("permission list"):
        show(rows(Site(url).get("permissions")), ("user", "vhost", "configure", "write", "read"), as_json)


@permission.command("set")
def set_permission(
    name: UserArgument,
    vhost: VhostOption = "/",
    configure: Annotated[str, typer.Option(help="Names it may declare and delete, as a pattern.")] = ALL,
    write: Annotated[str, typer.Option(help="Names it may publish to.")] = ALL,
    read: Annotated[str, typer.Option(help="Names it may consume from.")] = ALL,
    url: UrlOption = DEFAULT_URL,
) -> None:
    """Let a user into a vhost, with these patterns; all names without them."""
    with Saying("permission set"):
        body: Json = {"configure": configure, "write": write, "read": read}
        Site(url).put("permissions", vhost, name, body=body)
    print(f"set: {name} in vhost {vhost}: configure {configure}, write {write}, read {read}")


@permission.command("clear")
def clear_permission(name: UserArgument, vhost: VhostOption = "/", url: UrlOption = DEFAULT_URL) -> None:
    """Shut a user out of a vhost."""
    with Saying("permission clear"):
        Site(url).delete("permissions", vhost, name)
    print(f"cleared: {name} in vhost {vhost}")


# Policies.


@policy.command("list")
def list_policies(
    operator: Annotated[bool, typer.Option("--operator", help="The operators' own.")] = False,
    url: UrlOption = DEFAULT_URL,
    as_json: JsonOption = False,
) -> None:
    """All policies."""
    with Saying("policy list"):
        found = rows(Site(url).get(_policies(operator)))
        show(found, POLICIES, as_json, "there are no policies")


@policy.command("set")
def set_policy(
    name: PolicyArgument,
    pattern: Annotated[str, typer.Argument(help="Names it is for, as a pattern: ^orders")],
    definition: Annotated[str, typer.Argument(help='What it says, as JSON: {"max-length": 1000}')],
    vhost: VhostOption = "/",
    apply_to: Annotated[str, typer.Option(help="all, queues or exchanges.")] = "all",
    priority: Annotated[int, typer.Option(help="Of several the highest counts.")] = 0,
    operator: Annotated[bool, typer.Option("--operator", help="An operators' policy: a limit on top.")] = False,
    url: UrlOption = DEFAULT_URL,
) -> None:
    """Make or change a policy; it counts at once."""
    with Saying("policy set"):
        try:
            said = json.loads(definition)
        except ValueError as error:
            raise SiteError(f"the definition is not JSON: {error}") from None
        body: Json = {"pattern": pattern, "definition": said, "priority": priority}
        assert isinstance(body, dict)
        body["apply-to"] = "queues" if operator and apply_to == "all" else apply_to
        Site(url).put(_policies(operator), vhost, name, body=body)
    print(f"set: policy {name} in vhost {vhost}")


@policy.command("delete")
def delete_policy(
    name: PolicyArgument,
    vhost: VhostOption = "/",
    operator: Annotated[bool, typer.Option("--operator", help="An operators' policy.")] = False,
    url: UrlOption = DEFAULT_URL,
) -> None:
    """Take a policy away."""
    with Saying("policy delete"):
        Site(url).delete(_policies(operator), vhost, name)
    print(f"deleted: policy {name} in vhost {vhost}")


def _policies(operator: bool) -> str:
    return "operator-policies" if operator else "policies"


# Settings.


@setting.command("list")
def list_settings(
    section: Annotated[str | None, typer.Argument(help="Only names that begin so: credit, alarms …")] = None,
    url: UrlOption = DEFAULT_URL,
    as_json: JsonOption = False,
) -> None:
    """All settings in force; `run time` says which can be changed now."""
    with Saying("setting list"):
        found = [one for one in rows(Site(url).get("settings")) if str(one["name"]).startswith(section or "")]
        show(found, SETTINGS, as_json, f"no setting begins with {section}")


@setting.command("get")
def get_setting(
    name: Annotated[str, typer.Argument(help="As credit.channel_queue")], url: UrlOption = DEFAULT_URL
) -> None:
    """The value of one setting."""
    with Saying("setting get"):
        found = Site(url).get("settings", name)
        print(found["value"] if isinstance(found, dict) else "")


@setting.command("set")
def set_setting(
    name: Annotated[str, typer.Argument(help="As credit.channel_queue")],
    value: Annotated[str, typer.Argument(help="As 400,200")],
    url: UrlOption = DEFAULT_URL,
) -> None:
    """Change a setting of the running broker: at once, and until it stops."""
    with Saying("setting set"):
        Site(url).put("settings", name, body={"value": value})
    print(f"set: {name} is {value} until the broker stops")
