"""Access: what a user may do in a vhost, asked by name and told in RabbitMQ's words."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.amqp.close import CloseChannel
from penstock.amqp.method import (
    BasicConsume,
    BasicConsumeOk,
    BasicGet,
    ChannelClose,
    ChannelCloseOk,
    ExchangeBind,
    ExchangeBindOk,
    ExchangeDeclare,
    ExchangeDeclareOk,
    ExchangeDelete,
    ExchangeUnbind,
    Method,
    QueueBind,
    QueueBindOk,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueDeleteOk,
    QueuePurge,
    QueueUnbind,
)
from penstock.amqp.table import Table
from penstock.broker.access import REGEX_CHARS_MAX, RESULTS_MAX, Access, BadRegex, Pattern
from penstock.broker.password import NO_PASSWORD
from penstock.broker.users import Users
from tests.unit.fakes import FakePeer, House

# Regular expressions.


@pytest.mark.parametrize(
    ("regex", "name", "expected"),
    [
        (".*", "anything", True),
        (".*", "", True),
        ("b", "abc", True),
        ("^b", "abc", False),
        ("^a", "abc", True),
        ("^abc$", "abcd", False),
        ("", "", True),
        ("", "a", False),
        ("^$", "a", False),
        ("^(orders|mail)\\.", "mail.in", True),
        ("^(orders|mail)\\.", "mails", False),
        ("^amq\\.gen-", "amq.gen-abc", True),
        ("^[[:alpha:]]+$", "abc", True),
        ("^[[:alpha:]]+$", "abc1", False),
        ("^[^[:digit:]]+$", "a1", False),
        ("ü", "grün", True),
        ("^gr..n$", "grün", True),  # bytes are searched, as in RabbitMQ
        ("^.$", "\udcff", True),
        ("(?i)ORDERS", "orders", True),
    ],
)
def test_a_regex_searches_a_name_as_in_rabbitmq(regex: str, name: str, expected: bool) -> None:
    pattern = Pattern(regex)
    assert pattern.matches(name) is expected
    assert pattern.matches(name) is expected  # remembered


@pytest.mark.parametrize("regex", ["(", "[", "*", "a{2,1}", "(?<n>a", "a" * (REGEX_CHARS_MAX + 1)])
def test_a_regex_that_cannot_be_used_is_an_error_for_whoever_sets_it(regex: str) -> None:
    with pytest.raises(BadRegex):
        Pattern(regex)


def test_what_a_regex_remembers_is_bounded() -> None:
    pattern = Pattern("^q")
    for number in range(3 * RESULTS_MAX):
        assert pattern.matches(f"q{number}")
    assert len(pattern._results) <= RESULTS_MAX


# Asking.


@pytest.fixture
def users() -> Users:
    users = Users()
    users.put_user("alice", NO_PASSWORD)
    return users


@pytest.fixture
def alice(users: Users) -> Access:
    return Access(users, "alice", "/")


def refused(ask: Callable[[], None]) -> str:
    with pytest.raises(CloseChannel) as caught:
        ask()
    assert caught.value.code == 403
    return caught.value.text


def test_without_a_permission_everything_is_refused(alice: Access) -> None:
    for ask in (alice.configure, alice.write, alice.read):
        refused(lambda ask=ask: ask("queue", "q"))  # type: ignore[misc]  # the loop's function, not the last one


def test_a_refusal_names_permission_thing_vhost_and_user(users: Users, alice: Access) -> None:
    users.set_permission("alice", "/", "^c$", "^w$", "^r$")
    alice.configure("queue", "c")
    alice.write("queue", "w")
    alice.read("exchange", "r")
    for ask, word in ((alice.configure, "configure"), (alice.write, "write"), (alice.read, "read")):
        assert refused(lambda ask=ask: ask("queue", "q")) == (  # type: ignore[misc]  # as above
            f"ACCESS_REFUSED - {word} access to queue 'q' in vhost '/' refused for user 'alice'"
        )


def test_the_default_exchange_is_asked_for_by_its_other_name(users: Users, alice: Access) -> None:
    users.set_permission("alice", "/", "", "^q$", "")
    assert refused(lambda: alice.write("exchange", "")) == (
        "ACCESS_REFUSED - write access to exchange 'amq.default' in vhost '/' refused for user 'alice'"
    )
    users.set_permission("alice", "/", "", "^amq\\.default$", "")
    alice.write("exchange", "")


def test_a_permission_holds_in_its_vhost_only(users: Users, alice: Access) -> None:
    users.set_permission("alice", "other", ".*", ".*", ".*")
    refused(lambda: alice.read("queue", "q"))
    Access(users, "alice", "other").read("queue", "q")


def test_a_change_counts_from_the_next_question_on(users: Users, alice: Access) -> None:
    users.set_permission("alice", "/", ".*", ".*", ".*")
    alice.read("queue", "q")
    users.set_permission("alice", "/", ".*", ".*", "")
    refused(lambda: alice.read("queue", "q"))
    users.set_permission("alice", "/", ".*", ".*", ".*")
    alice.read("queue", "q")
    users.delete_user("alice")
    refused(lambda: alice.read("queue", "q"))


def test_without_a_topic_permission_every_key_may_be_used(users: Users, alice: Access) -> None:
    users.set_topic_permission("alice", "/", "other", "", "")
    alice.write_topic("x", "a.b")
    alice.read_topic("x", "a.b")


def test_a_topic_permission_is_for_keys_at_one_exchange(users: Users, alice: Access) -> None:
    users.set_topic_permission("alice", "/", "x", "^a\\.", "^b\\.")
    alice.write_topic("x", "a.b")
    alice.read_topic("x", "b.b")
    assert refused(lambda: alice.write_topic("x", "b.b")) == (
        "ACCESS_REFUSED - write access to topic 'b.b' in exchange 'x' in vhost '/' refused for user 'alice'"
    )
    assert refused(lambda: alice.read_topic("x", "a.b")).startswith("ACCESS_REFUSED - read access to topic 'a.b' in ")


def test_topic_permissions_know_user_and_vhost(users: Users, alice: Access) -> None:
    users.set_topic_permission("alice", "/", "x", "^{username}-{vhost}\\.", "^{username}$")
    alice.write_topic("x", "alice-/.z")
    refused(lambda: alice.write_topic("x", "bob-/.z"))


def test_the_letters_of_a_name_are_no_regex() -> None:
    users = Users()
    users.put_user("a.*b(", NO_PASSWORD)
    users.set_topic_permission("a.*b(", "/", "x", "^{username}$", "")
    access = Access(users, "a.*b(", "/")
    access.write_topic("x", "a.*b(")
    refused(lambda: access.write_topic("x", "axxb("))


def test_only_an_impersonator_may_publish_in_anothers_name(users: Users, alice: Access) -> None:
    assert not alice.may_impersonate()
    users.set_tags("alice", ["impersonator"])
    assert alice.may_impersonate()


# On every method. What was seen in RabbitMQ 3.10.8 is in docs/rabbitmq.md.


@pytest.fixture
def house() -> House:
    house = House()
    admin = house.peer("admin")
    admin.open()
    admin.ask(1, QueueDeclare("q"))
    admin.ask(1, ExchangeDeclare("t", "topic"))
    admin.ask(1, ExchangeDeclare("d", "direct"))
    house.broker.users.put_user("alice", NO_PASSWORD)
    return house


def peer_with(house: House, configure: str = "^$", write: str = "^$", read: str = "^$") -> FakePeer:
    house.broker.users.set_permission("alice", "/", configure, write, read)
    peer = house.peer("alice")
    peer.user = "alice"
    peer.access = Access(house.broker.users, "alice", "/")
    peer.open()
    return peer


def answer(peer: FakePeer, method: Method) -> str:
    """The refusal's text without what is always the same, or the name of the answer."""
    said = peer.ask(1, method)
    assert len(said) == 1, said
    if not isinstance(said[0], ChannelClose):
        return said[0].NAME
    assert (said[0].class_id, said[0].method_id) == (method.ID >> 16, method.ID & 0xFFFF)
    peer.tell(1, ChannelCloseOk())
    peer.open()
    return f"{said[0].reply_code} {said[0].reply_text}".replace(" refused for user 'alice'", "").partition(" - ")[2]


@pytest.mark.parametrize(
    ("method", "told"),
    [
        (QueueDeclare("q"), "configure access to queue 'q' in vhost '/'"),
        (QueueDeclare("new"), "configure access to queue 'new' in vhost '/'"),
        (QueueDeclare("amq.foo"), "queue name 'amq.foo' contains reserved prefix 'amq.*'"),
        (QueueDeclare("q", passive=True), "queue.declare-ok"),
        (QueueDeclare("none", passive=True), "no queue 'none' in vhost '/'"),
        (QueueDelete("q"), "configure access to queue 'q' in vhost '/'"),
        (QueueDelete("none"), "configure access to queue 'none' in vhost '/'"),
        (QueuePurge("q"), "read access to queue 'q' in vhost '/'"),
        (QueuePurge("none"), "read access to queue 'none' in vhost '/'"),
        (QueueBind("q", "t", "k"), "write access to queue 'q' in vhost '/'"),
        (QueueBind("none", "none", "k"), "write access to queue 'none' in vhost '/'"),
        (QueueBind("q", "", "k"), "write access to queue 'q' in vhost '/'"),
        (QueueUnbind("q", "t", "k"), "write access to queue 'q' in vhost '/'"),
        (QueueUnbind("none", "none", "k"), "write access to queue 'none' in vhost '/'"),
        (ExchangeDeclare("t", "topic"), "configure access to exchange 't' in vhost '/'"),
        (ExchangeDeclare("new", "direct"), "configure access to exchange 'new' in vhost '/'"),
        (ExchangeDeclare("amq.foo", "direct"), "configure access to exchange 'amq.foo' in vhost '/'"),
        (ExchangeDeclare("", "direct"), "operation not permitted on the default exchange"),
        (ExchangeDeclare("t", "topic", passive=True), "exchange.declare-ok"),
        (ExchangeDelete("t"), "configure access to exchange 't' in vhost '/'"),
        (ExchangeDelete("none"), "configure access to exchange 'none' in vhost '/'"),
        (ExchangeDelete("amq.direct"), "deletion of system exchange 'amq.direct' in vhost '/' not allowed"),
        (ExchangeDelete(""), "operation not permitted on the default exchange"),
        (ExchangeBind("d", "t", "k"), "write access to exchange 'd' in vhost '/'"),
        (ExchangeBind("", "t", "k"), "write access to exchange 'amq.default' in vhost '/'"),
        (ExchangeBind("d", "", "k"), "write access to exchange 'd' in vhost '/'"),
        (ExchangeUnbind("d", "t", "k"), "write access to exchange 'd' in vhost '/'"),
        (BasicConsume("q", "c"), "read access to queue 'q' in vhost '/'"),
        (BasicConsume("none", "c"), "read access to queue 'none' in vhost '/'"),
        (BasicGet("q"), "read access to queue 'q' in vhost '/'"),
        (BasicGet(""), "no previously declared queue"),
    ],
)
def test_who_may_nothing_is_refused_by_every_method(house: House, method: Method, told: str) -> None:
    assert answer(peer_with(house), method) == told
    assert "q" in house.vhost.queues
    assert "t" in house.vhost.exchanges
    assert "new" not in house.vhost.queues
    assert "new" not in house.vhost.exchanges


def test_a_server_named_queue_must_be_allowed_too(house: House) -> None:
    assert answer(peer_with(house), QueueDeclare("")).startswith("configure access to queue 'amq.gen-")
    assert answer(peer_with(house, configure="^amq\\.gen-"), QueueDeclare("")) == "queue.declare-ok"


def test_an_unknown_exchange_type_is_told_whoever_asks(house: House) -> None:
    peer = peer_with(house)
    peer.ask(1, ExchangeDeclare("new", "bogus"))
    assert [error.code for error in peer.errors] == [503]


def test_binding_writes_to_the_destination_and_reads_from_the_source(house: House) -> None:
    peer = peer_with(house, write="^(q|d)$")
    assert answer(peer, QueueBind("q", "d", "k")) == "read access to exchange 'd' in vhost '/'"
    assert answer(peer, QueueBind("q", "none", "k")) == "read access to exchange 'none' in vhost '/'"
    assert answer(peer, QueueBind("q", "", "k")) == "operation not permitted on the default exchange"
    assert answer(peer, ExchangeBind("d", "t", "k")) == "read access to exchange 't' in vhost '/'"
    peer = peer_with(house, write="^(q|d)$", read="^(t|d)$")
    assert answer(peer, QueueBind("q", "d", "k")) == QueueBindOk.NAME
    assert answer(peer, ExchangeBind("d", "t", "k")) == ExchangeBindOk.NAME


def test_binding_to_a_topic_exchange_reads_by_key(house: House) -> None:
    house.broker.users.set_topic_permission("alice", "/", "t", "", "^a")
    house.broker.users.set_topic_permission("alice", "/", "d", "", "^a")
    peer = peer_with(house, write=".*", read=".*")
    told = "read access to topic 'b' in exchange 't' in vhost '/'"
    assert answer(peer, QueueBind("q", "t", "b")) == told
    assert answer(peer, QueueBind("none", "t", "b")) == told
    assert answer(peer, QueueUnbind("q", "t", "b")) == told
    assert answer(peer, ExchangeBind("d", "t", "b")) == told
    assert answer(peer, QueueBind("q", "t", "a")) == QueueBindOk.NAME
    assert answer(peer, QueueBind("q", "d", "b")) == QueueBindOk.NAME  # not a topic exchange


def test_who_declares_a_dead_letter_exchange_must_read_the_queue_and_write_there(house: House) -> None:
    letters: Table = {"x-dead-letter-exchange": "d"}
    peer = peer_with(house, configure=".*")
    assert answer(peer, QueueDeclare("new", arguments=letters)) == "read access to queue 'new' in vhost '/'"
    peer = peer_with(house, configure=".*", read="^new$")
    assert answer(peer, QueueDeclare("new", arguments=letters)) == "write access to exchange 'd' in vhost '/'"
    told = "write access to exchange 'amq.default' in vhost '/'"
    assert answer(peer, QueueDeclare("new", arguments={"x-dead-letter-exchange": ""})) == told
    peer = peer_with(house, configure=".*", read="^new$", write="^d$")
    assert answer(peer, QueueDeclare("new", arguments=letters)) == QueueDeclareOk.NAME
    peer = peer_with(house, configure=".*")
    assert answer(peer, QueueDeclare("new", arguments=letters)) == QueueDeclareOk.NAME  # it changes nothing


def test_who_declares_an_alternate_exchange_must_read_the_exchange_and_write_there(house: House) -> None:
    method = ExchangeDeclare("new", "direct", arguments={"alternate-exchange": "d"})
    assert answer(peer_with(house, ".*"), method) == "read access to exchange 'new' in vhost '/'"
    assert answer(peer_with(house, ".*", read="^new$"), method) == "write access to exchange 'd' in vhost '/'"
    assert answer(peer_with(house, ".*", "^d$", "^new$"), method) == ExchangeDeclareOk.NAME


def test_a_consumer_tag_used_twice_is_told_before_the_permission(house: House) -> None:
    peer = peer_with(house, read=".*")
    assert answer(peer, BasicConsume("q", "c")) == BasicConsumeOk.NAME
    house.broker.users.clear_permission("alice", "/")
    peer.ask(1, BasicConsume("q", "c"))
    assert [error.code for error in peer.errors] == [530]


def test_who_may_configure_may_delete_what_is_not_there(house: House) -> None:
    assert answer(peer_with(house, configure="^none$"), QueueDelete("none")) == QueueDeleteOk.NAME


def test_publishing_asks_for_write_and_a_change_empties_the_cached_routes(house: House) -> None:
    peer = peer_with(house, write="^amq\\.default$")
    peer.publish(1, "q", b"first")
    assert peer.methods() == []
    house.broker.users.set_permission("alice", "/", "", "^other$", "")
    peer.publish(1, "q", b"second")
    (close,) = peer.methods()
    assert isinstance(close, ChannelClose)
    assert close.reply_text == (
        "ACCESS_REFUSED - write access to exchange 'amq.default' in vhost '/' refused for user 'alice'"
    )
    assert house.vhost.queues["q"].count() == 1


def test_publishing_to_a_topic_exchange_asks_by_key(house: House) -> None:
    house.broker.users.set_topic_permission("alice", "/", "t", "^a", "")
    peer = peer_with(house, write=".*")
    peer.publish(1, "a.b", b"", exchange="t")
    assert peer.methods() == []
    peer.publish(1, "b.b", b"", exchange="t")
    (close,) = peer.methods()
    assert isinstance(close, ChannelClose)
    assert "write access to topic 'b.b' in exchange 't' in vhost '/' refused" in close.reply_text


def test_who_may_not_publish_is_not_told_whether_the_exchange_exists(house: House) -> None:
    peer = peer_with(house)
    peer.publish(1, "k", b"", exchange="none")
    (close,) = peer.methods()
    assert isinstance(close, ChannelClose)
    assert close.reply_code == 403
