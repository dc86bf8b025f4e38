"""Router: a path, as it came, to its route. Paths are cut at their slashes first and percent-decoded part by part: a
vhost's name may have slashes, as %2F.

A path that nobody has is 404; one that has other methods only is 405 with `Allow`. HEAD is GET without its body.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from urllib.parse import unquote

from penstock.management.route import BadRequest, Route

REST: Final = ":path}"
NAME_BYTES_MAX: Final = 255  # what AMQP can say
PARTS_BYTES_MAX: Final = {"props": 1024}  # a binding's: a key, percent-encoded, and a hash


class _Node:
    __slots__ = ("named", "parts", "rest", "routes")

    def __init__(self) -> None:
        self.parts: dict[str, _Node] = {}
        self.named: _Node | None = None  # {name}: any one part
        self.rest: _Node | None = None  # {name:path}: all that is left
        self.routes: dict[str, Route] = {}


class NotFound(Exception):
    pass


class NotAllowed(Exception):
    def __init__(self, allow: str) -> None:
        super().__init__(allow)
        self.allow = allow


class Router:
    __slots__ = ("_root",)

    def __init__(self, routes: Iterable[Route]) -> None:
        self._root = _Node()
        for route in routes:
            node = self._root
            for part in route.path.strip("/").split("/"):
                if part.endswith(REST):
                    node.rest = node.rest or _Node()
                    node = node.rest
                elif part.startswith("{"):
                    node.named = node.named or _Node()
                    node = node.named
                else:
                    node = node.parts.setdefault(part, _Node())
            assert route.method not in node.routes, route
            node.routes[route.method] = route

    def match(self, method: str, raw_path: bytes) -> tuple[Route, dict[str, str]]:
        path = raw_path.decode("ascii", "replace")
        parts = path.removeprefix("/").removesuffix("/").split("/")
        found = self._find(self._root, parts, 0)
        if found is None or not found.routes:
            raise NotFound
        route = found.routes.get("GET" if method == "HEAD" else method)
        if route is None:
            raise NotAllowed(allow(found.routes))
        return route, _parameters(route, parts)

    def _find(self, node: _Node, parts: list[str], at: int) -> _Node | None:
        if at == len(parts):
            return node if node.routes else None
        part = parts[at]
        word = node.parts.get(part)
        if word is not None:
            found = self._find(word, parts, at + 1)
            if found is not None:
                return found
        if node.named is not None and part:
            found = self._find(node.named, parts, at + 1)
            if found is not None:
                return found
        return node.rest if part else None


def allow(methods: Iterable[str]) -> str:
    known = set(methods)
    if "GET" in known:
        known.add("HEAD")
    return ", ".join(sorted(known | {"OPTIONS"}))


def _parameters(route: Route, parts: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for at, template in enumerate(route.path.strip("/").split("/")):
        if template.endswith(REST):
            found[template[1 : -len(REST)]] = _decoded("/".join(parts[at:]))
        elif template.startswith("{"):
            name = template[1:-1]
            found[name] = _decoded(parts[at])
            limit = PARTS_BYTES_MAX.get(name, NAME_BYTES_MAX)
            if len(found[name].encode("utf-8")) > limit:
                raise BadRequest(f"'{name}' in the path is longer than {limit} bytes")
    return found


def _decoded(part: str) -> str:
    try:
        return unquote(part, errors="strict")
    except UnicodeDecodeError:
        raise BadRequest("the path is not UTF-8") from None
