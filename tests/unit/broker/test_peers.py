"""Peers: which connections are open, whose, where, and how many there may be."""

from __future__ import annotations

import pytest

from penstock.amqp.close import CloseConnection
from penstock.amqp.method import ChannelOpen, QueueDeclare
from penstock.broker.password import NO_PASSWORD
from tests.unit.fakes import FakePeer, House


@pytest.fixture
def house() -> House:
    house = House()
    house.broker.users.put_user("alice", NO_PASSWORD)
    house.broker.users.set_permission("alice", "/", ".*", ".*", ".*")
    return house


def peer_of(house: House, user: str) -> FakePeer:
    peer = house.peer(user)
    peer.user = user
    return peer


def enter(house: House, user: str, vhost: str = "/") -> FakePeer:
    peer = peer_of(house, user)
    house.broker.enter(peer, vhost)
    return peer


def refusal(house: House, user: str, vhost: str = "/") -> str:
    before = len(house.broker.peers)
    with pytest.raises(CloseConnection) as caught:
        enter(house, user, vhost)
    assert (caught.value.code, caught.value.class_id, caught.value.method_id) == (530, 10, 40)
    assert len(house.broker.peers) == before
    return caught.value.text


def test_a_connection_is_known_by_user_and_vhost_until_it_is_taken_out(house: House) -> None:
    peers = house.broker.peers
    one, two, other = enter(house, "alice"), enter(house, "alice"), enter(house, "guest")
    assert peers.of_user("alice") == [one, two]
    assert peers.of_vhost("/") == [one, two, other]
    assert len(peers.all()) == len(peers) == 3
    peers.remove(one)
    peers.remove(one)
    assert peers.of_user("alice") == [two]
    peers.remove(two)
    peers.remove(other)
    assert len(peers) == 0
    assert repr(peers) == "<Peers 0 users=0 vhosts=0>"


def test_who_enters_has_the_vhost_and_the_access_of_its_user(house: House) -> None:
    house.broker.add_vhost("v")
    house.broker.users.set_permission("alice", "v", "", "", "")
    peer = enter(house, "alice", "v")
    assert peer.vhost is house.broker.vhosts["v"]
    assert (peer.access.user, peer.access.vhost) == ("alice", "v")


def test_a_vhost_that_is_not_there_or_not_allowed_is_refused(house: House) -> None:
    house.broker.add_vhost("v")
    assert refusal(house, "alice", "nope") == "NOT_ALLOWED - vhost nope not found"
    assert refusal(house, "alice", "v") == "NOT_ALLOWED - access to vhost 'v' refused for user 'alice'"
    house.broker.users.clear_permission("alice", "/")
    assert refusal(house, "alice") == "NOT_ALLOWED - access to vhost '/' refused for user 'alice'"


def test_connections_of_a_user_are_limited(house: House) -> None:
    house.broker.users.set_limits("alice", {"max-connections": 2})
    first = enter(house, "alice")
    enter(house, "alice")
    assert refusal(house, "alice") == (
        "NOT_ALLOWED - connection refused for user 'alice': user connection limit (2) is reached"
    )
    enter(house, "guest")
    house.broker.peers.remove(first)
    enter(house, "alice")
    house.broker.users.set_limits("alice", {"max-connections": 0})
    assert "limit (0)" in refusal(house, "alice")
    house.broker.users.set_limits("alice", {"max-connections": -1})
    enter(house, "alice")


def test_connections_to_a_vhost_are_limited_and_that_is_told_before_the_permission(house: House) -> None:
    house.vhost.limits["max-connections"] = 1
    house.broker.users.put_user("bob", NO_PASSWORD)
    enter(house, "alice")
    for user in ("alice", "guest", "bob"):
        assert refusal(house, user) == (
            f"NOT_ALLOWED - access to vhost '/' refused for user '{user}': connection limit (1) is reached"
        )
    house.vhost.limits["max-connections"] = -1
    enter(house, "alice")


def test_channels_of_a_user_are_limited_over_all_its_connections(house: House) -> None:
    house.broker.users.set_limits("alice", {"max-channels": 2})
    one, two = enter(house, "alice"), enter(house, "alice")
    one.open(1)
    two.open(1)
    with pytest.raises(CloseConnection) as caught:
        two.tell(2, ChannelOpen())
    assert caught.value.code == 530
    assert caught.value.text == (
        "NOT_ALLOWED - number of channels opened for user 'alice' has reached the maximum allowed user limit of (2)"
    )
    enter(house, "guest").open(1)


def test_the_connections_of_a_deleted_user_are_closed(house: House) -> None:
    peer, other = enter(house, "alice"), enter(house, "guest")
    house.broker.users.delete_user("alice")
    assert [(error.code, error.text) for error in peer.errors] == [
        (320, "CONNECTION_FORCED - user 'alice' is deleted"),
    ]
    assert other.errors == []


def test_a_deleted_vhost_takes_queues_connections_and_permissions_along(house: House) -> None:
    broker = house.broker
    vhost = broker.add_vhost("v")
    broker.users.set_permission("alice", "v", ".*", ".*", ".*")
    peer, other = enter(house, "alice", "v"), enter(house, "alice")
    peer.open()
    peer.ask(1, QueueDeclare("q"))
    broker.delete_vhost("v")
    assert [error.text for error in peer.errors] == ["CONNECTION_FORCED - vhost 'v' is deleted"]
    assert other.errors == []
    assert vhost.queues == {}
    assert "v" not in broker.vhosts
    assert broker.users.permission("alice", "v") is None
    assert refusal(house, "alice", "v") == "NOT_ALLOWED - vhost v not found"
    broker.add_vhost("v")  # nothing of it is left
    assert refusal(house, "alice", "v") == "NOT_ALLOWED - access to vhost 'v' refused for user 'alice'"


def test_a_change_of_permissions_changes_the_version_of_its_vhost_only(house: House) -> None:
    other = house.broker.add_vhost("v")
    before, other_before = house.vhost.version, other.version
    house.broker.users.set_permission("alice", "/", "", "", "")
    assert house.vhost.version > before
    assert other.version == other_before
    house.broker.users.set_permission("alice", "a vhost that is not there", "", "", "")
