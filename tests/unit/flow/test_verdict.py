"""Verdicts, case by case: the rules by which one reads RabbitMQ's `flow`, and what they become in general."""

from __future__ import annotations

import json

import pytest

from penstock.flow.history import History
from penstock.flow.verdict import Verdict
from tests.unit.flow.snapshots import API, CHAIN, DEAD, ONE, ORDERS, STORE, TWO, Picture

SLOW_CHANNEL = CHAIN[:1]
SLOW_QUEUE = CHAIN[:2]
SLOW_STORE = CHAIN


# The three rules of the document, section 3.2.


def test_a_connection_in_flow_with_no_channel_in_flow_is_held_back_by_its_channel():
    verdict = Picture().block(*SLOW_CHANNEL).verdict()
    assert (verdict.cause, verdict.bottleneck, verdict.resource) == ("channel", ONE, "CPU")
    assert verdict.chain == (API, ONE)


def test_with_channels_in_flow_too_and_no_queue_it_is_the_queue():
    verdict = Picture().block(*SLOW_QUEUE).verdict()
    assert (verdict.cause, verdict.bottleneck, verdict.resource) == ("queue", ORDERS, "CPU")
    assert verdict.chain == (API, ONE, ORDERS)


def test_with_queues_in_flow_too_it_is_the_store():
    verdict = Picture().block(*SLOW_STORE).verdict()
    assert (verdict.cause, verdict.bottleneck, verdict.resource) == ("store", STORE, "disk")
    assert verdict.chain == (API, ONE, ORDERS, STORE)


# In general.


def test_nothing_is_held_back_where_nothing_is_blocked():
    assert Picture().verdicts() == []


def test_an_empty_snapshot_has_no_verdicts():
    assert Picture([]).verdicts() == []


def test_a_channel_that_is_blocked_while_its_connection_is_not_holds_nobody_back_yet():
    assert Picture().block((ONE, ORDERS)).verdicts() == []


def test_a_queue_that_is_blocked_by_the_queue_of_its_dead_letters_is_held_back_by_that_queue():
    picture = Picture([(API, ONE), (ONE, ORDERS), (ORDERS, DEAD)]).block((API, ONE), (ONE, ORDERS), (ORDERS, DEAD))
    verdict = picture.verdict()
    assert (verdict.cause, verdict.bottleneck) == ("dead letters", DEAD)
    assert verdict.chain == (API, ONE, ORDERS, DEAD)
    assert "queue `dead`, which takes the dead letters of queue `orders`" in verdict.sentence


def test_dead_letters_that_wait_for_the_disk_are_a_matter_of_the_store():
    chain = [(API, ONE), (ONE, ORDERS), (ORDERS, DEAD), (DEAD, STORE)]
    verdict = Picture(chain).block(*chain).verdict()
    assert (verdict.cause, verdict.bottleneck) == ("store", STORE)
    assert "queue `orders`, whose dead letters go to queue `dead`, which waits for the disk" in verdict.sentence


def test_queues_whose_dead_letters_go_in_a_circle_are_told_as_such():
    chain = [(API, ONE), (ONE, ORDERS), (ORDERS, DEAD), (DEAD, ORDERS)]
    verdict = Picture(chain).block(*chain).verdict()
    assert (verdict.cause, verdict.bottleneck) == ("unknown", None)
    assert verdict.chain == (API,)
    assert "wait for each other" in verdict.sentence


def test_a_circle_with_a_way_out_is_held_back_by_what_is_at_its_end():
    chain = [(API, ONE), (ONE, ORDERS), (ORDERS, DEAD), (DEAD, ORDERS), (DEAD, STORE)]
    verdict = Picture(chain).block(*chain).verdict()
    assert verdict.chain == (API, ONE, ORDERS, DEAD, STORE)


def test_of_several_channels_with_different_queues_the_one_that_blocked_longest_is_named_and_the_other_mentioned():
    mail = "queue mail"
    links = [(API, ONE), (API, TWO), (ONE, ORDERS), (TWO, mail)]
    picture = Picture(links).block((API, ONE), (ONE, ORDERS), for_s=12.0).block((API, TWO), (TWO, mail), for_s=30.0)
    verdict = picture.verdict()
    assert verdict.chain == (API, TWO, mail)
    assert verdict.also == (ORDERS,)
    assert "held back by queue `mail`" in verdict.sentence
    assert "queue `orders` holds it back too" in verdict.sentence


def test_what_blocks_a_hundred_times_less_is_not_mentioned():
    mail = "queue mail"
    links = [(API, ONE), (API, TWO), (ONE, ORDERS), (TWO, mail)]
    picture = Picture(links).block((API, ONE), (ONE, ORDERS), for_s=30.0).block((API, TWO), (TWO, mail), for_s=0.3)
    assert picture.verdict().also == ()


def test_one_channel_blocked_by_two_queues_is_held_back_by_the_one_with_the_greater_share():
    mail = "queue mail"
    picture = Picture([(API, ONE), (ONE, ORDERS), (ONE, mail)])
    picture.block((API, ONE), (ONE, ORDERS), for_s=20.0).block((ONE, mail), for_s=15.0)
    verdict = picture.verdict()
    assert (verdict.bottleneck, verdict.also) == (ORDERS, (mail,))


def test_each_blocked_connection_has_a_verdict_of_its_own_the_worst_first():
    other, its = "connection 10.0.0.2:6000", "channel 10.0.0.2:6000 (1)"
    picture = Picture([*CHAIN, (other, its), (its, ORDERS)]).stage(other, client_name="")
    picture.block(*SLOW_QUEUE, for_s=10.0).block((other, its), for_s=40.0)
    first, second = picture.verdicts()
    assert (first.name, first.cause) == ("10.0.0.2:6000", "channel")
    assert (second.name, second.cause) == ("orders-api", "queue")


def test_a_stage_that_went_away_while_it_was_looked_at_is_named_and_said_to_be_gone():
    picture = Picture().block(*SLOW_QUEUE)
    del picture.stages[ORDERS]
    verdict = picture.verdict()
    assert (verdict.cause, verdict.bottleneck) == ("queue", ORDERS)
    assert "queue `orders`, which is gone by now" in verdict.sentence


def test_a_connection_whose_reason_is_not_told_still_has_a_verdict():
    picture = Picture()
    shot = picture.json()
    shot["stages"][0].update(blocked=True, blocked_for_s=3.0)
    picture.json = lambda: shot  # type: ignore[method-assign]
    assert picture.verdict().cause == "unknown"


@pytest.mark.parametrize(
    ("source", "cause", "resource"),
    [("memory", "memory", "memory"), ("disk", "disk", "disk"), ("store", "store fault", "disk")],
)
def test_under_an_alarm_the_alarm_holds_back_and_its_reason_is_told(source: str, cause: str, resource: str):
    verdict = Picture().alarm(source, "low on it: 3 of 2", API).verdict()
    assert (verdict.cause, verdict.bottleneck, verdict.resource) == (cause, f"alarm {source}", resource)
    assert verdict.chain == (API, f"alarm {source}")
    assert f"{source} alarm" in verdict.sentence
    assert "low on it: 3 of 2" in verdict.sentence


def test_an_alarm_counts_before_any_credit_that_is_out_however_long():
    picture = Picture().block(*SLOW_STORE, for_s=50.0).alarm("memory", "low", API, for_s=0.2)
    assert picture.verdict().cause == "memory"


def test_an_alarm_that_no_connection_has_run_into_makes_no_verdict():
    assert Picture().alarm("memory", "low").verdicts() == []


def test_a_publisher_whose_confirms_are_held_waits_for_the_consumers_of_the_queue():
    marks = {"stop_count": 50, "resume_count": 43}
    verdict = Picture().saturate(ORDERS, {ONE: 3}, consumers=0, watermark=marks).verdict()
    assert (verdict.cause, verdict.resource) == ("saturated", "consumers")
    assert verdict.bottleneck == f"consumers of {ORDERS}"
    assert verdict.chain == (API, ONE, ORDERS, f"consumers of {ORDERS}")
    assert "waits for its confirms, which queue `orders` holds" in verdict.sentence
    assert "60 messages and no consumer" in verdict.sentence
    (mark,) = [knob for knob in verdict.knobs if knob.kind == "policy"]
    assert (mark.setting, mark.value) == ("flow-stop-count", "50")
    assert mark.policy == {"vhost": "/", "queue": "orders", "key": "flow-stop-count"}


def test_where_a_queue_does_not_tell_whose_confirms_it_holds_those_who_wait_for_some_are_meant():
    picture = Picture([*CHAIN, ("connection b:1", "channel b:1 (1)"), ("channel b:1 (1)", ORDERS)])
    picture.saturate(ORDERS, {ONE: 3}).stage(ORDERS, held_from=None).stage(ONE, unconfirmed=3)
    assert [verdict.name for verdict in picture.verdicts()] == ["orders-api"]


def test_a_saturated_queue_that_holds_nothing_makes_no_verdict():
    assert Picture().saturate(ORDERS, {}).verdicts() == []


def test_a_queue_at_its_maximum_waits_for_its_consumers():
    picture = Picture().block(*SLOW_QUEUE, (ORDERS, "maximum")).stage(ORDERS, consumers=2, messages=1000)
    verdict = picture.verdict()
    assert (verdict.cause, verdict.bottleneck) == ("saturated", f"consumers of {ORDERS}")
    assert verdict.chain == (API, ONE, ORDERS, f"consumers of {ORDERS}")
    assert "which is at its maximum" in verdict.sentence
    assert "1000 messages and 2 consumers" in verdict.sentence
    assert [knob.setting for knob in verdict.knobs if knob.kind == "policy"] == ["max-length"]


def test_a_queue_that_was_emptied_since_it_was_full_is_not_said_to_be_empty():
    verdict = Picture().block(*SLOW_QUEUE, (ORDERS, "maximum")).stage(ORDERS, consumers=1, messages=0).verdict()
    assert "which is at its maximum" in verdict.sentence
    assert "; it has 1 consumer;" in verdict.sentence


def test_of_held_confirms_and_credit_the_longer_counts():
    held = {ONE: 3}
    assert Picture().block(*SLOW_STORE, for_s=1.0).saturate(ORDERS, held, for_s=30.0).verdict().cause == "saturated"
    assert Picture().block(*SLOW_STORE, for_s=30.0).saturate(ORDERS, held, for_s=1.0).verdict().cause == "store"


def test_a_stream_is_a_queue_to_its_publishers():
    log = "stream log"
    verdict = Picture([(API, ONE), (ONE, log)]).block((API, ONE), (ONE, log)).verdict()
    assert (verdict.cause, verdict.bottleneck) == ("queue", log)
    assert "stream `log`" in verdict.sentence


# The sentence.


def test_the_sentence_says_who_what_how_much_since_when_and_what_helps():
    verdict = Picture().block(*SLOW_STORE, for_s=45.0).verdict()
    assert verdict.sentence == (
        "orders-api is held back by queue `orders`, which waits for the disk: 75 % of the last minute, for 45 s now; "
        "a sync takes 41 ms; what helps: a disk that syncs faster."
    )
    assert (verdict.since_s, verdict.share_1m) == (45.0, 0.75)


def test_the_sentence_of_a_slow_channel():
    assert Picture().block(*SLOW_CHANNEL, for_s=600.0).verdict().sentence == (
        "orders-api is held back by its channel 1, which cannot route faster: 100 % of the last minute, for 10 min "
        "now; the CPU is the limit; what helps: fewer bindings, or a direct exchange instead of topic or headers."
    )


def test_the_sentence_of_a_slow_queue():
    assert Picture().block(*SLOW_QUEUE, for_s=0.3).verdict().sentence == (
        "orders-api is held back by queue `orders`, which cannot take messages faster: less than 1 % of the last "
        "minute, for less than 1 s now; the CPU is the limit; what helps: more credit makes larger batches, which "
        "cost less per message (credit.channel_queue, now 400,200)."
    )


def test_the_sentence_of_an_alarm():
    picture = Picture().alarm("memory", "low on memory: 812 MB used of 800 MB", API, for_s=7300.0)
    assert picture.verdict().sentence == (
        "orders-api is held back by the memory alarm, as is every publisher: 100 % of the last minute, for 2 h now; "
        "low on memory: 812 MB used of 800 MB; what helps: a higher watermark, if the machine has the memory "
        "(alarms.memory_relative_high, now 0.6)."
    )


def test_a_client_without_a_name_is_called_by_its_address():
    picture = Picture().block(*SLOW_QUEUE).stage(API, client_name="", name="10.0.0.1:5001 -> 10.0.0.9:5672")
    verdict = picture.verdict()
    assert verdict.name == "10.0.0.1:5001"
    assert verdict.connection == "10.0.0.1:5001 -> 10.0.0.9:5672"
    assert verdict.sentence.startswith("10.0.0.1:5001 is held back")


def test_a_stage_that_is_slowed_down_on_purpose_is_told_so_first():
    for blocks, name in (
        (SLOW_CHANNEL, "faults.channel_delay_us"),
        (SLOW_QUEUE, "faults.queue_delay_us"),
        (SLOW_STORE, "faults.store_sync_delay_ms"),
    ):
        picture = Picture().block(*blocks)
        picture.settings[name] = "500"
        verdict = picture.verdict()
        assert (verdict.knobs[0].setting, verdict.knobs[0].value) == (name, "500")
        assert verdict.sentence.endswith(f"what helps: set it to 0 to end the rehearsal ({name}, now 500).")


ALL_CAUSES = [
    Picture().block(*SLOW_CHANNEL),
    Picture().block(*SLOW_QUEUE),
    Picture().block(*SLOW_STORE),
    Picture([(API, ONE), (ONE, ORDERS), (ORDERS, DEAD)]).block((API, ONE), (ONE, ORDERS), (ORDERS, DEAD)),
    Picture().alarm("memory", "low", API),
    Picture().alarm("disk", "low", API),
    Picture().alarm("store", "no space", API),
    Picture().saturate(ORDERS, {ONE: 1}),
]


@pytest.mark.parametrize("picture", ALL_CAUSES, ids=lambda picture: picture.verdict().cause)
def test_every_cause_has_knobs_with_an_advice_and_settings_that_exist_with_their_present_value(picture: Picture):
    verdict = picture.verdict()
    assert verdict.knobs
    for knob in verdict.knobs:
        assert knob.advice
        if knob.kind == "setting":
            assert knob.value == picture.settings[knob.setting]


@pytest.mark.parametrize("picture", ALL_CAUSES, ids=lambda picture: picture.verdict().cause)
def test_a_verdict_is_json_with_all_the_fields_that_are_documented(picture: Picture):
    told = json.loads(json.dumps(picture.verdict().json()))
    assert set(told) == {
        "connection", "id", "name", "user", "vhost", "cause", "bottleneck", "chain", "since_s", "share_1m", "resource",
        "sentence", "knobs", "also",
    }  # fmt: skip
    for knob in told["knobs"]:
        assert set(knob) - {"policy"} == {"setting", "value", "advice", "kind"}


# Over time.


def watched(picture: Picture, history: History, seconds: int, *flickering: tuple[tuple[str, str], float]) -> None:
    """One sample a second; in each of them these block for such a part of it."""
    for _ in range(seconds):
        picture.passes(1.0)
        for pair, share in flickering:
            picture.flickers(share, pair)
        history.add(picture.state())


def told(verdict: Verdict) -> tuple[str, str | None, tuple[str, ...]]:
    return verdict.cause, verdict.bottleneck, verdict.chain


def test_a_block_that_comes_and_goes_is_told_steadily_whether_it_is_there_when_looked_at_or_not():
    picture, history = Picture(), History()
    history.add(picture.state())
    flickering = [((API, ONE), 0.6), ((ONE, ORDERS), 0.58), ((ORDERS, STORE), 0.55)]
    watched(picture, history, 70, *flickering)
    free = picture.verdict(history)
    blocked = picture.block(*SLOW_CHANNEL, for_s=0.001).verdict(history)
    assert told(free) == told(blocked) == ("store", STORE, (API, ONE, ORDERS, STORE))
    assert free.sentence == blocked.sentence
    assert "60 % of the last minute, for 69 s now" in free.sentence


def test_a_stage_that_is_blocked_for_a_small_part_of_what_it_blocks_others_is_the_bottleneck_itself():
    picture, history = Picture(), History()
    history.add(picture.state())
    watched(picture, history, 20, ((API, ONE), 0.9), ((ONE, ORDERS), 0.85), ((ORDERS, STORE), 0.1))
    assert told(picture.verdict(history)) == ("queue", ORDERS, (API, ONE, ORDERS))
    # Even if it is just the moment in which the queue waits for the disk.
    assert picture.block(*SLOW_STORE, for_s=0.001).verdict(history).cause == "queue"


def test_what_blocks_less_than_one_part_in_twenty_holds_nobody_back():
    picture, history = Picture(), History()
    history.add(picture.state())
    watched(picture, history, 20, ((API, ONE), 0.04), ((ONE, ORDERS), 0.04))
    assert picture.verdicts(history) == []
    assert picture.block(*SLOW_QUEUE, for_s=0.001).verdicts(history) == []


def test_it_is_over_three_seconds_after_the_last_block_and_then_begins_anew():
    picture, history = Picture(), History()
    history.add(picture.state())
    watched(picture, history, 20, ((API, ONE), 0.5))
    watched(picture, history, 2)
    assert picture.verdict(history).since_s == pytest.approx(21.5)
    watched(picture, history, 2)
    assert picture.verdicts(history) == []
    watched(picture, history, 1, ((API, ONE), 0.5))
    again = picture.verdict(history)
    assert again.since_s == pytest.approx(0.5)
    assert again.share_1m == pytest.approx(10.5 / 60)


def test_a_new_cause_is_told_within_seconds_although_the_old_one_has_the_greater_part_of_the_minute():
    picture, history = Picture(), History()
    history.add(picture.state())
    watched(picture, history, 50, ((API, ONE), 0.9), ((ONE, ORDERS), 0.9), ((ORDERS, STORE), 0.9))
    assert picture.verdict(history).cause == "store"
    watched(picture, history, 6, ((API, ONE), 0.9), ((ONE, ORDERS), 0.9))
    assert picture.verdict(history).cause == "queue"


def test_what_held_back_others_before_is_not_told_of_a_connection_that_came_later():
    picture, history = Picture(), History()
    history.add(picture.state())
    watched(picture, history, 30, ((API, ONE), 0.9), ((ONE, ORDERS), 0.9), ((ORDERS, STORE), 0.9))
    late, its = "connection 10.0.0.2:6000", "channel 10.0.0.2:6000 (1)"
    picture.stage(late).stage(its)
    picture.links |= {(late, its): 0.0, (its, ORDERS): 0.0}
    watched(picture, history, 1, ((late, its), 0.9), ((its, ORDERS), 0.9))
    causes = {verdict.id: verdict.cause for verdict in picture.verdicts(history)}
    assert causes[late] == "queue"


def test_an_alarm_that_is_over_holds_nobody_back_at_once():
    picture, history = Picture(), History()
    history.add(picture.state())
    picture.alarm("memory", "low", API, for_s=0.0)
    watched(picture, history, 30)
    assert picture.verdict(history).share_1m == pytest.approx(0.5)
    picture.alarms.clear()
    picture.free((API, "alarm memory")).passes(0.1)
    assert picture.verdicts(history) == []


def test_of_two_queues_that_flicker_the_one_with_the_greater_share_is_named_whichever_blocks_just_now():
    mail = "queue mail"
    picture, history = Picture([(API, ONE), (ONE, ORDERS), (ONE, mail)]), History()
    history.add(picture.state())
    watched(picture, history, 30, ((API, ONE), 0.8), ((ONE, ORDERS), 0.5), ((ONE, mail), 0.3))
    picture.block((API, ONE), (ONE, mail), for_s=0.01)
    verdict = picture.verdict(history)
    assert (verdict.bottleneck, verdict.also) == (ORDERS, (mail,))


def test_a_queue_that_is_at_its_maximum_now_and_then_is_told_as_such():
    picture, history = Picture(), History()
    history.add(picture.state())
    picture.block((API, ONE), (ONE, ORDERS), (ORDERS, "maximum"), for_s=0.0)
    watched(picture, history, 1)
    picture.free((API, ONE), (ONE, ORDERS), (ORDERS, "maximum"))
    for _ in range(20):
        picture.passes(1.0).flickers(0.7, (API, ONE), (ONE, ORDERS))
        picture.stages[ORDERS]["blocked_s"] += 0.6
        history.add(picture.state())
    assert picture.verdict(history).bottleneck == f"consumers of {ORDERS}"


def test_a_connection_that_is_gone_has_no_verdict():
    picture, history = Picture(), History()
    history.add(picture.state())
    watched(picture, history, 5, ((API, ONE), 0.9))
    del picture.stages[API], picture.links[API, ONE]
    picture.passes(0.2)
    assert picture.verdicts(history) == []


@pytest.mark.parametrize(
    ("channel_s", "queue_s", "cause"),
    [
        (0.1, 0.8, "queue"),  # its queue takes the core
        (0.8, 0.1, "channel"),  # it routes heavily
        (0.3, 0.5, "channel"),  # both take it: what the connection waits for is the channel
        (0.01, 0.2, "channel"),  # nobody here takes the core for half of the time that was waited
    ],
)
def test_of_channel_and_queue_that_share_a_core_the_one_that_takes_it_is_the_bottleneck(
    channel_s: float, queue_s: float, cause: str
):
    picture, history = Picture(), History()
    picture.stage(ONE, busy_s=500.0).stage(ORDERS, busy_s=900.0)  # before anybody looked
    history.add(picture.state())
    for _ in range(10):
        watched(picture, history, 1, ((API, ONE), 0.9))
        for id_, seconds in ((ONE, channel_s), (ORDERS, queue_s)):
            picture.stage(id_, busy_s=picture.stages[id_]["busy_s"] + seconds)
    verdict = picture.verdict(history)
    assert verdict.cause == cause, verdict.sentence
    assert verdict.chain == ((API, ONE, ORDERS) if cause == "queue" else (API, ONE))


def test_two_channels_whose_queue_takes_the_core_are_held_back_by_it_once():
    picture, history = Picture([*CHAIN, (API, TWO), (TWO, ORDERS)]), History()
    for _ in range(10):
        picture.stage(ORDERS, busy_s=picture.stages[ORDERS].get("busy_s", 0.0) + 0.9)
        watched(picture, history, 1, ((API, ONE), 0.4), ((API, TWO), 0.4))
    verdict = picture.verdict(history)
    assert (verdict.cause, verdict.bottleneck, verdict.also) == ("queue", ORDERS, ())
