"""Users: who there is, what is remembered of them, and that every change is written down."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.broker.ledger import NO_LEDGER, Json
from penstock.broker.password import DECOY, NO_PASSWORD, SHA256, Secret, known_secret
from penstock.broker.users import MAX_CHANNELS, MAX_CONNECTIONS, NO_LIMIT, UserError, Users

ONE = known_secret("one", b"\1\2\3\4")
TWO = known_secret("two", b"\5\6\7\0")


class Notes:
    """A ledger that keeps what it was told."""

    def __init__(self) -> None:
        self.lines: list[tuple[Any, ...]] = []

    def put(self, kind: str, key: tuple[str, ...], body: dict[str, Json]) -> None:
        self.lines.append(("put", kind, key, body))

    def drop(self, kind: str, key: tuple[str, ...]) -> None:
        self.lines.append(("drop", kind, key))

    def after_commit(self, callback: Callable[[], None]) -> None:
        callback()

    def told(self) -> list[tuple[Any, ...]]:
        lines, self.lines = self.lines, []
        return lines


@pytest.fixture
def notes() -> Notes:
    return Notes()


@pytest.fixture
def users(notes: Notes) -> Users:
    users = Users(notes)
    users.put_user("alice", ONE, ["monitoring"], {MAX_CHANNELS: 5})
    notes.told()
    return users


# The default user.


def test_at_first_there_is_guest_who_may_everything_from_this_machine() -> None:
    users = Users()
    (guest,) = users
    assert (guest.name, guest.tags) == ("guest", ("administrator",))
    permission = users.permission("guest", "/")
    assert permission is not None
    assert permission.configure.text == permission.write.text == permission.read.text == ".*"
    assert users.refusal("guest", loopback=True) == ""
    assert users.refusal("guest", loopback=False) == "user 'guest' can only connect via localhost"


def test_who_may_only_come_from_this_machine_is_a_setting(users: Users) -> None:
    assert users.refusal("alice", loopback=False) == ""
    assert Users(loopback_only=[]).refusal("guest", loopback=False) == ""


def test_an_unknown_user_is_refused_as_for_a_wrong_password(users: Users) -> None:
    assert users.refusal("nobody", loopback=True) == "user 'nobody' - invalid credentials"
    assert users.secret("nobody") is DECOY
    assert not users.remember("nobody", DECOY, "x")


# What is remembered of passwords.


def test_a_verified_password_is_recalled_until_it_changes(users: Users) -> None:
    assert not users.recall("alice", "one")
    assert users.remember("alice", users.secret("alice"), "one")
    assert users.recall("alice", "one")
    assert not users.recall("alice", "two")
    assert not users.recall("guest", "one")
    users.set_tags("alice", [])
    assert users.recall("alice", "one")
    users.change_password("alice", TWO)
    assert not users.recall("alice", "one")


def test_a_password_verified_against_an_old_hash_counts_for_nothing(users: Users) -> None:
    old = users.secret("alice")
    users.change_password("alice", TWO)
    assert not users.remember("alice", old, "one")
    assert not users.recall("alice", "one")


def test_a_deleted_users_password_is_forgotten_even_if_the_name_comes_back(users: Users) -> None:
    users.remember("alice", ONE, "one")
    users.delete_user("alice")
    assert not users.recall("alice", "one")
    users.put_user("alice", TWO)
    assert not users.recall("alice", "one")


def test_the_password_itself_is_not_kept(users: Users) -> None:
    users.remember("alice", ONE, "one")
    assert b"one" not in users._remembered["alice"]


# Changes and the ledger.


def test_every_change_of_a_user_is_recorded_as_rabbitmqs_definitions_have_it(users: Users, notes: Notes) -> None:
    users.put_user("bob", NO_PASSWORD, ["a", "b", "a"])
    body = {"name": "bob", "password_hash": "", "hashing_algorithm": SHA256, "tags": ["a", "b"], "limits": {}}
    assert notes.told() == [("put", "user", ("bob",), body)]
    users.change_password("bob", ONE)
    body = body | {"password_hash": ONE.password_hash}
    assert notes.told() == [("put", "user", ("bob",), body)]
    users.set_tags("bob", ["c"])
    body = body | {"tags": ["c"]}
    assert notes.told() == [("put", "user", ("bob",), body)]
    users.set_limits("bob", {MAX_CONNECTIONS: 3})
    assert notes.told() == [("put", "user", ("bob",), body | {"limits": {"max-connections": 3}})]


def test_every_change_of_a_permission_is_recorded_and_told(users: Users, notes: Notes) -> None:
    told: list[str] = []
    users.changed.append(told.append)
    users.set_permission("alice", "v", "c", "w", "r")
    body = {"user": "alice", "vhost": "v", "configure": "c", "write": "w", "read": "r"}
    assert notes.told() == [("put", "permission", ("alice", "v"), body)]
    users.set_topic_permission("alice", "v", "x", "{username}", "r")
    body = {"user": "alice", "vhost": "v", "exchange": "x", "write": "{username}", "read": "r"}
    assert notes.told() == [("put", "topic_permission", ("alice", "v", "x"), body)]
    users.clear_topic_permission("alice", "v", "other")
    assert notes.told() == []
    users.clear_topic_permission("alice", "v")
    assert notes.told() == [("drop", "topic_permission", ("alice", "v", "x"))]
    users.clear_permission("alice", "v")
    users.clear_permission("alice", "v")
    assert notes.told() == [("drop", "permission", ("alice", "v"))]
    assert told == ["v"] * 4


def test_deleting_a_user_takes_all_that_was_its_own_along(users: Users, notes: Notes) -> None:
    deleted: list[str] = []
    users.deleted.append(deleted.append)
    users.set_permission("alice", "v", "", "", "")
    users.set_topic_permission("alice", "v", "x", "", "")
    notes.told()
    users.delete_user("alice")
    assert notes.told() == [
        ("drop", "permission", ("alice", "v")),
        ("drop", "topic_permission", ("alice", "v", "x")),
        ("drop", "user", ("alice",)),
    ]
    assert deleted == ["alice"]
    assert users.get("alice") is None
    assert users.permission("guest", "/") is not None


def test_a_vhost_that_is_gone_takes_its_permissions_along(users: Users, notes: Notes) -> None:
    users.set_permission("alice", "v", "", "", "")
    users.set_topic_permission("alice", "v", "x", "", "")
    notes.told()
    users.forget_vhost("v")
    assert notes.told() == [
        ("drop", "permission", ("alice", "v")),
        ("drop", "topic_permission", ("alice", "v", "x")),
    ]
    assert users.permission("guest", "/") is not None


@pytest.mark.parametrize(
    "change",
    [
        lambda users: users.put_user("", ONE),
        lambda users: users.put_user("bob", Secret(SHA256, "???")),
        lambda users: users.put_user("bob", ONE, limits={"max-beer": 1}),
        lambda users: users.change_password("bob", ONE),
        lambda users: users.set_tags("bob", []),
        lambda users: users.set_limits("bob", {}),
        lambda users: users.delete_user("bob"),
        lambda users: users.set_permission("bob", "/", "", "", ""),
        lambda users: users.set_permission("alice", "/", "(", "", ""),
        lambda users: users.set_topic_permission("bob", "/", "x", "", ""),
        lambda users: users.set_topic_permission("alice", "/", "x", "{username}(", ""),
    ],
)
def test_what_cannot_be_done_is_one_line_and_changes_nothing(
    users: Users, notes: Notes, change: Callable[[Users], None]
) -> None:
    with pytest.raises(UserError) as caught:
        change(users)
    assert str(caught.value)
    assert "\n" not in str(caught.value)
    assert notes.told() == []
    assert [user.name for user in users] == ["guest", "alice"]


def test_a_limit_that_is_negative_or_not_there_is_none(users: Users) -> None:
    assert users.limit("alice", MAX_CHANNELS) == 5
    assert users.limit("alice", MAX_CONNECTIONS) == NO_LIMIT
    users.set_limits("alice", {MAX_CONNECTIONS: -7})
    assert users.limit("alice", MAX_CONNECTIONS) == users.limit("alice", MAX_CHANNELS) == NO_LIMIT
    assert users.limit("nobody", MAX_CHANNELS) == NO_LIMIT


# From bodies.


def test_what_was_recorded_can_be_loaded_again(users: Users) -> None:
    users.set_permission("alice", "/", "c", "w", "r")
    users.set_topic_permission("alice", "/", "x", "w", "r")
    other = Users(NO_LEDGER)
    other.forget_all()
    assert list(other) == []
    people, permissions, topics = users.bodies()
    for body in people:
        other.load_user(body)
    for body in permissions:
        other.load_permission(body)
    for body in topics:
        other.load_topic_permission(body)
    assert other.bodies() == users.bodies()


def test_definitions_of_older_and_odd_rabbitmqs_are_understood(users: Users) -> None:
    body: dict[str, Json] = {"name": "old", "password_hash": ONE.password_hash, "tags": "administrator, policymaker"}
    users.load_user(body | {"limits": []})
    old = users.get("old")
    assert old is not None
    assert (old.secret, old.tags, old.limits) == (ONE, ("administrator", "policymaker"), {})


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"name": "bob"},
        {"name": 1, "password_hash": ""},
        {"name": "bob", "password_hash": "", "tags": 7},
        {"name": "bob", "password_hash": "", "limits": {"max-channels": "x"}},
        {"name": "bob", "password_hash": "", "limits": {"max-channels": True}},
        {"name": "bob", "password_hash": "", "limits": 7},
    ],
)
def test_a_body_that_is_no_user_is_an_error(users: Users, body: dict[str, Json]) -> None:
    with pytest.raises(UserError):
        users.load_user(body)
    assert users.get("bob") is None
