"""Headers: which bindings of a headers exchange a message's headers match, without looking at all of them.

A binding is a set of conditions, `x-match` says whether all or any of them must hold. Each condition is a header's name
with a value, or with no value: then the header must only be there. A binding of which all must hold waits under one
condition, the one that fewest others wait under; one of which any must hold, under each. A message is looked up by its
headers, and only the bindings found there are compared.
Not here: queues and bindings (exchange.py), what equal values are (equivalence.py:form).
"""

from __future__ import annotations

from typing import Final, Generic, TypeVar

from penstock.amqp.close import PRECONDITION_FAILED, CloseChannel
from penstock.amqp.table import Table
from penstock.broker.equivalence import Form, form, term, type_name

ALL: Final = "all"
ANY: Final = "any"
WITH_X: Final = "-with-x"
MODES: Final = (ALL, ANY, ALL + WITH_X, ANY + WITH_X)

Condition = tuple[str, Form | None]  # None: the header is there, with whatever value
Conditions = tuple[Condition, ...]
Value = TypeVar("Value")


def check_headers_arguments(arguments: Table) -> None:
    if "x-match" not in arguments:
        return
    mode = arguments["x-match"]
    if not isinstance(mode, (str, bytes)):
        raise CloseChannel(
            PRECONDITION_FAILED,
            f"Invalid x-match field type {type_name(mode)} (value {term(mode)}); expected longstr",
        )
    if mode not in MODES:
        raise CloseChannel(
            PRECONDITION_FAILED,
            f"Invalid x-match field value {term(mode)}; expected all, any, all-with-x, or any-with-x",
        )


def conditions(arguments: Table) -> tuple[bool, Conditions]:
    """Whether any is enough, and the conditions. Arguments that start with `x-` are some only with `-with-x`."""
    mode = str(arguments.get("x-match", ALL))
    with_x = mode.endswith(WITH_X)
    wanted = tuple(
        (name, None if value is None else form(value))
        for name, value in arguments.items()
        if name != "x-match" and (with_x or not name.startswith("x-"))
    )
    return mode.startswith(ANY), wanted


def headers_match(arguments: Table, headers: Table) -> bool:
    """RabbitMQ's rule, for one binding and one message. Of no conditions, all hold and not any one."""
    any_of, wanted = conditions(arguments)
    held = [_hold((condition,), headers, {}) for condition in wanted]
    return any(held) if any_of else all(held)


class HeadersIndex(Generic[Value]):
    __slots__ = ("_always", "_waiting")

    def __init__(self) -> None:
        self._always: dict[Value, None] = {}  # no condition, and all of them must hold
        # By a condition's name and what it wants: who waits there, and what else must hold.
        self._waiting: dict[str, dict[Form | None, dict[Value, Conditions]]] = {}

    def add(self, arguments: Table, value: Value) -> None:
        any_of, wanted = conditions(arguments)
        if any_of:
            for condition in wanted:
                self._wait(condition, value, ())
        elif wanted:
            rarest = min(wanted, key=self._waiters)
            self._wait(rarest, value, tuple(condition for condition in wanted if condition is not rarest))
        else:
            self._always[value] = None

    def _waiters(self, condition: Condition) -> int:
        return len(self._waiting.get(condition[0], {}).get(condition[1], ()))

    def _wait(self, condition: Condition, value: Value, others: Conditions) -> None:
        self._waiting.setdefault(condition[0], {}).setdefault(condition[1], {})[value] = others

    def remove(self, arguments: Table, value: Value) -> None:
        self._always.pop(value, None)
        for name, what in conditions(arguments)[1]:
            same_name = self._waiting.get(name, {})
            waiting = same_name.get(what, {})
            if value in waiting:
                del waiting[value]
                if not waiting:
                    del same_name[what]
                    if not same_name:
                        del self._waiting[name]

    def match(self, headers: Table) -> dict[Value, None]:
        """All values whose arguments match these headers, each once."""
        found = dict(self._always)
        forms: dict[str, Form] = {}  # of the headers looked at: most are nobody's
        for name in headers:
            same_name = self._waiting.get(name)
            if same_name is not None:
                for what in (None, _form_of(name, headers, forms)):
                    for waiter, others in same_name.get(what, {}).items():
                        if _hold(others, headers, forms):
                            found[waiter] = None
        return found

    def __bool__(self) -> bool:
        return bool(self._always or self._waiting)


def _form_of(name: str, headers: Table, forms: dict[str, Form]) -> Form:
    found = forms.get(name)
    if found is None:
        found = forms[name] = form(headers[name])
    return found


def _hold(wanted: Conditions, headers: Table, forms: dict[str, Form]) -> bool:
    for name, what in wanted:
        if name not in headers or (what is not None and what != _form_of(name, headers, forms)):
            return False
    return True
