"""The minute before: seconds, shares and episodes out of counters that only grow."""

from __future__ import annotations

import pytest

from penstock.flow.history import History
from penstock.flow.past import Past
from penstock.flow.state import read_state
from penstock.flow.verdict import verdicts
from tests.unit.flow.snapshots import API, CHAIN, ONE, ORDERS, STORE, Picture


def begun(picture: Picture) -> History:
    history = History()
    history.add(picture.state())
    return history


def test_a_share_is_the_blocked_time_of_the_last_sixty_seconds():
    picture = Picture()
    history = begun(picture)
    for _ in range(30):
        history.add(picture.passes(1.0).flickers(0.25, (API, ONE)).state())
    assert history.shares(picture.state()).share_1m(API) == pytest.approx(7.5 / 60)
    for _ in range(45):
        history.add(picture.passes(1.0).state())
    assert history.shares(picture.state()).share_1m(API) == pytest.approx(15 * 0.25 / 60)
    for _ in range(16):
        history.add(picture.passes(1.0).state())
    assert history.shares(picture.state()).share_1m(API) == 0


def test_seconds_in_which_nothing_was_blocked_need_no_snapshot():
    picture = Picture()
    history = begun(picture)
    history.add(picture.passes(1.0).flickers(1.0, (API, ONE)).state())
    for _ in range(10):
        picture.passes(1.0)
        history.quiet(picture.at_s, int(picture.at_s * 1000))
    assert history.shares(picture.state()).share_1m(API) == pytest.approx(1 / 60)
    history.add(picture.passes(1.0).flickers(0.5, (API, ONE)).state())
    assert history.shares(picture.state()).share_1m(API) == pytest.approx(1.5 / 60)


def test_what_has_passed_since_the_last_second_counts_though_it_is_not_added():
    picture = Picture()
    history = begun(picture)
    picture.passes(0.5).flickers(0.4, (API, ONE))
    assert history.shares(picture.state()).share_1m(API) == pytest.approx(0.4 / 60)
    assert len(history.samples) == 1


def test_a_stage_that_was_blocked_long_ago_is_not_blocked_because_it_is_seen_again():
    picture = Picture()
    picture.flickers(500.0, (API, ONE))
    history = begun(picture)
    stages, links = picture.stages.pop(API), picture.links.pop((API, ONE))
    for _ in range(100):
        history.add(picture.passes(1.0).state())
    picture.stages[API], picture.links[API, ONE] = stages, links
    history.add(picture.passes(1.0).state())
    assert history.shares(picture.state()).share_1m(API) == 0


def test_a_stage_that_was_never_seen_before_was_blocked_since_the_last_look_even_if_it_is_free_again():
    picture = Picture()
    history = History()
    history.quiet(picture.at_s, 0)
    picture.passes(1.0).flickers(0.6, (API, ONE))
    assert picture.verdict(history).share_1m == pytest.approx(0.6 / 60)


def test_another_stage_of_the_same_name_begins_anew():
    picture = Picture()
    picture.flickers(50.0, (API, ONE))
    history = begun(picture)
    picture.stages[API]["blocked_s"] = picture.links[API, ONE] = 0.0
    history.add(picture.passes(1.0).state())
    assert history.shares(picture.state()).share_1m(API) == 0


def test_a_queue_that_is_deleted_and_declared_anew_has_not_the_minute_of_the_one_before():
    picture = Picture()
    history = begun(picture)
    for _ in range(20):
        history.add(picture.passes(1.0).flickers(1.0, *CHAIN).state())
    assert history.shares(picture.state()).share_1m(ORDERS) == pytest.approx(20 / 60)
    picture.stages[ORDERS]["blocked_s"] = picture.links[ONE, ORDERS] = picture.links[ORDERS, STORE] = 0.0
    fresh = history.shares(picture.state())  # it is asked before the next second is added
    assert (fresh.share_1m(ORDERS), fresh.edge_share_1m((ORDERS, STORE))) == (0, 0)
    history.add(picture.passes(1.0).state())
    shares = history.shares(picture.state())
    assert (shares.share_1m(ORDERS), shares.edge_share_1m((ORDERS, STORE))) == (0, 0)
    assert not any(ORDERS in sample.stages for sample in history.samples)
    assert shares.share_1m(API) == pytest.approx(20 / 60)  # who waited has waited
    assert picture.verdict(history).cause == "store"  # what held it back until now is still told for what it was
    for _ in range(3):
        history.add(picture.passes(1.0).flickers(0.5, *CHAIN).state())
    assert history.shares(picture.state()).share_1m(ORDERS) == pytest.approx(1.5 / 60)  # its own counts
    assert history.shares(picture.passes(59.0).state()).share_1m(ORDERS) == pytest.approx(0.5 / 60)


def test_a_client_with_the_address_of_one_that_was_held_back_is_not_held_back_for_that():
    picture = Picture()
    history = begun(picture)
    for _ in range(20):
        history.add(picture.passes(1.0).flickers(1.0, (API, ONE)).state())
    picture.stages[API]["blocked_s"] = picture.links[API, ONE] = 0.0
    history.add(picture.passes(1.0).state())
    assert picture.verdicts(history) == []
    assert history.shares(picture.state()).share_1m(API) == 0


def test_a_broker_that_was_too_busy_to_be_looked_at_for_ten_seconds_is_blocked_for_ten_at_most():
    picture = Picture()
    history = begun(picture)
    history.add(picture.passes(10.0).flickers(60.0, (API, ONE)).state())
    assert history.shares(picture.state()).share_1m(API) == pytest.approx(10 / 60)


def test_links_that_do_not_tell_their_blocked_time_are_judged_by_the_moment():
    picture = Picture()
    history, json = begun(picture), picture.json()
    for _ in range(5):
        picture.passes(1.0)
        picture.block(*CHAIN, for_s=0.4)
        picture.stages[API]["blocked_s"] += 0.4
        json = picture.json()
        for link in json["links"]:
            del link["blocked_s"]
        history.add(read_state(json))
    state = read_state(json)
    assert history.shares(state).edge_share_1m((ORDERS, STORE)) == pytest.approx(5 * 0.4 / 60)


def test_a_sync_takes_what_it_took_in_the_last_seconds_not_what_the_last_one_took():
    picture = Picture()
    history = begun(picture)
    for _ in range(10):
        picture.store["syncs"] += 10
        picture.store["sync_seconds"] += 10 * 0.02
        picture.store["last_sync_ms"] = 1.0
        history.add(picture.passes(1.0).state())
    assert history.shares(picture.state()).sync_ms == pytest.approx(20.0)
    assert History().shares(picture.state()).sync_ms == 1.0


def test_a_verdict_is_kept_with_its_begin_and_its_end():
    picture, past = Picture().block(*CHAIN), Past()
    past.note(picture.verdicts(), 20_000)
    assert past.running()
    past.note(picture.passes(1.0).verdicts(), 21_000)
    (entry,) = past.entries()
    assert (entry.began_ms, entry.ended_ms) == (15_000, None)
    past.note([], 22_000)
    assert not past.running()
    (entry,) = past.entries()
    assert (entry.began_ms, entry.ended_ms) == (15_000, 22_000)
    assert entry.json()["sentence"] == picture.verdict().sentence


def test_a_cause_that_takes_the_place_of_another_begins_where_that_ended():
    picture, past = Picture().block(*CHAIN, for_s=30.0), Past()
    past.note(picture.verdicts(), 100_000)
    past.note(picture.free((ORDERS, STORE)).passes(1.0).verdicts(), 101_000)
    store, queue = past.entries()
    assert (store.verdict.cause, store.began_ms, store.ended_ms) == ("store", 70_000, 101_000)
    assert (queue.verdict.cause, queue.began_ms, queue.ended_ms) == ("queue", 101_000, None)


def test_a_snapshot_may_lack_what_other_versions_have_not():
    assert read_state({}).stages == {}
    bare = read_state({"stages": [{"id": "queue q", "blocked_by": None}], "links": None, "store": None})
    assert bare.stages["queue q"].kind == "queue"
    assert verdicts(bare) == []


def test_it_goes_on_after_hours_and_after_a_sleep_of_the_machine():
    picture = Picture()
    history = begun(picture)
    for _ in range(400):
        history.add(picture.passes(5.0).flickers(2.5, (API, ONE)).state())
    assert history.shares(picture.state()).share_1m(API) == pytest.approx(0.5)
    history.add(picture.passes(1_000_000.0).state())
    assert picture.verdicts(history) == []
    for _ in range(5):
        history.add(picture.passes(1.0).flickers(0.5, (API, ONE)).state())
    assert picture.verdict(history).cause == "channel"
