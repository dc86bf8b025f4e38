"""Web: an HTTP client for the API's tests, as plain as can be: status, headers and body of every answer."""

from __future__ import annotations

import base64
import http.client
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

TIMEOUT_S = 30


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]  # names in small letters
    raw: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.raw)

    @property
    def reason(self) -> str:
        return str(self.json["reason"])


class Web:
    """One user's connection to the API; `user` None is nobody. `cookie` is sent instead of a password."""

    def __init__(self, url: str, user: str | None = "guest", password: str = "guest", cookie: str = "") -> None:
        self.url = url
        self._headers: dict[str, str] = {}
        if user is not None:
            self._headers["Authorization"] = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
        if cookie:
            self._headers["Cookie"] = cookie
        self._connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=TIMEOUT_S)

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """`path` from /api/ on, unless it begins with a slash. A body that is not bytes is JSON."""
        raw = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        more = {name.replace("_", "-"): value for name, value in headers.items()}
        where = path if path.startswith("/") else f"/api/{path}"
        try:
            self._connection.request(method, where, raw, {**self._headers, **more})
            got = self._connection.getresponse()
        except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
            self._connection.close()  # it was not used for so long that the API has closed it
            self._connection.request(method, where, raw, {**self._headers, **more})
            got = self._connection.getresponse()
        with got as answer:
            return Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())

    def get(self, path: str) -> Any:
        return self._done(self.ask("GET", path), 200).json

    def put(self, path: str, body: Any = None) -> int:
        return self._done(self.ask("PUT", path, body), 201, 204).status

    def post(self, path: str, body: Any = None) -> Any:
        answer = self._done(self.ask("POST", path, body), 200, 201, 204)
        return answer.json if answer.raw else None

    def delete(self, path: str) -> None:
        self._done(self.ask("DELETE", path), 204)

    def _done(self, answer: Answer, *statuses: int) -> Answer:
        assert answer.status in statuses, (answer.status, answer.raw)
        return answer

    def close(self) -> None:
        self._connection.close()
