"""API: HTTP requests to handlers. Paths, methods, bodies and status codes are those of RabbitMQ's management plugin.

Place: server.py runs it beside the broker, in the same event loop; a change is answered when it is on disk. Here the
tables of all parts are joined, and every request goes the same way: its route, who it is, if they may, its handler.
A request that is wrong gets 4xx and {"error", "reason"}, as RabbitMQ has it.
Not here: verbs (broker/admin/), handlers (routes/ and the parts), starting and stopping (server.py, listen.py).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from penstock.broker.admin import Admin, AdminError
from penstock.management import assets, flowapi, history, metrics, tables
from penstock.management.answer import fault
from penstock.management.flowapi import FlowWatch
from penstock.management.login import NOBODY, Authenticate, Caller, Refused, caller_of, credentials, tagged
from penstock.management.route import Api, BadRequest, Route
from penstock.management.router import NotAllowed, NotFound, Router
from penstock.management.routes import (
    bindings,
    connections,
    definitions,
    exchanges,
    health,
    limits,
    login,
    overview,
    parameters,
    permissions,
    policies,
    queues,
    settings,
    users,
    vhosts,
)
from penstock.management.sampling import Sampling
from penstock.management.session import BY_ITSELF, COOKIE, HEADER, Sessions

SESSION_IDLE_S: Final = 1800.0
SESSION_MAX_S: Final = 28_800.0
SAFE: Final = ("GET", "HEAD", "OPTIONS")  # change nothing
# JSON is no page: whatever is in it, a browser that is led to it shows text.
ALWAYS: Final = [
    (name.lower().encode(), value.encode()) for name, value in {**assets.HEADERS, "Cache-Control": "no-store"}.items()
]
REALM: Final = 'Basic realm="RabbitMQ Management"'  # word for word: Perl's LWP has its passwords by realm

ROUTES: Final[tuple[Route, ...]] = (
    *login.ROUTES,
    *health.ROUTES,
    *overview.ROUTES,
    *connections.ROUTES,
    *exchanges.ROUTES,
    *queues.ROUTES,
    *bindings.ROUTES,
    *vhosts.ROUTES,
    *users.ROUTES,
    *permissions.ROUTES,
    *policies.ROUTES,
    *parameters.ROUTES,
    *limits.ROUTES,
    *definitions.ROUTES,
    *settings.ROUTES,
    *flowapi.ROUTES,
    *tables.ROUTES,
    *history.ROUTES,
    *metrics.ROUTES,
    *assets.ROUTES,
)


class Application:
    """The ASGI application, and what runs beside it."""

    def __init__(self, api: Api, routes: tuple[Route, ...]) -> None:
        api.routes = routes
        self.api = api
        self._router = Router(routes)

    def background(self) -> list[Callable[[], Awaitable[None]]]:
        """What is to run for as long as the API does."""
        return [part.run for part in (self.api.sampling, self.api.flow) if part is not None]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http"
        request = Request(scope, receive)
        try:
            answer = await self._answer(request)
        except ClientDisconnect:
            return  # in the middle of its request; nobody is there to be answered
        except Exception:  # a bug: the client is told, uvicorn logs it with its traceback
            await fault(500, "internal_error", "the broker's log says more")(scope, receive, send)
            raise
        if "Cache-Control" not in answer.headers:  # else it is a file of the page, with headers of its own
            answer.raw_headers.extend(ALWAYS)
        await answer(scope, receive, _without_body(send) if scope["method"] == "HEAD" else send)

    async def _answer(self, request: Request) -> Response:
        route: Route | None = None
        try:
            route, request.scope["path_params"] = self._router.match(request.method, request.scope["raw_path"])
            request.state.body_max = route.body_max
            caller = await self._caller(request, route)
            return await route.handler(self.api, request, caller)
        except NotFound:
            # Who is not logged in learns nothing about which paths there are, nor what would be wrong with one.
            return await self._unless_refused(request, fault(404, "Object Not Found", "Not Found"))
        except NotAllowed as error:
            if request.method == "OPTIONS":
                return await self._unless_refused(request, Response(headers={"Allow": error.allow}))
            wrong = fault(405, "method_not_allowed", f"allowed: {error.allow}", {"Allow": error.allow})
            return await self._unless_refused(request, wrong)
        except Refused as error:
            if route is not None and route.page and error.status == 401:
                return Response(status_code=303, headers={"Location": "/login"})
            return _refusal(request, error)
        except BadRequest as error:
            wrong = fault(error.status, error.error, str(error))
            return wrong if route is not None else await self._unless_refused(request, wrong)
        except AdminError as error:
            if error.missing:
                return fault(404, "Object Not Found", str(error))
            if error.refused:
                return fault(403, "not_authorised", str(error))
            return fault(400, "bad_request", str(error))

    async def _unless_refused(self, request: Request, answer: Response) -> Response:
        try:
            await self._login(request)
        except Refused as error:
            return _refusal(request, error)
        return answer

    async def _caller(self, request: Request, route: Route) -> Caller:
        """Who it is, if they may."""
        if request.method not in SAFE:
            _check_origin(request)
        if not route.needs.tags:
            return NOBODY
        caller = await self._login(request)
        route.needs.check(caller)
        if "vhost" in request.path_params:
            self.api.check_sight(caller, request.path_params["vhost"])
        return caller

    async def _login(self, request: Request) -> Caller:
        header = request.headers.get("authorization")
        token = request.cookies.get(COOKIE)
        if header is None and token is not None:
            return self._by_session(request, token)
        return await caller_of(*credentials(header or ""), client_host(request), self.api.authenticate)

    def _by_session(self, request: Request, token: str) -> Caller:
        session = self.api.sessions.find(token, request.headers.get(HEADER) != BY_ITSELF)
        user = login.user_of(self.api, session.user) if session is not None else None
        if session is None or user is None or user["password_hash"] != session.proof:
            self.api.sessions.close(token)
            raise Refused(401, "the session is over; log in again")
        if request.method not in SAFE and HEADER not in request.headers:
            raise Refused(403, "with a session, changes need the header X-Penstock: 1")
        return tagged(session.user, login.tags_of(user))


def application(
    admin: Admin,
    authenticate: Authenticate,
    session_idle_s: float = SESSION_IDLE_S,
    session_max_s: float = SESSION_MAX_S,
    tables_directory: str = "",
) -> Application:
    api = Api(admin, authenticate, Sessions(session_idle_s, session_max_s))
    api.sampling = Sampling(admin)
    api.flow = FlowWatch(admin)
    api.tables = tables.Tables(tables_directory)
    return Application(api, ROUTES)


def client_host(request: Request) -> str:
    return request.client.host if request.client is not None else ""


def _check_origin(request: Request) -> None:
    """A browser sends its user's password, once typed in, with whatever a foreign page makes it send."""
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is not None:  # browsers of today say it, also through a proxy that changes Host
        foreign = site not in ("same-origin", "none")
    else:
        foreign = origin is not None and origin.partition("://")[2] != request.headers.get("host")
    if foreign:
        raise Refused(403, "the request comes from another site's page")


def _refusal(request: Request, error: Refused) -> Response:
    # A page that logs in by itself wants no dialog of the browser's.
    asks = error.status == 401 and HEADER not in request.headers
    return fault(error.status, "not_authorised", str(error), {"WWW-Authenticate": REALM} if asks else None)


def _without_body(send: Send) -> Send:
    async def head_only(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.body":
            message = {**message, "body": b""}
        await send(message)

    return head_only
