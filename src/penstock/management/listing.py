"""Listing: of many things, those that were asked for: filtered by name, sorted, one page of them, some columns.

As in RabbitMQ: ?page, page_size, name, use_regex, sort, sort_reverse, columns. Without a page the whole list is sent,
piece by piece. What a caller may not see is not in it and not counted.
All work that grows with the list is done in slices, with the broker's turn between them.
Not here: what a thing looks like (broker/snapshot/), rates (rates.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Protocol

from starlette.requests import Request
from starlette.responses import Response

from penstock.broker.admin import Json
from penstock.management.answer import Slices, json_answer, list_answer
from penstock.management.body import query_flag
from penstock.management.login import Caller
from penstock.management.pattern import within
from penstock.management.route import Api, BadRequest, Query
from penstock.management.schema import STRING, Schema, one_of

PAGE_SIZE: Final = 100
PAGE_SIZE_MAX: Final = 500
DIGITS_MAX: Final = 9
COLUMNS_MAX: Final = 100  # more than anything has; each is looked for in every item
RATE: Final = "_details.rate"
OWN: Final = ("connections", "channels", "consumers")  # who does not see all sees their own
DEFAULT_SORT: Final[dict[str, tuple[str, ...]]] = {
    "bindings": ("vhost", "source", "destination"),
    "connections": ("name",),
    "channels": ("name",),
    "consumers": (),  # as they came
    "vhosts": ("name",),
}

STEPS_MAX: Final = 66_000  # of a pattern in one name: a few milliseconds

View = dict[str, Json]

POSITIVE: Final[Schema] = {"type": "integer", "minimum": 1, "maximum": 999_999_999}
FLAG_WORD: Final = one_of("true", "false")
COLUMNS: Final = Query("columns", STRING, "only these, with commas; `a.b` is inside of `a`")
PAGING: Final = (
    Query("page", POSITIVE, "one page only, the first is 1"),
    Query("page_size", {"type": "integer", "minimum": 1, "maximum": PAGE_SIZE_MAX}, f"{PAGE_SIZE} if not given"),
    Query("name", STRING, "whose names have this in them, in capitals or not"),
    Query("use_regex", FLAG_WORD, "the name is a regular expression"),
    Query("sort", STRING, "by this column"),
    Query("sort_reverse", FLAG_WORD, "the largest first"),
    COLUMNS,
)


class Items(Protocol):
    """The keys of what there is at one moment. A thing may be gone by the time it is looked at."""

    def __len__(self) -> int: ...
    def name(self, at: int, /) -> str: ...
    def value(self, at: int, column: str, /) -> Json: ...
    def view(self, at: int, /) -> View | None: ...
    def brief(self, columns: tuple[str, ...], /) -> Callable[[int], View | None] | None: ...


class Plain:
    """A short list that is there already."""

    __slots__ = ("_views",)

    def __init__(self, views: list[View]) -> None:
        self._views = views

    def __len__(self) -> int:
        return len(self._views)

    def name(self, at: int) -> str:
        return str(self._views[at].get("name", self._views[at].get("user", "")))

    def value(self, at: int, column: str) -> Json:
        return dig(self._views[at], column)

    def view(self, at: int) -> View | None:
        return self._views[at]

    def brief(self, columns: tuple[str, ...]) -> None:
        """They are made already."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What a request asks for."""

    page: int | None
    page_size: int
    matches: Callable[[str], bool] | None
    sort: str
    reverse: bool
    columns: tuple[str, ...]

    @classmethod
    def of(cls, request: Request) -> Wish:
        query = request.query_params
        use_regex = query_flag(request, "use_regex")
        reverse = query_flag(request, "sort_reverse")
        size = _positive(query.get("page_size"), "page_size")
        if size is not None and size > PAGE_SIZE_MAX:
            raise BadRequest(f"'page_size' is more than {PAGE_SIZE_MAX}", "invalid_pagination_parameters")
        name = query.get("name", "")
        return cls(
            _positive(query.get("page"), "page"),
            size or PAGE_SIZE,
            (_pattern(name) if use_regex else _substring(name)) if name else None,
            query.get("sort", ""),
            reverse,
            columns_of(request),
        )


def _positive(text: str | None, name: str) -> int | None:
    if text is None:
        return None
    if text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX and int(text) > 0:
        return int(text)
    raise BadRequest(f"'{name}' is not a number from 1 on", "invalid_pagination_parameters")


def _substring(name: str) -> Callable[[str], bool]:
    lowered = name.lower()
    return lambda one: lowered in one.lower()


def _pattern(text: str) -> Callable[[str], bool]:
    text = within(text, STEPS_MAX)
    try:
        pattern = re.compile(text, re.IGNORECASE)
    except (re.error, OverflowError, RecursionError) as error:
        raise BadRequest(f"the pattern cannot be read: {error}") from None
    return lambda one: pattern.search(one) is not None


def columns_of(request: Request) -> tuple[str, ...]:
    columns = tuple(filter(None, request.query_params.get("columns", "").split(",")))
    if len(columns) > COLUMNS_MAX:
        raise BadRequest(f"more than {COLUMNS_MAX} columns")
    return columns


def pick(view: View, columns: tuple[str, ...]) -> View:
    """Only these columns; all if none are named."""
    if not columns:
        return view
    picked: View = {}
    for column in columns:
        _put(picked, view, column.split("."))
    return picked


def _put(picked: View, view: View, path: list[str]) -> None:
    head, rest = path[0], path[1:]
    if head not in view:
        return
    value = view[head]
    if not rest:
        picked[head] = value
    elif isinstance(value, dict):
        inner = picked.setdefault(head, {})
        if isinstance(inner, dict):
            _put(inner, value, rest)


def dig(view: View, column: str) -> Json:
    """The value at `a.b`; None if it is not there."""
    value: Json = view
    for part in column.split("."):
        if not isinstance(value, dict) or part not in value:
            return None
        value = value[part]
    return value


async def listed(
    api: Api, request: Request, kind: str, items: Items, keep: Callable[[int], bool] | None = None
) -> Response:
    """The answer to a request for a list. `kind` says which rates; `keep` which of the items are meant at all."""
    wish = Wish.of(request)
    slices = Slices()
    chosen = list(range(len(items)))
    if keep is not None:
        chosen = await _kept(chosen, keep, slices)
    total = len(chosen)
    if wish.matches is not None:
        matches = wish.matches
        chosen = await _kept(chosen, lambda at: matches(items.name(at)), slices)
    chosen = await _sorted(api, kind, chosen, items, wish, slices)
    if wish.page is None:
        return list_answer(_views(api, kind, items, chosen, wish.columns))
    return json_answer(await _page(api, kind, items, chosen, wish, total, slices))


def of_kind(api: Api, caller: Caller, kind: str, vhost: str | None = None) -> Items:
    """Of what the broker has many of, those that the caller sees: by vhost, or their own."""
    if caller.sees_all():
        return api.admin.listing(kind, vhost)
    return api.admin.listing(kind, vhost, api.sight(caller), caller.name if kind in OWN else None)


def of_vhosts(api: Api, caller: Caller, views: list[View], column: str = "vhost") -> Items:
    """The same of a short list."""
    sight = api.sight(caller)
    return Plain(views if sight is None else [view for view in views if view[column] in sight])


async def _kept(chosen: list[int], keeps: Callable[[int], bool], slices: Slices) -> list[int]:
    kept: list[int] = []
    for at in chosen:
        if keeps(at):
            kept.append(at)
        if slices.over():
            await slices.rest()
    return kept


async def _sorted(api: Api, kind: str, chosen: list[int], items: Items, wish: Wish, slices: Slices) -> list[int]:
    """Nothing first, then numbers, then words. Each kind by itself: to compare what is all of one kind takes a tenth of
    the time, and the loop is held while it is sorted."""
    columns = (wish.sort,) if wish.sort else DEFAULT_SORT.get(kind, ("vhost", "name"))
    without: list[int] = []
    numbers: dict[int, float] = {}
    words: dict[int, str] = {}
    for at in chosen:
        if len(columns) == 1:
            value = _value(api, kind, items, at, columns[0])
        else:
            value = "\0".join(str(_value(api, kind, items, at, column)) for column in columns)
        if value is None:
            without.append(at)
        elif isinstance(value, int | float):
            numbers[at] = float(value)
        else:
            words[at] = str(value)
        if slices.over():
            await slices.rest()
    parts = [
        without,
        sorted(numbers, key=numbers.__getitem__, reverse=wish.reverse),
        sorted(words, key=words.__getitem__, reverse=wish.reverse),
    ]
    return [at for part in (reversed(parts) if wish.reverse else parts) for at in part]


def _value(api: Api, kind: str, items: Items, at: int, column: str) -> Json:
    """The column `a.b_details.rate` is the rate of the counter `a.b`: nobody need build a view for it."""
    if not column.endswith(RATE) or api.sampling is None:
        return items.value(at, column)
    counter = column.removesuffix(RATE).removeprefix("message_stats.")
    return api.sampling.rates.rate(kind, str(items.value(at, "vhost")), items.name(at), counter)


def _views(api: Api, kind: str, items: Items, chosen: list[int], columns: tuple[str, ...]) -> Iterator[View]:
    brief = items.brief(columns) if columns else None
    for at in chosen:
        view = brief(at) if brief is not None else items.view(at)
        if view is not None:  # else it is gone meanwhile
            yield view if brief is not None else pick(rated(api, kind, view), columns)


def rated(api: Api, kind: str, view: View) -> View:
    if api.sampling is not None and kind in RATED:
        api.sampling.rates.add(kind, view)
    return view


RATED: Final = ("queues", "exchanges", "channels", "connections", "vhosts")


async def _page(api: Api, kind: str, items: Items, chosen: list[int], wish: Wish, total: int, slices: Slices) -> View:
    assert wish.page is not None
    pages = max(1, -(-len(chosen) // wish.page_size))
    if wish.page > pages:
        raise BadRequest(
            f"there is no page {wish.page}: {len(chosen)} of {wish.page_size} each are {pages}", "page_out_of_range"
        )
    start = (wish.page - 1) * wish.page_size
    found: list[Json] = []
    for view in _views(api, kind, items, chosen[start : start + wish.page_size], wish.columns):
        found.append(view)
        if slices.over():
            await slices.rest()
    return {
        "filtered_count": len(chosen),
        "item_count": len(found),
        "items": found,
        "page": wish.page,
        "page_count": pages,
        "page_size": wish.page_size,
        "total_count": total,
    }
