"""Cases: who gets a message. All types of exchange, exchange to exchange, alternate exchanges, CC and BCC."""

from __future__ import annotations

from penstock.amqp.method import ExchangeDeclare, QueueUnbind
from tests.differential.player import Area
from tests.differential.script import Channel, Script
from tests.differential.typed import T, short_bytes, value_bytes

area = Area("routing")


def bound(s: Script, exchange: str, **keys: str) -> Channel:
    """Queues by name, each bound by its key."""
    c = s.channel()
    for queue, key in keys.items():
        c.declare(queue)
        c.bind(queue, exchange, key)
    return c


def drain_all(c: Channel) -> None:
    for queue in dict.fromkeys(c.script.queues):
        c.drain(queue)


@area.case
def the_default_exchange_routes_by_name(s: Script) -> None:
    c = s.channel()
    c.declare("a")
    c.declare("b")
    c.publish("a", b"1", mandatory=True)
    c.publish("nope", b"2", mandatory=True)
    c.publish("", b"3", mandatory=True)
    drain_all(c)


@area.case
def a_direct_exchange_routes_by_the_whole_key(s: Script) -> None:
    c = bound(s, "amq.direct", a="k", b="k", d="K", e="k.k", f="")
    for key in ("k", "K", "", "k.k", "#", "*"):
        c.publish(key, key.encode(), "amq.direct", mandatory=True)
    drain_all(c)


@area.case
def a_fanout_exchange_ignores_keys(s: Script) -> None:
    c = bound(s, "amq.fanout", a="k", b="", d="other")
    c.publish("anything", b"1", "amq.fanout")
    drain_all(c)


@area.case
def several_bindings_to_one_queue_deliver_once(s: Script) -> None:
    c = bound(s, "amq.topic", q="a.*")
    c.bind("q", "amq.topic", "a.b")
    c.bind("q", "amq.topic", "#")
    c.publish("a.b", b"1", "amq.topic")
    c.drain("q")


TOPIC_KEYS = ("a", "a.b", "a.b.c", "b", "", ".", "a.", ".a", "a..b", "a.b.c.d", "#", "*", "a.*", "é.b", "A.b")


@area.each(
    {
        pattern or "empty": (pattern,)
        for pattern in (
            "a",
            "*",
            "#",
            "",
            "a.*",
            "*.b",
            "a.#",
            "#.b",
            "#.a.#",
            "*.*",
            "*.#",
            "#.*",
            "#.#",
            "a.#.b",
            "a.*.c",
            "*.b.#",
            "#.b.*",
            "a.",
            ".",
            "*.",
            "a*",
            "a.b#",
            "**",
            "é.*",
        )
    }
)
def topic_pattern(s: Script, pattern: str) -> None:
    c = bound(s, "amq.topic", q=pattern)
    for key in TOPIC_KEYS:
        c.publish(key, b"", "amq.topic")
    c.drain("q")


@area.case
def a_topic_binding_can_be_taken_back(s: Script) -> None:
    c = bound(s, "amq.topic", a="a.#", b="a.*")
    c.ask(QueueUnbind("a", "amq.topic", "a.#"))
    c.publish("a.b", b"1", "amq.topic")
    drain_all(c)


HEADERS: dict[str, tuple[dict, dict]] = {
    "all of two": ({"x-match": "all", "a": 1, "b": "2"}, {"a": 1, "b": "2"}),
    "all and more": ({"x-match": "all", "a": 1}, {"a": 1, "b": "2"}),
    "all but one missing": ({"x-match": "all", "a": 1, "b": "2"}, {"a": 1}),
    "all but one other": ({"x-match": "all", "a": 1, "b": "2"}, {"a": 1, "b": "3"}),
    "any of two": ({"x-match": "any", "a": 1, "b": "2"}, {"b": "2"}),
    "any of none": ({"x-match": "any", "a": 1}, {"c": 1}),
    "any without criteria": ({"x-match": "any"}, {"a": 1}),
    "all without criteria": ({"x-match": "all"}, {"a": 1}),
    "all without criteria or headers": ({"x-match": "all"}, {}),
    "no x-match is all": ({"a": 1, "b": 2}, {"a": 1}),
    "no arguments at all": ({}, {"a": 1}),
    "void is any value": ({"x-match": "all", "a": None}, {"a": "anything"}),
    "void needs the key": ({"x-match": "all", "a": None}, {"b": 1}),
    "void as the header": ({"x-match": "all", "a": 1}, {"a": None}),
    "x- keys are ignored by all": ({"x-match": "all", "x-a": 1, "b": 2}, {"b": 2}),
    "x- keys are ignored by any": ({"x-match": "any", "x-a": 1}, {"x-a": 1}),
    "all-with-x missing": ({"x-match": "all-with-x", "x-a": 1, "b": 2}, {"b": 2}),
    "all-with-x there": ({"x-match": "all-with-x", "x-a": 1, "b": 2}, {"x-a": 1, "b": 2}),
    "any-with-x there": ({"x-match": "any-with-x", "x-a": 1, "b": 2}, {"x-a": 1}),
    "any-with-x: x-match itself": ({"x-match": "any-with-x", "b": 2}, {"x-match": "any-with-x"}),
    "byte against int": ({"x-match": "all", "a": T("b", 5)}, {"a": 5}),
    "long against int": ({"x-match": "all", "a": T("l", 5)}, {"a": T("s", 5)}),
    "double against int": ({"x-match": "all", "a": 5.0}, {"a": 5}),
    "float against double": ({"x-match": "all", "a": T("f", 0.5)}, {"a": 0.5}),
    "string against int": ({"x-match": "all", "a": "5"}, {"a": 5}),
    "bool against int": ({"x-match": "all", "a": True}, {"a": 1}),
    "bool against bool": ({"x-match": "all", "a": True}, {"a": True}),
    "timestamp against int": ({"x-match": "all", "a": T("T", 5)}, {"a": 5}),
    "bytes against string": ({"x-match": "all", "a": T("x", "v")}, {"a": "v"}),
    "decimal against decimal": ({"x-match": "all", "a": T("D", (1, 15))}, {"a": T("D", (1, 15))}),
    "table against table": ({"x-match": "all", "a": {"b": 1}}, {"a": {"b": 1}}),
    "table against another": ({"x-match": "all", "a": {"b": 1}}, {"a": {"b": 2}}),
    "array against array": ({"x-match": "all", "a": [1, 2]}, {"a": [1, 2]}),
    "array in another order": ({"x-match": "all", "a": [1, 2]}, {"a": [2, 1]}),
    "nested int letters": ({"x-match": "all", "a": [T("b", 1)]}, {"a": [1]}),
    "upper case key": ({"x-match": "all", "a": 1}, {"A": 1}),
}


@area.each(HEADERS)
def headers_match(s: Script, arguments: dict, headers: dict) -> None:
    c = s.channel()
    c.declare("q")
    c.bind("q", "amq.headers", "", **arguments)
    c.publish("", b"", "amq.headers", headers=headers)
    c.drain("q")


@area.case
def headers_match_a_message_without_headers(s: Script) -> None:
    c = s.channel()
    for queue, match in (("a", "all"), ("b", "any")):
        c.declare(queue)
        c.bind(queue, "amq.match", "", **{"x-match": match})
    c.publish("", b"", "amq.match")
    drain_all(c)


@area.case
def of_a_header_given_twice_the_first_counts(s: Script) -> None:
    c = s.channel()
    for queue, value in (("first", 1), ("second", 2)):
        c.declare(queue)
        c.bind(queue, "amq.headers", "", a=value)
    twice = short_bytes("a") + value_bytes(1) + short_bytes("a") + value_bytes(2)
    c.publish("", b"", "amq.headers", headers=twice)
    drain_all(c)


# Exchange to exchange.


@area.case
def a_message_goes_along_a_chain_of_exchanges(s: Script) -> None:
    c = bound(s, "amq.fanout", q="")
    c.exchange("x", "topic")
    c.exchange("y")
    c.bind_exchange("y", "x", "a.*")
    c.bind_exchange("amq.fanout", "y", "a.b")
    c.publish("a.b", b"1", "x", mandatory=True)
    c.publish("a.c", b"2", "x", mandatory=True)
    c.drain("q")


@area.case
def a_message_that_goes_two_ways_is_delivered_once(s: Script) -> None:
    c = bound(s, "amq.fanout", q="")
    c.exchange("x", "fanout")
    c.bind("q", "x")
    c.bind_exchange("amq.fanout", "x")
    c.publish("k", b"1", "x")
    c.drain("q")


@area.case
def a_circle_of_exchanges_ends(s: Script) -> None:
    c = s.channel()
    c.exchange("x", "fanout")
    c.exchange("y", "fanout")
    c.declare("q")
    c.bind_exchange("y", "x")
    c.bind_exchange("x", "y")
    c.bind("q", "y")
    c.publish("k", b"1", "x")
    c.drain("q")


@area.case
def an_exchange_bound_to_itself(s: Script) -> None:
    c = s.channel()
    c.exchange("x", "fanout")
    c.bind_exchange("x", "x")
    c.publish("k", b"1", "x", mandatory=True)
    c.returns()


@area.case
def headers_are_looked_at_behind_another_exchange(s: Script) -> None:
    c = s.channel()
    c.declare("q")
    c.exchange("x", "fanout")
    c.bind_exchange("amq.headers", "x", "")
    c.bind("q", "amq.headers", "", a=1)
    c.publish("k", b"1", "x", headers={"a": 1})
    c.publish("k", b"2", "x", headers={"a": 2})
    c.drain("q")


@area.case
def an_internal_exchange_is_reached_through_another(s: Script) -> None:
    c = s.channel()
    c.declare("q")
    c.ask(ExchangeDeclare("x", "fanout", internal=True))
    c.bind("q", "x")
    c.bind_exchange("x", "amq.direct", "k")
    c.publish("k", b"1", "amq.direct")
    c.drain("q")
    c.publish("k", b"2", "x")
    c.barrier()


# Alternate exchanges.


@area.case
def what_nobody_wants_goes_to_the_alternate_exchange(s: Script) -> None:
    c = s.channel()
    c.exchange("x", "direct", alternate_exchange="amq.fanout")
    c.declare("a")
    c.declare("b")
    c.bind("a", "x", "k")
    c.bind("b", "amq.fanout")
    c.publish("k", b"1", "x", mandatory=True)
    c.publish("other", b"2", "x", mandatory=True)
    drain_all(c)


@area.case
def the_alternate_exchange_keeps_exchange_and_key(s: Script) -> None:
    c = s.channel()
    c.exchange("x", "direct", alternate_exchange="y")
    c.exchange("y", "topic")
    c.declare("q")
    c.bind("q", "y", "a.#")
    c.publish("a.b", b"1", "x", mandatory=True)
    c.publish("b.a", b"2", "x", mandatory=True)
    c.drain("q")


@area.case
def a_missing_alternate_exchange_drops(s: Script) -> None:
    c = s.channel()
    c.exchange("x", "direct", alternate_exchange="nope")
    c.publish("k", b"1", "x", mandatory=True)
    c.returns()


@area.case
def alternate_exchanges_in_a_chain(s: Script) -> None:
    c = s.channel()
    c.exchange("x", "direct", alternate_exchange="y")
    c.exchange("y", "direct", alternate_exchange="amq.fanout")
    c.declare("q")
    c.bind("q", "amq.fanout")
    c.publish("k", b"1", "x", mandatory=True)
    c.drain("q")


@area.case
def alternate_exchanges_in_a_circle(s: Script) -> None:
    c = s.channel()
    c.exchange("x", "direct", alternate_exchange="y")
    c.exchange("y", "direct", alternate_exchange="x")
    c.publish("k", b"1", "x", mandatory=True)
    c.returns()


@area.case
def the_alternate_exchange_of_a_bound_exchange_counts_too(s: Script) -> None:
    c = s.channel()
    c.exchange("x", "direct", alternate_exchange="amq.fanout")
    c.declare("q")
    c.declare("other")
    c.bind("q", "amq.fanout")
    c.bind_exchange("x", "amq.direct", "k")
    c.bind("other", "amq.direct", "k")
    c.publish("k", b"1", "amq.direct", mandatory=True)
    drain_all(c)


@area.case
def a_match_to_an_exchange_that_drops_does_not_use_the_alternate(s: Script) -> None:
    c = s.channel()
    c.exchange("x", "direct", alternate_exchange="amq.fanout")
    c.exchange("dead end", "fanout")
    c.declare("q")
    c.bind("q", "amq.fanout")
    c.bind_exchange("dead end", "x", "k")
    c.publish("k", b"1", "x", mandatory=True)
    c.barrier()
    c.drain("q")


# CC and BCC.


@area.each(
    {
        "CC": ({"CC": ["b", "c"]},),
        "BCC": ({"BCC": ["b"]},),
        "both": ({"CC": ["b"], "BCC": ["c"], "other": 1},),
        "naming the same queue": ({"CC": ["a", "a"], "BCC": ["a"]},),
        "naming nobody": ({"CC": ["nope"]},),
        "empty arrays": ({"CC": [], "BCC": []},),
        "lower case": ({"cc": ["b"], "bcc": ["c"]},),
        "CC a string": ({"CC": "b"},),
        "BCC a string": ({"BCC": "b"},),
        "CC a number": ({"CC": 5},),
        "CC void": ({"CC": None},),
        "CC with a number inside": ({"CC": [5, "b"]},),
        "CC with bytes inside": ({"CC": [T("x", "b")]},),
        "CC and BCC both wrong": ({"CC": 5, "BCC": "b"},),
    }
)
def carbon_copies(s: Script, headers: dict) -> None:
    c = s.channel()
    for queue in "abc":
        c.declare(queue)
    c.publish("a", b"1", headers=headers, mandatory=True)
    drain_all(c)


@area.case
def a_carbon_copy_saves_an_unroutable_message(s: Script) -> None:
    c = s.channel()
    c.declare("b")
    c.publish("nope", b"1", headers={"CC": ["b"]}, mandatory=True)
    c.publish("nope", b"2", headers={"BCC": ["b"]}, mandatory=True)
    c.publish("nope", b"3", headers={"CC": ["nope too"], "BCC": ["nope three"]}, mandatory=True)
    c.drain("b")


@area.case
def carbon_copies_are_keys_of_a_direct_exchange(s: Script) -> None:
    c = bound(s, "amq.direct", a="ka", b="kb")
    c.publish("ka", b"1", "amq.direct", headers={"CC": ["kb"]})
    drain_all(c)


@area.case
def carbon_copies_are_keys_of_a_topic_exchange(s: Script) -> None:
    c = bound(s, "amq.topic", a="a.*", b="b.*")
    c.publish("a.1", b"1", "amq.topic", headers={"CC": ["b.1", "a.2"]})
    drain_all(c)


@area.case
def carbon_copies_do_not_matter_to_a_fanout_exchange(s: Script) -> None:
    c = bound(s, "amq.fanout", a="")
    c.publish("k", b"1", "amq.fanout", headers={"CC": ["b"], "BCC": ["c"]})
    drain_all(c)


@area.case
def carbon_copies_go_along_with_exchange_bindings(s: Script) -> None:
    c = bound(s, "amq.direct", a="ka", b="kb")
    c.exchange("x", "fanout")
    c.bind_exchange("amq.direct", "x")
    c.publish("ka", b"1", "x", headers={"BCC": ["kb"]})
    drain_all(c)


@area.case
def routes_change_at_once(s: Script) -> None:
    c = bound(s, "amq.direct", a="k")
    c.publish("k", b"1", "amq.direct", mandatory=True)
    c.declare("b")
    c.bind("b", "amq.direct", "k")
    c.publish("k", b"2", "amq.direct", mandatory=True)
    c.ask(QueueUnbind("a", "amq.direct", "k"))
    c.publish("k", b"3", "amq.direct", mandatory=True)
    c.ask(QueueUnbind("b", "amq.direct", "k"))
    c.publish("k", b"4", "amq.direct", mandatory=True)
    drain_all(c)
