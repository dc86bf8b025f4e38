"""Body: what a request says, read and checked. A sentence with the reason if it is wrong.

Not here: what the broker has to say against it (broker/admin/).
"""

from __future__ import annotations

from typing import Final

import msgspec
from starlette.requests import Request

from penstock.broker.admin import Json
from penstock.management.route import BadRequest

TRUE: Final = ("true", "false")
DIGITS_MAX: Final = 18
SHORT_BYTES_MAX: Final = 255


async def read_raw(request: Request, limit: int) -> bytes:
    """All of the body, or 413."""
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > limit:
            raise BadRequest(f"the body is larger than {limit} bytes", "payload_too_large", 413)
        parts.append(part)
    return b"".join(parts)


async def read_body(request: Request, needed: bool = False) -> dict[str, Json]:
    """A JSON object; nothing is an empty one, unless it is needed."""
    raw = await read_raw(request, request.state.body_max)
    return json_object(raw) if raw or needed else {}


def json_object(raw: bytes) -> dict[str, Json]:
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"the body is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise BadRequest("the body is not a JSON object")
    return value


def text(body: dict[str, Json], name: str, default: str | None = None) -> str:
    value = body.get(name, default)
    if not isinstance(value, str):
        raise BadRequest(f"'{name}' is not a string" if name in body else f"'{name}' is missing")
    return value


def short(body: dict[str, Json], name: str, default: str | None = None) -> str:
    """A name or a key: what fits into AMQP's short strings."""
    value = text(body, name, default)
    if len(value.encode("utf-8", "surrogatepass")) > SHORT_BYTES_MAX:
        raise BadRequest(f"'{name}' is longer than {SHORT_BYTES_MAX} bytes")
    return value


def number(body: dict[str, Json], name: str, default: int | None = None) -> int:
    value = body.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadRequest(f"'{name}' is not an integer" if name in body else f"'{name}' is missing")
    return value


def count(body: dict[str, Json], name: str, default: int | None = None) -> int:
    """A number, or its digits in a string."""
    value = body.get(name, default)
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= DIGITS_MAX:
        return int(value)
    return number(body, name, default)


def flag(body: dict[str, Json], name: str, default: bool = False) -> bool:
    """True or false, or the words for it."""
    value = body.get(name, default)
    if isinstance(value, bool):
        return value
    if value in TRUE:
        return value == "true"
    raise BadRequest(f"'{name}' is neither true nor false")


def table(body: dict[str, Json], name: str) -> dict[str, Json]:
    """An object; nothing and an empty list are an empty one."""
    value = body.get(name, {})
    if value == []:  # as Erlang prints an empty table
        return {}
    if not isinstance(value, dict):
        raise BadRequest(f"'{name}' is not an object")
    return value


def required(body: dict[str, Json], *names: str) -> None:
    lacking = [name for name in names if name not in body]
    if lacking:
        raise BadRequest(
            " and ".join(f"'{name}'" for name in lacking) + f" {'is' if len(lacking) == 1 else 'are'} missing"
        )


def words(value: Json, name: str) -> list[str]:
    """A list of strings, or one string with commas."""
    if isinstance(value, str):
        return [word.strip() for word in value.split(",") if word.strip()]
    if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
        raise BadRequest(f"'{name}' is neither a list of strings nor a string")
    return [str(word) for word in value]


def part(request: Request, name: str) -> str:
    """A part of the path."""
    return str(request.path_params[name])


def vhost_if_given(request: Request) -> str | None:
    return part(request, "vhost") if "vhost" in request.path_params else None


def query_flag(request: Request, name: str) -> bool:
    value = request.query_params.get(name, "false")
    if value not in TRUE:
        raise BadRequest(f"'{name}' is neither true nor false")
    return value == "true"
