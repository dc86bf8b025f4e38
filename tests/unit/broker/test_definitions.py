"""Definitions: out of a broker, into a broker, and what the ledger is told."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from penstock.amqp.method import ExchangeDeclare, QueueDeclare, QueueDelete
from penstock.amqp.table import ByteArray, Table, Timestamp
from penstock.broker.broker import Broker
from penstock.broker.definitions import Summary, export_definitions, import_definitions, restore, vhost_part
from penstock.broker.parameters import drop_parameter, put_limits, put_parameter
from penstock.broker.password import SCRYPT, known_secret, verify
from penstock.broker.plan import DefinitionsError
from penstock.broker.policy import Policy
from tests.unit.fakes import House

ODD: Table = {
    "x-message-ttl": 60_000,
    "t": Timestamp(1_577_836_800),
    "d": Decimal("1.25"),
    "b": b"\xff",
    "x": ByteArray(b"\x00"),
    "n": None,
    "f": 1.0,
    "flag": True,
    "list": [1, "a", {"k": 1 << 40}],
}


class Book:
    """A ledger in memory; `calls` counts what it was told."""

    def __init__(self) -> None:
        self.records: dict[tuple[str, tuple[str, ...]], str] = {}
        self.calls = 0

    def put(self, kind: str, key: tuple[str, ...], body: dict[str, Any]) -> None:
        self.records[kind, key] = json.dumps(body)
        self.calls += 1

    def drop(self, kind: str, key: tuple[str, ...]) -> None:
        self.records.pop((kind, key), None)
        self.calls += 1

    def after_commit(self, callback: Callable[[], None]) -> None:
        callback()

    def kinds(self) -> set[str]:
        return {kind for kind, _ in self.records}

    def names(self, kind: str) -> list[tuple[str, ...]]:
        return [key for found, key in self.records if found == kind]

    def all(self) -> list[tuple[str, tuple[str, ...], dict[str, Any]]]:
        return [(kind, key, json.loads(body)) for (kind, key), body in self.records.items()]


def kept_house() -> tuple[House, Book]:
    house, book = House(), Book()
    restore(house.broker, [], book)
    return house, book


def restarted(book: Book) -> Broker:
    broker = House().broker
    restore(broker, book.all(), Book())
    return broker


def fill(house: House) -> None:
    """Something of every kind."""
    broker, peer = house.broker, house.peer()
    peer.open()
    peer.ask(1, ExchangeDeclare("x", "topic", durable=True, arguments={"alternate-exchange": "alt"}))
    peer.ask(1, ExchangeDeclare("alt", "fanout", durable=True, internal=True))
    peer.ask(1, ExchangeDeclare("h", "headers", durable=True))
    peer.ask(1, QueueDeclare("q", durable=True, arguments=ODD))
    peer.ask(1, QueueDeclare("auto", durable=True, auto_delete=True))
    queue, vhost = house.vhost.queues["q"], house.vhost
    vhost.bind(vhost.exchanges["x"], queue, "a.#", {})
    vhost.bind(vhost.exchanges["x"], queue, "a.#", {"z": 1, "a": 2})
    vhost.bind(vhost.exchanges["h"], queue, "", {"x-match": "any", "t": Timestamp(5), "n": None})
    vhost.bind(vhost.exchanges["x"], vhost.exchanges["alt"], "k", {})
    vhost.put_policy(Policy("ttl", "^q", {"message-ttl": 1000}, "queues", 5))
    vhost.put_policy(Policy("bound", "", {"max-length": 10}, "queues", 1, operator=True), operator=True)
    put_limits(vhost, {"max-queues": 100})
    put_parameter(vhost, "federation-upstream", "up", {"uri": "amqp://elsewhere"})
    broker.put_global_parameter("cluster_name", "hutch")
    broker.add_vhost("/app", {"description": "the app", "tags": ["a"]})
    broker.users.put_user("alice", known_secret("secret"), ["monitoring"], {"max-channels": 4})
    broker.users.set_permission("alice", "/app", "^a", ".*", "b")
    broker.users.set_topic_permission("alice", "/app", "amq.topic", "^w", "^r")


def without_head(document: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in document.items() if isinstance(value, list)}


# What is recorded.


def test_a_restart_brings_back_all_that_is_durable() -> None:
    house, book = kept_house()
    fill(house)
    broker = restarted(book)
    assert export_definitions(broker) == export_definitions(house.broker)
    queue = broker.vhosts["/"].queues["q"]
    assert repr(queue.arguments) == repr(ODD)
    assert queue.options.max_length == 10  # policies count again
    assert queue.options.message_ttl_ms == 1000
    assert verify(broker.users.secret("alice"), "secret")


def test_restoring_records_nothing_and_changes_after_it_are_recorded() -> None:
    house, book = kept_house()
    fill(house)
    broker, later = House().broker, Book()
    restore(broker, book.all(), later)
    assert later.calls == 0
    broker.vhosts["/app"].add_queue("new", durable=True, auto_delete=False, arguments={})
    broker.add_vhost("third").add_queue("new", durable=True, auto_delete=False, arguments={})
    broker.users.set_tags("alice", [])
    assert later.kinds() == {"queue", "vhost", "user"}
    assert later.names("queue") == [("/app", "new"), ("third", "new")]


def test_a_new_ledger_starts_with_the_default_vhost_and_user() -> None:
    _, book = kept_house()
    assert book.names("vhost") == [("/",)]
    assert book.names("user") == [("guest",)]
    assert book.names("permission") == [("guest", "/")]
    assert set(restarted(book).vhosts) == {"/"}


def test_a_deleted_default_user_and_vhost_stay_deleted() -> None:
    house, book = kept_house()
    house.broker.add_vhost("mine")
    house.broker.users.delete_user("guest")
    house.broker.delete_vhost("/")
    broker = restarted(book)
    assert set(broker.vhosts) == {"mine"}
    assert not list(broker.users)


def test_without_defaults_a_new_broker_is_empty() -> None:
    house, book = House(), Book()
    restore(house.broker, [], book, with_defaults=False)
    assert not house.broker.vhosts
    assert not list(house.broker.users)
    assert not book.records


def test_what_is_not_durable_is_not_recorded() -> None:
    house, book = kept_house()
    before = book.calls
    vhost, peer = house.vhost, house.peer()
    transient = house.queue("transient")
    exclusive = vhost.declare_queue(QueueDeclare("exclusive", durable=True, exclusive=True), peer)
    exchange = vhost.declare_exchange(ExchangeDeclare("transient", "direct"))
    for queue in (transient, exclusive):
        vhost.bind(vhost.exchanges["amq.direct"], queue, "k", {})
        vhost.bind(exchange, queue, "k", {})
    vhost.bind(exchange, vhost.exchanges["amq.fanout"], "k", {})
    vhost.bind(vhost.exchanges["amq.fanout"], exchange, "k", {})
    vhost.delete_exchange("transient", if_unused=False)
    transient.delete()
    exclusive.delete()
    assert book.calls == before


def test_a_binding_between_a_transient_and_a_durable_end_is_not_recorded() -> None:
    house, book = kept_house()
    durable = house.queue("q", durable=True)
    exchange = house.vhost.declare_exchange(ExchangeDeclare("x", "direct"))
    house.vhost.bind(exchange, durable, "k", {})
    assert book.names("binding") == []


def test_the_broker_s_own_exchanges_are_not_recorded() -> None:
    house, book = kept_house()
    house.broker.add_vhost("/app")
    assert book.names("exchange") == []


def test_a_deleted_queue_takes_its_bindings_with_it() -> None:
    house, book = kept_house()
    peer = house.peer()
    peer.open()
    house.queue("q", durable=True)
    house.vhost.declare_exchange(ExchangeDeclare("gone with it", "fanout", durable=True, auto_delete=True))
    for name in ("amq.topic", "gone with it"):
        house.vhost.bind(house.vhost.exchanges[name], house.vhost.queues["q"], "k", {"a": Timestamp(1)})
    assert len(book.names("binding")) == 2
    peer.ask(1, QueueDelete("q"))
    assert not book.kinds() & {"queue", "binding", "exchange"}


def test_a_deleted_exchange_takes_its_bindings_with_it() -> None:
    house, book = kept_house()
    house.queue("q", durable=True)
    exchange = house.vhost.declare_exchange(ExchangeDeclare("x", "fanout", durable=True))
    house.vhost.bind(exchange, house.vhost.queues["q"], "", {})
    house.vhost.bind(house.vhost.exchanges["amq.topic"], exchange, "", {})
    house.vhost.delete_exchange("x", if_unused=False)
    assert not book.kinds() & {"exchange", "binding"}


def test_unbinding_drops_that_binding_only() -> None:
    house, book = kept_house()
    queue, source = house.queue("q", durable=True), house.vhost.exchanges["amq.topic"]
    house.vhost.bind(source, queue, "k", {"a": 1, "b": 2})
    house.vhost.bind(source, queue, "k", {"a": True, "b": 2})
    house.vhost.unbind("amq.topic", queue, "k", {"b": 2, "a": 1})  # the order of arguments does not count
    (key,) = book.names("binding")
    assert json.loads(key[-1]) == {"a": True, "b": 2}


def test_a_deleted_vhost_takes_everything_with_it() -> None:
    house, book = kept_house()
    fill(house)
    house.broker.users.set_permission("alice", "/", "", "", "")
    house.broker.users.set_topic_permission("alice", "/", "x", "", "")
    house.broker.delete_vhost("/")
    assert book.kinds() == {"vhost", "user", "permission", "topic_permission", "global_parameter"}
    assert not any("/" in key for _, key in book.records)
    house.broker.add_vhost("/")
    assert restarted(book).vhosts["/"].queues == {}


def test_limits_and_parameters_can_go_again() -> None:
    house, book = kept_house()
    fill(house)
    put_limits(house.vhost, {})
    assert drop_parameter(house.vhost, "federation-upstream", "up")
    assert not drop_parameter(house.vhost, "federation-upstream", "up")
    assert house.broker.drop_global_parameter("cluster_name")
    assert not house.broker.drop_global_parameter("cluster_name")
    assert not book.kinds() & {"vhost_limit", "parameter", "global_parameter"}


# Out.


def test_an_export_has_rabbitmqs_shape() -> None:
    house = House()
    fill(house)
    house.queue("transient")
    house.vhost.declare_queue(QueueDeclare("exclusive", exclusive=True), house.peer())
    document: dict[str, Any] = export_definitions(house.broker)
    assert list(document) == [
        *("rabbit_version", "rabbitmq_version", "product_name", "product_version", "users", "vhosts", "permissions"),
        *("topic_permissions", "parameters", "global_parameters", "policies", "queues", "exchanges", "bindings"),
    ]
    json.dumps(document)
    assert [queue["name"] for queue in document["queues"]] == ["q", "auto", "transient"]  # as RabbitMQ: transient too
    assert document["exchanges"][0] == {
        "name": "x",
        "vhost": "/",
        "type": "topic",
        "durable": True,
        "auto_delete": False,
        "internal": False,
        "arguments": {"alternate-exchange": "alt"},
    }
    assert document["bindings"][0] == {
        "source": "x",
        "vhost": "/",
        "destination": "q",
        "destination_type": "queue",
        "routing_key": "a.#",
        "arguments": {},
    }
    assert document["parameters"] == [
        {"vhost": "/", "component": "vhost-limits", "name": "limits", "value": {"max-queues": 100}},
        {"vhost": "/", "component": "federation-upstream", "name": "up", "value": {"uri": "amqp://elsewhere"}},
        {
            "vhost": "/",
            "component": "operator_policy",
            "name": "bound",
            "value": {"pattern": "", "apply-to": "queues", "definition": {"max-length": 10}, "priority": 1},
        },
    ]


def test_an_export_imports_into_another_broker_as_the_same() -> None:
    house, other = House(), House()
    fill(house)
    document = export_definitions(house.broker)
    import_definitions(other.broker, json.loads(json.dumps(document)))
    assert export_definitions(other.broker) == document
    assert repr(other.vhost.queues["q"].arguments) == repr(ODD)


def test_an_export_of_one_vhost_names_no_vhost() -> None:
    house, other = House(), House()
    fill(house)
    document: dict[str, Any] = export_definitions(house.broker, "/")
    assert "users" not in document
    assert "global_parameters" not in document
    assert not any("vhost" in entry for section in without_head(document).values() for entry in section)
    other.broker.add_vhost("copy")
    import_definitions(other.broker, json.loads(json.dumps(document)), "copy")
    assert without_head(export_definitions(other.broker, "copy")) == without_head(document)
    whole = export_definitions(house.broker)
    assert vhost_part(whole, "/") == document


# In.


def test_what_is_there_stays_and_what_can_change_is_overwritten() -> None:
    house = House()
    fill(house)
    document: dict[str, Any] = export_definitions(house.broker)
    document["queues"][0]["arguments"] = {}
    document["exchanges"][0]["type"] = "direct"
    document["policies"][0]["priority"] = 9
    document["users"][1]["tags"] = "administrator, monitoring"
    document["vhosts"] = [{"name": "/app"}, {"name": "/new", "description": "made by an old RabbitMQ"}]
    summary = import_definitions(house.broker, json.loads(json.dumps(document)))
    assert repr(house.vhost.queues["q"].arguments) == repr(ODD)
    assert house.vhost.exchanges["x"].kind == "topic"
    assert house.vhost.policies.user["ttl"].priority == 9
    assert house.broker.users.tags("alice") == ("administrator", "monitoring")
    assert house.broker.vhosts["/app"].metadata == {"description": "the app", "tags": ["a"]}
    assert house.broker.vhosts["/new"].metadata == {"description": "made by an old RabbitMQ"}
    assert summary.kept == {"exchanges": 3, "queues": 2, "bindings": 4}
    assert summary.added == {"vhosts": 1}
    assert summary.changed == {
        "vhosts": 1,
        "users": 2,
        "permissions": 2,
        "topic_permissions": 1,
        "global_parameters": 1,
        "parameters": 3,
        "policies": 1,
    }
    assert summary.warnings == [
        "exchange 'x' in vhost '/' stays as it is; the document's differs",
        "queue 'q' in vhost '/' stays as it is; the document's differs",
    ]


def import_one(section: str, *entries: dict[str, Any], broker: Broker | None = None) -> Summary:
    return import_definitions(broker or House().broker, {section: list(entries)})


def queue(name: Any = "q", **more: Any) -> dict[str, Any]:
    return {"name": name, "vhost": "/", "durable": True, "auto_delete": False, "arguments": {}, **more}


def exchange(name: str = "x", **more: Any) -> dict[str, Any]:
    return {"name": name, "vhost": "/", "type": "direct", "durable": True, "auto_delete": False, **more}


def binding(**more: Any) -> dict[str, Any]:
    names = {"source": "amq.direct", "destination": "amq.fanout", "destination_type": "exchange", "routing_key": ""}
    return {"vhost": "/", **names, "arguments": {}, **more}


def policy(**more: Any) -> dict[str, Any]:
    return {"vhost": "/", "name": "p", "pattern": ".*", "definition": {"expires": 1000}, **more}


def user(name: str = "u", **more: Any) -> dict[str, Any]:
    return {"name": name, "password_hash": "", "hashing_algorithm": "rabbit_password_hashing_sha256", **more}


WRONG: list[tuple[str, Any, str]] = [
    ("queues", {"name": "q"}, "'queues' is no list"),
    ("queues", [7], "queue number 1: is no object"),
    ("queues", [queue(vhost="nowhere")], "queue 'q' in vhost 'nowhere': there is no such vhost"),
    ("queues", [{"name": "q"}], "queue 'q': 'vhost' is missing"),
    ("queues", [queue(name=3)], "queue number 1 in vhost '/': 'name' must be a string, not 3"),
    ("queues", [queue(name="")], "queue '' in vhost '/': a queue must have a name"),
    ("queues", [queue("ü" * 128)], f"queue '{'ü' * 128}' in vhost '/': 'name' has 256 bytes, 255 at most"),
    ("queues", [queue(durable="yes")], "queue 'q' in vhost '/': 'durable' must be true or false, not 'yes'"),
    ("queues", [queue(arguments=5)], "queue 'q' in vhost '/': 'arguments' must be an object, not 5"),
    (
        "queues",
        [queue(arguments={"x-message-ttl": -1})],
        "queue 'q' in vhost '/': invalid arg 'x-message-ttl' for it: {value_negative,-1}",
    ),
    (
        "queues",
        [queue(arguments={"big": 1 << 70})],
        f"queue 'q' in vhost '/': 'arguments' cannot be a table: integer does not fit 64 bits: {1 << 70}",
    ),
    ("exchanges", [exchange(type=None)], "exchange 'x' in vhost '/': 'type' is missing"),
    (
        "exchanges",
        [exchange(type="x-consistent-hash", arguments={"hash-header": "a", "hash-property": "message_id"})],
        "exchange 'x' in vhost '/': hash-header and hash-property are mutually exclusive",
    ),
    (
        "bindings",
        [binding(destination_type="topic")],
        "binding from 'amq.direct' to 'amq.fanout' in vhost '/': 'destination_type' is queue or exchange, not 'topic'",
    ),
    (
        "bindings",
        [binding(source="amq.headers", arguments={"x-match": "some"})],
        "binding from 'amq.headers' to 'amq.fanout' in vhost '/': "
        'Invalid x-match field value <<"some">>; expected all, any, all-with-x, or any-with-x',
    ),
    ("policies", [policy(pattern="(")], "policy 'p' in vhost '/': pattern '('"),
    ("policies", [policy(definition={})], "policy 'p' in vhost '/': the definition is empty"),
    ("policies", [policy(priority="high")], "policy 'p' in vhost '/': 'priority' must be a whole number, not 'high'"),
    ("users", [{"name": "u"}], "user 'u': "),
    ("users", [user(password_hash="a")], "user 'u': the password hash of user 'u' is not base64"),
    ("users", [user(hashing_algorithm="rot13")], "user 'u': the password hash of user 'u' has an unknown hashing"),
    ("users", [user(limits={"max-beer": 1})], "user 'u': no such limit of a user: max-beer"),
    ("vhosts", [{"name": ""}], "vhost '': a vhost must have a name"),
    (
        "permissions",
        [{"user": "nobody", "vhost": "/", "configure": "", "write": "", "read": ""}],
        "permission 'nobody' in vhost '/': user 'nobody' does not exist",
    ),
    (
        "permissions",
        [{"user": "guest", "vhost": "/", "configure": "(", "write": "", "read": ""}],
        "permission 'guest' in vhost '/': regular expression '('",
    ),
    (
        "parameters",
        [{"vhost": "/", "component": "vhost-limits", "name": "limits", "value": {"max-queues": "many"}}],
        "parameter 'limits' in vhost '/': 'max-queues' must be a whole number, not 'many'",
    ),
    (
        "parameters",
        [{"vhost": "/", "component": "operator_policy", "name": "o", "value": {"pattern": "", "definition": {}}}],
        "parameter 'o' in vhost '/': the definition is empty",
    ),
]


@pytest.mark.parametrize(("section", "entries", "text"), WRONG)
def test_a_wrong_document_is_refused_whole_with_the_object_and_the_reason(
    section: str, entries: Any, text: str
) -> None:
    house, book = kept_house()
    before, calls = export_definitions(house.broker), book.calls
    document = {
        "vhosts": [{"name": "good"}],
        "users": [user("good")],
        "queues": [queue("good")],
        "exchanges": [exchange("good")],
        "policies": [policy(name="good")],
    }
    found = document.get(section, [])
    document[section] = [*found, *entries] if isinstance(entries, list) and section != "queues" else entries
    with pytest.raises(DefinitionsError) as told:
        import_definitions(house.broker, document)  # type: ignore[arg-type]  # what a file may bring
    assert str(told.value).startswith(text)
    assert "\n" not in str(told.value)
    assert export_definitions(house.broker) == before
    assert book.calls == calls


@pytest.mark.parametrize("document", [None, [], "text", 5])
def test_a_document_that_is_no_object_is_refused(document: Any) -> None:
    with pytest.raises(DefinitionsError):
        import_definitions(House().broker, document)


def test_nesting_beyond_all_bounds_is_refused() -> None:
    deep: Any = {}
    for _ in range(900):
        deep = {"a": deep}
    with pytest.raises(DefinitionsError, match="cannot be a table"):
        import_one("queues", queue(arguments=deep))


def test_a_vhost_that_is_not_there_can_be_neither_exported_nor_imported_into() -> None:
    with pytest.raises(DefinitionsError, match="there is no vhost 'nowhere'"):
        export_definitions(House().broker, "nowhere")
    with pytest.raises(DefinitionsError, match="there is no vhost 'nowhere'"):
        import_definitions(House().broker, {}, "nowhere")


@pytest.mark.parametrize(
    ("kind", "why"),
    [("quorum", "quorum queues are not supported"), ("stream", "a stream needs a broker with a data directory")],
)
def test_a_queue_type_that_is_not_here_is_left_out_and_named_with_its_bindings(kind: str, why: str) -> None:
    house = House()
    document: Any = {
        "queues": [queue("by argument", arguments={"x-queue-type": kind}), queue("by type", type=kind), queue("good")],
        "bindings": [binding(destination="by argument", destination_type="queue")],
    }
    summary = import_definitions(house.broker, document)
    assert list(house.vhost.queues) == ["good"]
    assert summary.warnings == [
        f"queue 'by argument' in vhost '/' is left out: {why}",
        f"queue 'by type' in vhost '/' is left out: {why}",
        "binding from 'amq.direct' to 'by argument' in vhost '/' is left out: there is no queue 'by argument'",
    ]


def test_an_exchange_type_of_a_plugin_is_left_out_and_named() -> None:
    summary = import_one("exchanges", exchange(type="x-delayed-message"), exchange("amq.mine"), exchange("amq.topic"))
    assert summary.warnings[:2] == [
        "exchange 'x' in vhost '/' is left out: exchange type 'x-delayed-message' is not supported",
        "exchange 'amq.mine' in vhost '/' is left out: names with 'amq.' are the broker's own",
    ]
    assert summary.added == {}


def test_what_rabbitmqctl_writes_as_pairs_is_read_as_objects() -> None:
    house = House()
    value = {"pattern": "^q", "definition": [["max-length", 1000]], "priority": 7, "apply-to": "queues"}
    import_one(
        "parameters",
        {"vhost": "/", "component": "operator_policy", "name": "op", "value": value},
        {"vhost": "/", "component": "vhost-limits", "name": "limits", "value": [["max-connections", 64]]},
        {"vhost": "/", "component": "shovel", "name": "s", "value": [["a", 1]]},
        broker=house.broker,
    )
    assert house.vhost.policies.operator["op"].definition == {"max-length": 1000}
    assert house.vhost.limits == {"max-connections": 64}
    assert house.vhost.parameters == {("shovel", "s"): [["a", 1]]}  # what is not understood is kept as it came


def test_unknown_keys_are_passed_over() -> None:
    import_one("queues", queue(node="rabbit@host", exclusive=False, effective_policy_definition={}))
    import_definitions(House().broker, {"rabbit_version": "3.10.8", "topics": 5})


def test_a_plain_password_is_hashed() -> None:
    house = House()
    import_one("users", {"name": "u", "password": "secret", "tags": "administrator"}, broker=house.broker)
    secret = house.broker.users.secret("u")
    assert secret.algorithm == SCRYPT
    assert verify(secret, "secret")


def test_more_queues_than_the_vhost_may_have_are_refused() -> None:
    house = House()
    house.queue("q")
    put_limits(house.vhost, {"max-queues": 2})
    import_one("queues", queue("q"), queue("a"), broker=house.broker)
    with pytest.raises(
        DefinitionsError, match="vhost '/': 1 more queues would exceed its limit of 2, it has 2 already"
    ):
        import_one("queues", queue("q"), queue("b"), broker=house.broker)


def test_a_summary_says_in_one_line_what_was_done() -> None:
    house = House()
    house.queue("there", durable=True)
    summary = import_one("queues", queue("there"), queue("new"), queue("passing", durable=False), broker=house.broker)
    assert summary.line() == "2 queues added; 1 queues kept"
    assert summary.transient == ["queue 'passing' in vhost '/'"]
    assert import_definitions(house.broker, {}).line() == "nothing to import"
