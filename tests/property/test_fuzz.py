"""Fuzz: whatever a client sends, in whatever pieces, it is answered or closed, and leaves nothing behind.

The inputs that the fuzzer once found are in fuzz/corpus and are run here every time (docs/fuzzing.md). Beside them
random sessions, damaged or not, against a whole connection on a real broker, with a bystander who must not notice.
"""

from __future__ import annotations

import random
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuzz.coverage import Coverage
from fuzz.engine import Engine, Input, saved, seeds
from fuzz.mutation import INPUT_BYTES_MAX, cut, joined, mutate
from fuzz.sessions import FRAME_MAX, HANDSHAKES, LOGIN, SESSIONS, said, word
from fuzz.target import DECODER, HANDSHAKE, SESSION, TARGETS, Client, Finding, check_nothing_left, run, talk
from penstock.amqp.method import (
    ConnectionClose,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionStart,
    ConnectionTune,
    QueueDeclare,
    QueueDeclareOk,
    encode_method,
)
from tests.unit.fakes import House, read_said

PEAK_BYTES_FREE = 4 << 20  # of one run: the broker, its vhost, a bystander, caches
PEAK_PER_BYTE = 400  # a table of the shortest entries, decoded, and published to a few queues

chances = st.integers(0, 2**32 - 1).map(random.Random)
words = st.lists(chances.map(word), max_size=12)


@st.composite
def damaged(draw: st.DrawFn, start: st.SearchStrategy[bytes]) -> bytes:
    data = draw(start)
    for chance in draw(st.lists(chances, max_size=3)):
        data = mutate(chance, data, chance.choice(SESSIONS))
    return data


@st.composite
def splits(draw: st.DrawFn, data: bytes) -> list[bytes]:
    if len(data) < 300 and draw(st.integers(0, 4)) == 0:
        return [data[at : at + 1] for at in range(len(data))]
    cuts = sorted(draw(st.sets(st.integers(0, len(data)), max_size=8)))
    return [data[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(data)])]


@pytest.mark.parametrize(("path", "one"), [pytest.param(*pair, id=pair[0].stem) for pair in saved()])
def test_what_the_fuzzer_once_found_is_found_no_more(path: Path, one: Input) -> None:
    run(one.target, one.data)


@pytest.mark.parametrize("one", seeds(), ids=repr)
def test_the_sessions_that_the_fuzzer_begins_with_run_clean(one: Input) -> None:
    run(one.target, one.data)


@pytest.mark.parametrize("one", [one for one in seeds() if one.target != DECODER], ids=repr)
def test_a_session_costs_memory_in_proportion_to_its_bytes(one: Input) -> None:
    tracemalloc.start()
    try:
        run(one.target, one.data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < PEAK_BYTES_FREE + PEAK_PER_BYTE * len(one.data)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_any_session_in_any_pieces_is_answered_and_leaves_nothing_behind(data: st.DataObject) -> None:
    stream = data.draw(damaged(st.one_of(words.map(b"".join), st.sampled_from(SESSIONS))))
    talk(SESSION, data.draw(splits(stream)))


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_any_handshake_in_any_pieces_ends_in_an_open_connection_or_in_none(data: st.DataObject) -> None:
    stream = data.draw(damaged(st.sampled_from(HANDSHAKES)))
    said_to_it = talk(HANDSHAKE, data.draw(splits(stream)))
    names = [type(one.method) for one in said_to_it if one.channel == 0]
    handshake = [kind for kind in names if kind in (ConnectionStart, ConnectionTune, ConnectionOpenOk)]
    assert handshake == [ConnectionStart, ConnectionTune, ConnectionOpenOk][: len(handshake)]


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200))
def test_garbage_from_the_first_byte_on_is_closed(garbage: bytes) -> None:
    talk(HANDSHAKE, [garbage])


@settings(max_examples=200, deadline=None)
@given(damaged(words.map(b"".join)))
def test_the_decoder_reads_any_damaged_session_the_same_in_one_piece_and_in_many(stream: bytes) -> None:
    run(DECODER, stream)


@settings(max_examples=150, deadline=None)
@given(words, st.integers(0, 5000))
def test_a_socket_that_dies_at_any_byte_leaves_nothing_behind(parts: list[bytes], at: int) -> None:
    stream = LOGIN + b"".join(parts)
    client = Client(House())
    client.feed(stream[: at % (len(stream) + 1)])
    client.lose()
    client.house.clock.advance(120)
    client.house.run_until_idle()
    check_nothing_left(client)


def test_frames_cut_and_joined_again_are_the_same_bytes() -> None:
    for data in (*SESSIONS, *HANDSHAKES, LOGIN + b"\x01\x00"):
        assert joined(*cut(data)) == data


@settings(max_examples=100, deadline=None)
@given(chances, st.sampled_from(SESSIONS), st.sampled_from(HANDSHAKES))
def test_a_mutation_is_bounded_in_size(chance: random.Random, one: bytes, other: bytes) -> None:
    for _ in range(20):
        one = mutate(chance, one, other)
        assert len(one) <= INPUT_BYTES_MAX


# The fuzzer itself: it must see what it is there for.


def test_coverage_grows_with_new_code_and_only_then() -> None:
    coverage = Coverage()
    run(DECODER, encode_method(ConnectionOpen("/"), 0), coverage)
    known = len(coverage.taken)
    assert known
    run(DECODER, encode_method(ConnectionOpen("/"), 0), coverage)
    assert len(coverage.taken) == known
    run(DECODER, encode_method(QueueDeclare("q", arguments={"a": [1.5]}), 1), coverage)
    assert len(coverage.taken) > known


def test_the_fuzzer_sees_a_connection_that_stays() -> None:
    client = Client(House())
    client.feed(LOGIN + SESSIONS[1])
    with pytest.raises(Finding, match=r"left behind: .*exclusive queues.*reader"):
        check_nothing_left(client)


def test_the_fuzzer_sees_an_input_that_takes_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fuzz.target.HANG_S", 0.05)
    monkeypatch.setattr("fuzz.target._run_decoder", _for_ever)
    with pytest.raises(Finding, match="hang"):
        run(DECODER, b"")


def _for_ever(data: bytes, coverage: Coverage) -> None:
    while True:
        try:
            sum(range(1000))
        except Exception:
            continue


def test_the_fuzzer_sees_a_crash_and_keeps_a_small_input_that_shows_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def crash(data: bytes, coverage: Coverage) -> None:
        if b"amq.headers" in data:
            raise KeyError("a bug")

    monkeypatch.setattr("fuzz.target._run_decoder", crash)
    monkeypatch.setattr("fuzz.engine.CORPUS", tmp_path / "fuzz" / "corpus")
    (tmp_path / "fuzz" / "corpus").mkdir(parents=True)
    lines: list[str] = []
    engine = Engine((DECODER,), 1, lines.append)
    engine.run_for(0)
    ((finding, path),) = engine.findings.values()
    assert finding.kind == "crash"
    assert path.read_bytes() == b"amq.headers"
    assert "KeyError" in lines[0]


def test_the_login_that_sessions_stand_on_opens_a_connection() -> None:
    client = Client(House())
    client.feed(LOGIN)
    client.feed(said(1, *()) + said(0, ConnectionClose(200, "bye")))
    assert client.connection.frame_max == FRAME_MAX
    assert any(isinstance(one.method, ConnectionOpenOk) for one in read_said(b"".join(client.transport.written)))
    assert client.transport.closing


def test_every_target_has_seeds() -> None:
    assert {one.target for one in seeds()} == set(TARGETS)
    assert QueueDeclareOk in {type(one.method) for one in talk(SESSION, [SESSIONS[0]])}
