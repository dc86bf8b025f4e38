"""Policies: which one counts for a queue, and what happens to queues that live when one comes, changes or goes."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.amqp.method import BasicGet, BasicGetOk, ExchangeDeclare
from penstock.broker.ledger import Json
from penstock.broker.policy import PATTERN_LENGTH_MAX, Policies, Policy, PolicyError
from penstock.broker.queue import Queue
from tests.unit.fakes import FakePeer, House


def policies(*some: Policy, operator: tuple[Policy, ...] = ()) -> Policies:
    found = Policies()
    found.user = {policy.name: policy for policy in some}
    found.operator = {policy.name: policy for policy in operator}
    return found


# Which one counts.


def test_a_pattern_is_found_anywhere_in_the_name_as_in_rabbitmq() -> None:
    assert Policy("p", "rder", {"max-length": 1}).matches("queues", "orders")
    assert Policy("p", "", {"max-length": 1}).matches("queues", "orders")
    assert not Policy("p", "^rder", {"max-length": 1}).matches("queues", "orders")


@pytest.mark.parametrize(
    ("apply_to", "queues", "exchanges"),
    [("all", True, True), ("queues", True, False), ("classic_queues", True, False), ("exchanges", False, True)],
)
def test_a_policy_applies_to_queues_or_exchanges_or_both(apply_to: str, queues: bool, exchanges: bool) -> None:
    policy = Policy("p", ".*", {"max-length": 1}, apply_to)
    assert (policy.matches("queues", "x"), policy.matches("exchanges", "x")) == (queues, exchanges)


def test_of_several_policies_the_one_with_the_highest_priority_counts_alone() -> None:
    low = Policy("low", ".*", {"max-length": 1, "message-ttl": 5}, priority=1)
    high = Policy("high", "^q", {"max-length": 9}, priority=2)
    assert policies(low, high).settings("queues", "q") == {"max-length": 9}
    assert policies(high, low).settings("queues", "q") == {"max-length": 9}
    assert policies(low, high).settings("queues", "other") == {"max-length": 1, "message-ttl": 5}


def test_an_operators_number_wins_only_where_it_is_smaller() -> None:
    user = Policy("u", ".*", {"max-length": 10, "message-ttl": 5, "overflow": "reject-publish"})
    bound = Policy("o", ".*", {"max-length": 3, "message-ttl": 7, "expires": 100}, operator=True)
    assert policies(user, operator=(bound,)).settings("queues", "q") == {
        "max-length": 3,
        "message-ttl": 5,
        "overflow": "reject-publish",
        "expires": 100,
    }


def test_an_operator_policy_needs_no_other() -> None:
    bound = Policy("o", "^q$", {"max-length": 3}, operator=True)
    assert policies(operator=(bound,)).settings("queues", "q") == {"max-length": 3}
    assert policies(operator=(bound,)).settings("queues", "other") == {}


def test_a_merged_setting_does_not_change_the_policy_itself() -> None:
    user = Policy("u", ".*", {"max-length": 10})
    policies(user, operator=(Policy("o", ".*", {"max-length": 3}, operator=True),)).settings("queues", "q")
    assert user.definition == {"max-length": 10}


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"definition": {}}, "the definition is empty"),
        ({"pattern": "("}, "pattern '('"),
        ({"pattern": "x" * (PATTERN_LENGTH_MAX + 1)}, f"at most {PATTERN_LENGTH_MAX} characters"),
        ({"apply_to": "everything"}, "apply-to 'everything' is none of"),
        ({"definition": {"max-lenght": 1}}, "'max-lenght' is no known setting"),
        ({"definition": {"max-length": -1}}, "'max-length': {value_negative,-1}"),
        ({"definition": {"max-length": "1"}}, "'max-length': \"expected integer, got longstr\""),
        ({"definition": {"message-ttl": True}}, "'message-ttl': \"expected integer, got bool\""),
        ({"definition": {"expires": 0}}, "'expires': {value_zero,0}"),
        ({"definition": {"overflow": "block"}}, "'overflow': invalid_overflow"),
        ({"definition": {"alternate-exchange": 5}}, "'alternate-exchange': not a string"),
        ({"definition": {"dead-letter-exchange": "x"}, "operator": True}, "no setting for operator policies"),
        ({"definition": {"flow-stop-count": -1}}, "'flow-stop-count': {value_negative,-1}"),
        ({"definition": {"flow-stop-bytes": "1k"}}, "'flow-stop-bytes': \"expected integer, got longstr\""),
        (
            {"definition": {"flow-stop-count": 800, "flow-resume-count": 900}},
            "'flow-resume-count': 900 is greater than flow-stop-count 800",
        ),
        (
            {"definition": {"max-length": 1000, "flow-stop-count": 1200}},
            "'flow-stop-count': 1200 is greater than max-length 1000",
        ),
        (
            {"definition": {"max-length-bytes": 1000, "flow-resume-bytes": 801}},
            "'flow-resume-bytes': 801 is greater than the stop mark of 800, 80 % of max-length-bytes 1000",
        ),
    ],
)
def test_a_wrong_policy_is_refused_in_one_line(options: dict[str, Any], why: str) -> None:
    with pytest.raises(PolicyError) as raised:
        Policy(**{"name": "p", "pattern": ".*", "definition": {"max-length": 1}} | options)
    assert why in str(raised.value)
    assert "\n" not in str(raised.value)


def test_settings_of_clusters_and_plugins_are_taken_so_that_definitions_move_over_whole() -> None:
    assert Policy("ha", ".*", {"ha-mode": "all", "federation-upstream-set": "all"}).definition["ha-mode"] == "all"


def test_watermarks_are_settings_of_policies_even_a_resume_mark_alone() -> None:
    marks: dict[str, Json] = {"flow-stop-count": 10, "flow-stop-bytes": 1000, "overflow": "block-publish"}
    assert Policy("p", ".*", marks).definition == marks
    assert Policy("p", ".*", {"flow-resume-count": 5}).definition == {"flow-resume-count": 5}


def test_a_policy_is_written_as_rabbitmqs_definitions_have_it() -> None:
    assert Policy("p", "^q", {"max-length": 1}, "queues", 3).body("/") == {
        "vhost": "/",
        "name": "p",
        "pattern": "^q",
        "apply-to": "queues",
        "definition": {"max-length": 1},
        "priority": 3,
    }


# Queues that live.


class Town:
    """A queue `q`, with three messages in it, and one for dead letters."""

    def __init__(self) -> None:
        self.house = House()
        self.house.clock.advance(1)
        self.queue: Queue = self.house.queue("q")
        self.dead: Queue = self.house.queue("dead")
        self.house.vhost.declare_exchange(ExchangeDeclare("dlx", "fanout"))
        self.house.vhost.bind(self.house.vhost.exchanges["dlx"], self.dead, "", {})
        self.peer: FakePeer = self.house.peer()
        self.peer.open(1)
        self.publish(b"0", b"1", b"2")

    def publish(self, *bodies: bytes) -> None:
        self.peer.publish(1, "q", *bodies)
        self.house.run_until_idle()

    def put(self, definition: dict[str, Json], name: str = "p", pattern: str = "^q$", **options: Any) -> None:
        operator = bool(options.get("operator"))
        self.house.vhost.put_policy(Policy(name, pattern, definition, **options), operator)
        self.house.run_until_idle()

    def drop(self, name: str = "p") -> None:
        assert self.house.vhost.drop_policy(name)
        self.house.run_until_idle()

    def advance(self, ms: float) -> None:
        self.house.clock.advance(ms / 1000)
        self.house.run_until_idle()

    def bodies(self, queue: str = "q") -> list[bytes]:
        """What is in the queue; then it is empty."""
        got: list[bytes] = []
        while True:
            (said,) = self._get(queue)
            if not isinstance(said.method, BasicGetOk):
                return got
            got.append(said.body or b"")

    def _get(self, queue: str) -> list[Any]:
        self.peer.tell(1, BasicGet(queue, True))
        return self.peer.said()


@pytest.fixture
def town() -> Town:
    return Town()


def test_a_new_length_drops_the_oldest_messages_at_once(town: Town) -> None:
    town.put({"max-length": 2})
    assert town.queue.count() == 2
    assert town.bodies() == [b"1", b"2"]


def test_a_new_length_in_bytes_counts_what_is_there_already(town: Town) -> None:
    town.publish(b"333")
    town.put({"max-length-bytes": 4})
    assert town.bodies() == [b"2", b"333"]


def test_a_new_length_that_refuses_drops_nothing(town: Town) -> None:
    town.put({"max-length": 2, "overflow": "reject-publish"})
    town.publish(b"3")
    assert town.bodies() == [b"0", b"1", b"2"]


def test_what_is_dropped_by_a_new_length_goes_to_the_dead_letter_exchange_of_the_same_policy(town: Town) -> None:
    town.put({"max-length": 1, "dead-letter-exchange": "dlx"})
    assert town.bodies("dead") == [b"0", b"1"]


def test_a_new_time_to_live_is_for_messages_that_still_come_as_in_rabbitmq(town: Town) -> None:
    town.put({"message-ttl": 50})
    town.publish(b"3")
    town.advance(60)
    assert town.bodies() == [b"0", b"1", b"2"]
    town.publish(b"4")
    town.advance(49)
    assert town.queue.count() == 1
    town.advance(1)
    assert town.queue.count() == 0


def test_without_its_policy_a_queue_takes_any_number_again_and_for_ever(town: Town) -> None:
    town.put({"max-length": 1, "message-ttl": 50, "dead-letter-exchange": "dlx"})
    town.drop()
    town.bodies("dead")
    town.publish(b"3", b"4")
    town.advance(1000)
    assert town.bodies() == [b"2", b"3", b"4"]
    assert town.bodies("dead") == []


def test_messages_keep_the_deadline_they_came_with_when_the_policy_goes(town: Town) -> None:
    town.bodies()
    town.put({"message-ttl": 50})
    town.publish(b"3")
    town.drop()
    town.advance(50)
    assert town.queue.count() == 0


def test_the_policy_counts_for_queues_declared_later(town: Town) -> None:
    town.put({"max-length": 1}, pattern="^later")
    later = town.house.queue("later")
    town.peer.publish(1, "later", b"0", b"1")
    town.house.run_until_idle()
    assert later.count() == 1


def test_another_policy_of_higher_priority_takes_over_and_gives_way_again(town: Town) -> None:
    town.put({"max-length": 3})
    town.put({"max-length": 2}, name="stronger", priority=1)
    assert town.queue.options.max_length == 2
    town.drop("stronger")
    assert town.queue.options.max_length == 3


def test_an_operator_policy_bounds_a_queues_own_argument(town: Town) -> None:
    queue = town.house.queue("own", arguments={"x-max-length": 100})
    town.put({"max-length": 10}, pattern="own", operator=True)
    assert queue.options.max_length == 10


def test_a_new_expiry_counts_from_now_however_long_the_queue_lay_idle(town: Town) -> None:
    town.advance(3_600_000)
    town.put({"expires": 1000})
    town.advance(999)
    assert "q" in town.house.vhost.queues
    town.advance(1)
    assert "q" not in town.house.vhost.queues


def test_an_expiry_that_is_taken_back_deletes_nothing(town: Town) -> None:
    town.put({"expires": 1000})
    town.advance(500)
    town.drop()
    town.advance(10_000)
    assert "q" in town.house.vhost.queues


def test_a_policy_that_comes_when_a_queue_is_just_due_disturbs_nobody(town: Town) -> None:
    town.put({"expires": 1000})
    town.queue._vacancy._used_ns -= 2_000_000_000  # due, but its timer has not run yet
    town.put({"max-length": 1}, name="all", pattern=".*", priority=-1)
    town.advance(0)
    assert set(town.house.vhost.queues) == {"dead"}


def test_a_change_of_another_queues_policy_does_not_prolong_an_expiry(town: Town) -> None:
    town.put({"expires": 1000})
    town.advance(600)
    town.put({"max-length": 1}, name="other", pattern="^dead$")
    town.advance(400)
    assert "q" not in town.house.vhost.queues


def test_an_exchange_gets_its_alternate_from_a_policy_until_that_goes(town: Town) -> None:
    town.house.vhost.declare_exchange(ExchangeDeclare("x", "direct"))
    town.put({"alternate-exchange": "dlx"}, pattern="^x$", apply_to="exchanges")
    town.peer.publish(1, "nowhere", b"lost", exchange="x")
    assert town.bodies("dead") == [b"lost"]
    town.drop()
    town.peer.publish(1, "nowhere", b"lost", exchange="x")
    assert town.bodies("dead") == []


def test_dropping_a_policy_that_is_not_there_says_so(town: Town) -> None:
    assert not town.house.vhost.drop_policy("none")
    assert not town.house.vhost.drop_policy("none", operator=True)
