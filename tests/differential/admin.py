"""Admin: what an operator does to a broker in the middle of a case. The same verbs for both brokers.

RabbitAdmin speaks to RabbitMQ's management API; PenstockAdmin to a LiveBroker in this process. All that is done is
undone with `undo`, so that the next case finds a clean broker. This is the only file to change when Penstock's
administration changes.
Not here: when an administrator acts (the cases), what clients then see (script.py).
"""

from __future__ import annotations

import base64
import http.client
import json
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol
from urllib.parse import quote

from penstock.broker.admin import Admin as Operator
from penstock.broker.admin import AdminError, Json
from penstock.broker.password import known_secret
from tests.wire.live import LiveBroker

Definition = dict[str, Json]
TIMEOUT_S: Final = 60.0


class Admin(Protocol):
    def add_vhost(self, name: str) -> None: ...
    def delete_vhost(self, name: str) -> None: ...
    def put_user(self, name: str, password: str, tags: str = "") -> None: ...
    def delete_user(self, name: str) -> None: ...
    def set_permissions(self, user: str, vhost: str, configure: str, write: str, read: str) -> None: ...
    def clear_permissions(self, user: str, vhost: str) -> None: ...
    def set_topic_permissions(self, user: str, vhost: str, exchange: str, write: str, read: str) -> None: ...
    def set_policy(
        self, vhost: str, name: str, pattern: str, definition: Definition, apply_to: str = "all", priority: int = 0
    ) -> None: ...
    def clear_policy(self, vhost: str, name: str) -> None: ...
    def set_operator_policy(
        self, vhost: str, name: str, pattern: str, definition: Definition, apply_to: str = "queues", priority: int = 0
    ) -> None: ...
    def clear_operator_policy(self, vhost: str, name: str) -> None: ...
    def set_vhost_limits(self, vhost: str, limits: dict[str, int]) -> None: ...
    def set_user_limits(self, user: str, limits: dict[str, int]) -> None: ...
    def undo(self) -> None: ...


class RabbitAdmin:
    """RabbitMQ's management API, as guest."""

    def __init__(self, port: int) -> None:
        self._http = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
        self._undo: list[Callable[[], None]] = []

    def _call(self, verb: str, path: str, body: object = None, missing_is_fine: bool = False) -> None:
        login = base64.b64encode(b"guest:guest").decode()
        headers = {"Authorization": f"Basic {login}", "Content-Type": "application/json"}
        self._http.request(verb, f"/api/{path}", json.dumps(body) if body is not None else None, headers)
        answer = self._http.getresponse()
        text = answer.read().decode()
        if answer.status == 404 and missing_is_fine:
            return
        assert answer.status < 300, f"{verb} {path}: {answer.status} {text}"

    def _put(self, path: str, body: object) -> None:
        self._undo.append(lambda: self._delete(path))
        self._call("PUT", path, body)

    def _delete(self, path: str) -> None:
        self._call("DELETE", path, missing_is_fine=True)

    def close(self) -> None:
        self._http.close()

    def undo(self) -> None:
        while self._undo:
            self._undo.pop()()

    def add_vhost(self, name: str) -> None:
        self._put(f"vhosts/{_name(name)}", {})
        self.set_permissions("guest", name, ".*", ".*", ".*")

    def delete_vhost(self, name: str) -> None:
        self._delete(f"vhosts/{_name(name)}")

    def put_user(self, name: str, password: str, tags: str = "") -> None:
        self._put(f"users/{_name(name)}", {"password": password, "tags": tags})

    def delete_user(self, name: str) -> None:
        self._delete(f"users/{_name(name)}")

    def set_permissions(self, user: str, vhost: str, configure: str, write: str, read: str) -> None:
        # Not undone by itself: it goes with its user or vhost, and guest's must stay.
        body = {"configure": configure, "write": write, "read": read}
        self._call("PUT", f"permissions/{_name(vhost)}/{_name(user)}", body)

    def clear_permissions(self, user: str, vhost: str) -> None:
        self._delete(f"permissions/{_name(vhost)}/{_name(user)}")

    def set_topic_permissions(self, user: str, vhost: str, exchange: str, write: str, read: str) -> None:
        body = {"exchange": exchange, "write": write, "read": read}
        self._call("PUT", f"topic-permissions/{_name(vhost)}/{_name(user)}", body)

    def set_policy(
        self, vhost: str, name: str, pattern: str, definition: Definition, apply_to: str = "all", priority: int = 0
    ) -> None:
        body = {"pattern": pattern, "definition": definition, "apply-to": apply_to, "priority": priority}
        self._put(f"policies/{_name(vhost)}/{_name(name)}", body)

    def clear_policy(self, vhost: str, name: str) -> None:
        self._delete(f"policies/{_name(vhost)}/{_name(name)}")

    def set_operator_policy(
        self, vhost: str, name: str, pattern: str, definition: Definition, apply_to: str = "queues", priority: int = 0
    ) -> None:
        body = {"pattern": pattern, "definition": definition, "apply-to": apply_to, "priority": priority}
        self._put(f"operator-policies/{_name(vhost)}/{_name(name)}", body)

    def clear_operator_policy(self, vhost: str, name: str) -> None:
        self._delete(f"operator-policies/{_name(vhost)}/{_name(name)}")

    def set_vhost_limits(self, vhost: str, limits: dict[str, int]) -> None:
        for limit, value in limits.items():
            self._put(f"vhost-limits/{_name(vhost)}/{limit}", {"value": value})

    def set_user_limits(self, user: str, limits: dict[str, int]) -> None:
        for limit, value in limits.items():
            self._put(f"user-limits/{_name(user)}/{limit}", {"value": value})


def _name(text: str) -> str:
    return quote(text, safe="")


class PenstockAdmin:
    """The same verbs on a LiveBroker, by broker/admin.py on the broker's own thread."""

    def __init__(self, broker: LiveBroker) -> None:
        self._broker = broker
        self._verbs = Operator(broker.inside)
        self._undo: list[Callable[[], object]] = []

    def _call(self, change: Callable[[], object], missing_is_fine: bool = False) -> None:
        try:
            self._broker.call(change)
        except AdminError as error:
            if not (error.missing and missing_is_fine):
                raise

    def undo(self) -> None:
        while self._undo:
            self._call(self._undo.pop(), missing_is_fine=True)

    def add_vhost(self, name: str) -> None:
        self._undo.append(lambda: self._verbs.delete_vhost(name))
        self._call(lambda: self._verbs.put_vhost(name))
        self.set_permissions("guest", name, ".*", ".*", ".*")

    def delete_vhost(self, name: str) -> None:
        self._call(lambda: self._verbs.delete_vhost(name))

    def put_user(self, name: str, password: str, tags: str = "") -> None:
        secret = known_secret(password)  # RabbitMQ's hash: the slow one has tests of its own
        self._undo.append(lambda: self._verbs.delete_user(name))
        self._call(lambda: self._verbs.put_user(name, secret, [tags] if tags else []))

    def delete_user(self, name: str) -> None:
        self._call(lambda: self._verbs.delete_user(name))

    def set_permissions(self, user: str, vhost: str, configure: str, write: str, read: str) -> None:
        self._call(lambda: self._verbs.set_permissions(user, vhost, configure, write, read))

    def clear_permissions(self, user: str, vhost: str) -> None:
        self._call(lambda: self._verbs.clear_permissions(user, vhost))

    def set_topic_permissions(self, user: str, vhost: str, exchange: str, write: str, read: str) -> None:
        self._call(lambda: self._verbs.set_topic_permissions(user, vhost, exchange, write, read))

    def set_policy(
        self, vhost: str, name: str, pattern: str, definition: Definition, apply_to: str = "all", priority: int = 0
    ) -> None:
        self._undo.append(lambda: self._verbs.delete_policy(vhost, name))
        self._call(lambda: self._verbs.set_policy(vhost, name, pattern, definition, apply_to, priority))

    def clear_policy(self, vhost: str, name: str) -> None:
        self._call(lambda: self._verbs.delete_policy(vhost, name))

    def set_operator_policy(
        self, vhost: str, name: str, pattern: str, definition: Definition, apply_to: str = "queues", priority: int = 0
    ) -> None:
        self._undo.append(lambda: self._verbs.delete_policy(vhost, name, operator=True))
        self._call(lambda: self._verbs.set_policy(vhost, name, pattern, definition, apply_to, priority, operator=True))

    def clear_operator_policy(self, vhost: str, name: str) -> None:
        self._call(lambda: self._verbs.delete_policy(vhost, name, operator=True))

    def set_vhost_limits(self, vhost: str, limits: dict[str, int]) -> None:
        for limit, value in limits.items():
            self._call(partial(self._verbs.set_vhost_limit, vhost, limit, value))

    def set_user_limits(self, user: str, limits: dict[str, int]) -> None:
        for limit, value in limits.items():
            self._call(partial(self._verbs.set_user_limit, user, limit, value))
