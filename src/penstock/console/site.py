"""Site: a running broker's HTTP API, as the command line calls it.

Place: every command of this package makes one. Blocking, one connection per request: commands are short.
What goes wrong is a SiteError with one line for the user; the password is in none of them.
Not here: what is asked and how it is shown (the commands).
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
from types import TracebackType
from typing import Annotated, Final, NoReturn, Protocol
from urllib.parse import quote, unquote, urlencode, urlsplit

import typer

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
Row = dict[str, Json]

DEFAULT_URL: Final = "http://guest:guest@127.0.0.1:15672"
TIMEOUT_S: Final = 30.0  # for one answer: a definitions file of many queues takes its time
PORTS: Final = {"http": 15672, "https": 15671}

UrlOption = Annotated[
    str,
    typer.Option(
        envvar="PENSTOCK_URL",
        help="The broker's HTTP API: http://user:password@host:port; or in PENSTOCK_URL, where no ps shows it.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="As JSON, for programs.")]
VhostOption = Annotated[str, typer.Option(help="The virtual host.")]


class SiteError(Exception):
    """Why it cannot be done, in one line. `status` is HTTP's, 0 if there was no answer."""

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.status = status


class Answers(Protocol):
    """What commands need of a site."""

    def get(self, *path: str, **query: str) -> Json: ...


class Site:
    __slots__ = ("_authorization", "_host", "_is_secure", "_port", "shown")

    def __init__(self, url: str) -> None:
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise SiteError(f"the URL is wrong: {error}") from None
        if parts.scheme not in PORTS or not parts.hostname:
            raise SiteError("the URL is not http://user:password@host:port")
        if parts.path.strip("/") or parts.query or parts.fragment:
            raise SiteError("the URL ends behind the port: paths are the command's")
        self._is_secure = parts.scheme == "https"
        self._host = parts.hostname
        self._port = port if port is not None else PORTS[parts.scheme]
        user = unquote(parts.username) if parts.username is not None else "guest"
        password = unquote(parts.password) if parts.password is not None else "guest"
        self._authorization = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode("ascii")
        self.shown = f"{parts.scheme}://{self._host}:{self._port}"

    def get(self, *path: str, **query: str) -> Json:
        return self.call("GET", *path, query=query)

    def put(self, *path: str, body: Json = None) -> Json:
        return self.call("PUT", *path, body={} if body is None else body)

    def post(self, *path: str, body: Json = None) -> Json:
        return self.call("POST", *path, body={} if body is None else body)

    def delete(self, *path: str, **query: str) -> Json:
        return self.call("DELETE", *path, query=query)

    def call(self, method: str, *path: str, body: Json = None, query: dict[str, str] | None = None) -> Json:
        """The answer's JSON, or None if it has none. Each part of the path is quoted whole, slashes too."""
        target = "/api/" + "/".join(quote(part, safe="") for part in path)
        if query:
            target += "?" + urlencode(query)
        headers = {"Authorization": self._authorization, "Accept": "application/json"}
        sent: bytes | None = None
        if body is not None:
            sent = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        connection = self._connection()
        try:
            connection.request(method, target, sent, headers)
            response = connection.getresponse()
            received = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise SiteError(f"no answer from {self.shown}: {_reason(error)}") from None
        finally:
            connection.close()
        if response.status >= 400:
            raise SiteError(self._refusal(response.status, received), response.status)
        return _decoded(received, self.shown) if received else None

    def _connection(self) -> http.client.HTTPConnection:
        if self._is_secure:
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(self._host, self._port, timeout=TIMEOUT_S, context=context)
        return http.client.HTTPConnection(self._host, self._port, timeout=TIMEOUT_S)

    def _refusal(self, status: int, received: bytes) -> str:
        try:
            answer = json.loads(received)
        except ValueError:
            answer = None
        reason = answer.get("reason") if isinstance(answer, dict) else None
        if status == 401:
            return f"{self.shown} does not let this user in: {reason or 'wrong user or password'}"
        return (
            str(reason) if reason else f"{self.shown} answers {status} {http.client.responses.get(status, '')}".strip()
        )


class Saying:
    """As a context: a SiteError inside is one line on stderr and this exit code."""

    __slots__ = ("_code", "_name")

    def __init__(self, name: str, code: int = 1) -> None:
        self._name = name
        self._code = code

    def __enter__(self) -> None:
        return

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, SiteError):
            typer.echo(f"penstock {self._name}: {error}", err=True)
            raise typer.Exit(self._code) from None


def fail(name: str, text: str) -> NoReturn:
    typer.echo(f"penstock {name}: {text}", err=True)
    raise typer.Exit(1)


def rows(value: Json) -> list[Row]:
    """A list of objects, as the API sends them."""
    if not isinstance(value, list):
        raise SiteError("the answer is not a list: is this a broker's HTTP API?")
    return [one for one in value if isinstance(one, dict)]


def row(value: Json) -> Row:
    if not isinstance(value, dict):
        raise SiteError("the answer is not an object: is this a broker's HTTP API?")
    return value


def _decoded(received: bytes, shown: str) -> Json:
    try:
        value: Json = json.loads(received)
    except ValueError:
        raise SiteError(f"{shown} does not answer in JSON: is this a broker's HTTP API?") from None
    return value


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
