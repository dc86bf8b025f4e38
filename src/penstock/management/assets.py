"""Assets: the files of the web page, as they are in management/page/.

Place: api.py joins ROUTES to its own. page/login/ is public, it is what a login needs; page/app/ is for those who
have logged in. All files are read once and named by one hash of them all, `/page/HASH/main.js`: a browser
keeps them for ever, and a new version of the page is a new address. The two HTML files are asked for every time.
Not here: sessions (session.py), what the page shows (page/app/), which is built from the API alone.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from penstock.management.login import Caller
from penstock.management.route import LOGIN, PUBLIC, Api, Route

FOLDER: Final = Path(__file__).parent / "page"
VERSION_LENGTH: Final = 16  # hexadecimal digits of the hash: enough to tell versions apart
PLACEHOLDER: Final = b"VERSION"  # in the HTML files, where the hash goes

KINDS: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}

# Nothing from elsewhere and nothing inline: what a message, a queue's name or a header says can never run.
POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
    )
)
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
ALWAYS_ASK: Final = "no-cache"
FOR_EVER: Final = "private, max-age=31536000, immutable"


class Asset:
    """One file, ready to be sent."""

    __slots__ = ("content", "kind", "tag")

    def __init__(self, content: bytes, kind: str) -> None:
        self.content = content
        self.kind = kind
        self.tag = f'"{hashlib.sha256(content).hexdigest()[:VERSION_LENGTH]}"'

    def answer(self, request: Request, keep: str) -> Response:
        headers = {**HEADERS, "ETag": self.tag, "Cache-Control": keep}
        if self.tag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(self.content, headers=headers, media_type=self.kind)


class Page:
    """All files, by folder and path below it, and the hash that names this version of them."""

    __slots__ = ("files", "version")

    def __init__(self, folder: Path) -> None:
        paths = sorted(path for path in folder.rglob("*") if path.suffix in KINDS)
        found = {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}
        whole = hashlib.sha256()
        for name, content in found.items():
            whole.update(f"{name} {len(content)}\n".encode())
            whole.update(content)
        self.version = whole.hexdigest()[:VERSION_LENGTH]
        self.files = {
            name: Asset(
                content.replace(PLACEHOLDER, self.version.encode()) if name.endswith(".html") else content,
                KINDS[Path(name).suffix],
            )
            for name, content in found.items()
        }

    def answer(self, request: Request, name: str, keep: str) -> Response:
        asset = self.files.get(name)
        if asset is None:
            return Response("there is no such file\n", 404, HEADERS, "text/plain; charset=utf-8")
        return asset.answer(request, keep)


@cache
def page() -> Page:
    """Read at the first request: a broker whose page nobody opens does not read it."""
    return Page(FOLDER)


async def login_page(api: Api, request: Request, caller: Caller) -> Response:
    return page().answer(request, "login/login.html", ALWAYS_ASK)


async def login_file(api: Api, request: Request, caller: Caller) -> Response:
    """Few and small, and the address has no version: asked for every time, answered 304."""
    name = str(request.path_params["file"])
    return page().answer(request, "" if name.endswith(".html") else f"login/{name}", ALWAYS_ASK)


async def shell(api: Api, request: Request, caller: Caller) -> Response:
    return page().answer(request, "app/index.html", ALWAYS_ASK)


async def page_file(api: Api, request: Request, caller: Caller) -> Response:
    """Only the version that is here: what belongs to another one would not fit."""
    here = request.path_params["version"] == page().version
    return page().answer(request, f"app/{request.path_params['path']}" if here else "", FOR_EVER)


HTML: Final = "text/html"
ROUTES: Final = (
    Route("GET", "/login", login_page, PUBLIC, "The login page", media=HTML, statuses=(200, 304)),
    Route("GET", "/login/{file}", login_file, PUBLIC, "Its style and script", media="text/css", statuses=(200, 304)),
    Route("GET", "/", shell, LOGIN, "The page", media=HTML, statuses=(200, 303, 304), page=True),
    Route("GET", "/page/{version}/{path:path}", page_file, LOGIN, "Its files", media="text/css", statuses=(200, 304)),
)
