"""Cases: dead lettering and x-death in detail."""

from __future__ import annotations

from penstock.amqp.method import (
    BasicAck,
    BasicNack,
    BasicReject,
    ChannelClose,
    ExchangeDeclare,
    Method,
    QueueDelete,
    QueuePurge,
    TxCommit,
    TxSelect,
)
from tests.differential.player import Area
from tests.differential.script import Channel, Script
from tests.differential.typed import T

area = Area("deadletter")


def queues(s: Script, exchange: str = "", key: str | None = "dead", **arguments: object) -> Channel:
    c = s.channel()
    c.declare("dead")
    if key is not None:
        arguments["x_dead_letter_routing_key"] = key
    c.declare("q", x_dead_letter_exchange=exchange, **arguments)
    return c


def reject(c: Channel, queue: str = "q") -> None:
    answer = c.get(queue, no_ack=False)
    c.send(BasicReject(answer.delivery_tag, False))  # type: ignore[attr-defined]  # a get-ok


@area.each(
    {
        "reject": (BasicReject(1, False),),
        "nack": (BasicNack(1, False, False),),
        "nack of all": (BasicNack(0, True, False),),
    }
)
def rejected_by(s: Script, method: Method) -> None:
    c = queues(s)
    c.publish("q", b"1")
    c.get("q", no_ack=False)
    c.send(method)
    c.get_when_there("dead")


@area.each(
    {
        "requeue": (BasicReject(1, True),),
        "ack": (BasicAck(1),),
    }
)
def not_dead_lettered_by(s: Script, method: Method) -> None:
    c = queues(s)
    c.publish("q", b"1")
    c.get("q", no_ack=False)
    c.send(method)
    c.drain("q")
    c.drain("dead")


@area.case
def many_rejected_at_once_keep_their_order(s: Script) -> None:
    c = queues(s)
    c.fill("q", *(b"%d" % number for number in range(4)))
    for _ in range(4):
        c.get("q", no_ack=False)
    c.send(BasicNack(4, True, False))
    s.until_count("dead", 4)
    c.drain("dead")


@area.case
def purge_and_delete_do_not_dead_letter(s: Script) -> None:
    c = queues(s)
    c.fill("q", b"1")
    c.ask(QueuePurge("q"))
    c.fill("q", b"2")
    c.ask(QueueDelete("q"))
    c.drain("dead")


@area.case
def without_a_key_the_old_one_is_used(s: Script) -> None:
    c = queues(s, "amq.direct", None)
    c.bind("dead", "amq.direct", "q")
    c.publish("q", b"1")
    reject(c)
    c.get_when_there("dead")


@area.case
def through_a_topic_exchange_with_the_old_key(s: Script) -> None:
    c = queues(s, "dlx", None)
    c.exchange("dlx", "topic")
    c.bind("dead", "dlx", "a.#")
    c.bind("q", "amq.topic", "#")
    c.publish("a.b", b"1", "amq.topic")
    reject(c)
    c.get_when_there("dead")


@area.case
def a_missing_exchange_drops(s: Script) -> None:
    c = queues(s, "nope")
    c.publish("q", b"1")
    reject(c)
    c.drain("q")
    c.drain("dead")


@area.case
def an_unroutable_dead_letter_is_dropped_without_return(s: Script) -> None:
    c = queues(s, "", "nobody")
    c.publish("q", b"1", mandatory=True)
    reject(c)
    c.drain("q")
    c.barrier()


@area.case
def an_internal_exchange_may_be_the_target(s: Script) -> None:
    c = queues(s, "dlx")
    c.ask(ExchangeDeclare("dlx", "fanout", internal=True))
    c.bind("dead", "dlx")
    c.publish("q", b"1")
    reject(c)
    c.get_when_there("dead")


@area.case
def the_alternate_exchange_of_the_target_is_used(s: Script) -> None:
    c = queues(s, "dlx")
    c.exchange("dlx", "direct", alternate_exchange="amq.fanout")
    c.bind("dead", "amq.fanout")
    c.publish("q", b"1")
    reject(c)
    c.get_when_there("dead")


@area.case
def to_several_queues(s: Script) -> None:
    c = queues(s, "amq.fanout")
    c.declare("dead too")
    c.bind("dead", "amq.fanout")
    c.bind("dead too", "amq.fanout")
    c.publish("q", b"1")
    reject(c)
    c.get_when_there("dead")
    c.get_when_there("dead too")


@area.case
def properties_and_headers_are_kept(s: Script) -> None:
    c = queues(s)
    c.publish(
        "q",
        b"1",
        content_type="text/plain",
        headers={"a": T("b", 1), "z": [1]},
        delivery_mode=2,
        priority=3,
        correlation_id="c",
        expiration="100000",
        message_id="m",
        timestamp=5,
        user_id="guest",
    )
    reject(c)
    c.get_when_there("dead")


@area.case
def the_expiration_is_taken_away_and_told_in_x_death(s: Script) -> None:
    c = queues(s)
    c.publish("q", b"1", expiration="10")
    c.get_when_there("dead")


@area.case
def rejected_with_an_expiration(s: Script) -> None:
    c = queues(s)
    c.publish("q", b"1", expiration="50000")
    reject(c)
    c.get_when_there("dead")


@area.each({"with a key": ("dead",), "without a key": (None,)})
def carbon_copies(s: Script, key: str | None) -> None:
    c = s.channel()
    c.declare("dead")
    c.declare("copy")
    c.exchange("dlx", "fanout")
    c.bind("dead", "dlx")
    arguments = {"x_dead_letter_routing_key": key} if key else {}
    c.declare("q", x_dead_letter_exchange="dlx", **arguments)
    c.publish("q", b"1", headers={"CC": ["copy"], "BCC": ["hidden"], "a": 1})
    reject(c)
    c.get_when_there("dead")
    c.get_when_there("copy")


@area.case
def carbon_copies_route_dead_letters_too(s: Script) -> None:
    c = s.channel()
    c.declare("a")
    c.declare("b")
    c.exchange("dlx")
    c.bind("a", "dlx", "q")
    c.bind("b", "dlx", "copy")
    c.declare("q", x_dead_letter_exchange="dlx")
    c.publish("q", b"1", headers={"CC": ["copy"]})
    reject(c)
    c.get_when_there("a")
    c.get_when_there("b")


@area.case
def the_count_grows_on_the_way_round(s: Script) -> None:
    c = s.channel()
    c.declare("retry", x_dead_letter_exchange="", x_dead_letter_routing_key="q", x_message_ttl=1)
    c.declare("q", x_dead_letter_exchange="", x_dead_letter_routing_key="retry")
    c.publish("q", b"1")
    reject(c)
    for _ in range(2):
        answer = c.get_when_there("q")
        assert answer.NAME == "basic.get-ok"
        c.publish("q", b"again")
        reject(c)


@area.case
def a_message_that_goes_round_by_rejection_counts(s: Script) -> None:
    c = s.channel()
    c.declare("retry", x_dead_letter_exchange="", x_dead_letter_routing_key="q", x_message_ttl=1)
    c.declare("q", x_dead_letter_exchange="", x_dead_letter_routing_key="retry")
    c.consume("q")
    c.publish("q", b"1", headers={"mine": 1})
    for tag in (1, 2, 3):
        c.deliveries(1)
        c.send(BasicReject(tag, False))
    c.deliveries(1)
    c.send(BasicAck(4))


@area.case
def a_cycle_of_expiry_only_is_dropped(s: Script) -> None:
    c = s.channel()
    c.declare("q", x_dead_letter_exchange="", x_dead_letter_routing_key="q", x_message_ttl=5)
    c.publish("q", b"1")
    s.until_count("q", 0)
    c.drain("q")


@area.case
def a_cycle_of_two_by_expiry_only_is_dropped(s: Script) -> None:
    c = s.channel()
    c.declare("a", x_dead_letter_exchange="", x_dead_letter_routing_key="b", x_message_ttl=5)
    c.declare("b", x_dead_letter_exchange="", x_dead_letter_routing_key="a", x_message_ttl=5)
    c.declare("marker", x_message_ttl=1000)
    c.publish("a", b"1")
    c.fill("marker", b"")
    s.until_count("marker", 0)
    c.drain("a")
    c.drain("b")


@area.case
def a_cycle_by_length_is_dropped(s: Script) -> None:
    c = s.channel()
    c.declare("q", x_dead_letter_exchange="", x_dead_letter_routing_key="q", x_max_length=0)
    c.publish("q", b"1")
    c.drain("q")


@area.case
def a_rejected_message_may_come_back_to_its_queue(s: Script) -> None:
    c = s.channel()
    c.declare("q", x_dead_letter_exchange="", x_dead_letter_routing_key="q")
    c.publish("q", b"1")
    reject(c)
    c.get_when_there("q")


@area.case
def two_hops_are_told_newest_first(s: Script) -> None:
    c = s.channel()
    c.declare("end")
    c.declare("middle", x_dead_letter_exchange="", x_dead_letter_routing_key="end", x_message_ttl=5)
    c.declare("q", x_dead_letter_exchange="amq.direct", x_dead_letter_routing_key="k")
    c.bind("middle", "amq.direct", "k")
    c.bind("q", "amq.fanout")
    c.publish("first key", b"1", "amq.fanout")
    reject(c)
    c.get_when_there("end")


@area.case
def three_reasons_of_one_queue(s: Script) -> None:
    c = s.channel()
    c.declare("dead", x_dead_letter_exchange="", x_dead_letter_routing_key="q")
    c.declare("q", x_dead_letter_exchange="", x_dead_letter_routing_key="dead", x_max_length=1)
    c.publish("q", b"1")
    reject(c)
    c.connection.script.until_count("dead", 1)
    c.publish("q", b"in the way")
    reject(c, "dead")
    s.until_count("dead", 1)
    c.drain("dead")
    c.drain("q")


@area.case
def an_x_death_of_the_client_s_own(s: Script) -> None:
    c = queues(s)
    c.publish("q", b"1", headers={"x-death": [{"count": 5, "reason": "rejected", "queue": "q"}], "a": 1})
    reject(c)
    c.get_when_there("dead")


@area.each(
    {
        "a string": ("nonsense",),
        "an empty array": ([],),
        "void": (None,),
        "a full entry of this queue": (
            [
                {
                    "count": T("l", 7),
                    "reason": "rejected",
                    "queue": "q",
                    "time": T("T", 5),
                    "exchange": "",
                    "routing-keys": ["q"],
                }
            ],
        ),
        "an entry of another queue": (
            [
                {
                    "count": T("l", 7),
                    "reason": "expired",
                    "queue": "other",
                    "time": T("T", 5),
                    "exchange": "x",
                    "routing-keys": ["k"],
                }
            ],
        ),
    }
)
def a_strange_x_death(s: Script, value: object) -> None:
    c = queues(s)
    c.publish("q", b"1", headers={"x-death": value})
    reject(c)
    c.get_when_there("dead")


@area.case
def first_death_headers_are_not_overwritten(s: Script) -> None:
    c = queues(s)
    c.publish("q", b"1", headers={"x-first-death-queue": "mine"})
    reject(c)
    c.get_when_there("dead")


@area.case
def redelivered_is_not_set_in_the_target(s: Script) -> None:
    c = queues(s)
    c.publish("q", b"1")
    c.get("q", no_ack=False)
    c.send(BasicReject(1, True))
    reject(c)
    c.get_when_there("dead")


@area.case
def a_server_named_queue_in_x_death(s: Script) -> None:
    c = s.channel()
    c.declare("dead")
    answer = c.declare("", x_dead_letter_exchange="", x_dead_letter_routing_key="dead", x_expires=60_000)
    name = answer.queue  # type: ignore[attr-defined]  # a declare-ok
    c.publish(name, b"1")
    reject(c, name)
    c.get_when_there("dead")
    c.ask(QueueDelete(name))


@area.case
def a_dead_letter_is_delivered_to_a_waiting_consumer(s: Script) -> None:
    c = queues(s)
    d = s.channel(2)
    d.consume("dead")
    c.publish("q", b"1")
    reject(c)
    d.deliveries(1)


@area.case
def a_dead_letter_meets_a_full_queue(s: Script) -> None:
    c = s.channel()
    c.declare("dead", x_max_length=1, x_overflow="reject-publish")
    c.declare("q", x_dead_letter_exchange="", x_dead_letter_routing_key="dead")
    c.fill("dead", b"in the way")
    c.publish("q", b"1")
    reject(c)
    c.drain("q")
    c.drain("dead")


@area.case
def rejected_in_a_transaction(s: Script) -> None:
    c = queues(s)
    c.publish("q", b"1")
    c.ask(TxSelect())
    c.get("q", no_ack=False)
    c.send(BasicReject(1, False))
    c.get("dead")
    c.ask(TxCommit())
    c.get_when_there("dead")


@area.case
def unacked_messages_of_a_closed_channel_are_not_dead_lettered(s: Script) -> None:
    c = queues(s)
    c.publish("q", b"1")
    c.get("q", no_ack=False)
    c.ask(ChannelClose(200, "bye"))
    s.until_count("q", 1)
    s.channel(2).drain("dead")


@area.case
def a_large_body_is_dead_lettered(s: Script) -> None:
    c = queues(s)
    c.publish("q", b"x" * 200_000)
    reject(c)
    c.get_when_there("dead")


@area.case
def a_message_without_properties_gets_headers(s: Script) -> None:
    c = queues(s)
    c.publish("q", b"")
    reject(c)
    c.get_when_there("dead")


@area.case
def a_dead_letter_exchange_declared_later(s: Script) -> None:
    c = queues(s, "dlx")
    c.publish("q", b"1")
    c.exchange("dlx", "fanout")
    c.bind("dead", "dlx")
    reject(c)
    c.get_when_there("dead")


@area.case
def headers_match_dead_letters(s: Script) -> None:
    c = queues(s, "amq.headers")
    c.bind("dead", "amq.headers", "", **{"x-match": "any-with-x", "x-first-death-reason": "rejected"})
    c.publish("q", b"1")
    reject(c)
    c.get_when_there("dead")
