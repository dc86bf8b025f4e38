"""Login: who it is, by mechanism, or nobody; checked in threads, in turns, and slowly for those who guess."""

from __future__ import annotations

import asyncio
import io
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from penstock.amqp.table import Table, encode_table
from penstock.broker.password import DECOY, NO_PASSWORD, Secret, known_secret
from penstock.broker.users import Users
from penstock.net import login
from penstock.net.log import Log
from penstock.net.login import (
    ADDRESSES_MAX,
    DELAY_MAX_S,
    FIRST_DELAY_S,
    FORGIVE_S,
    MECHANISMS,
    THREADS,
    Attempt,
    Failures,
    Logins,
    credentials,
    source,
)
from penstock.runtime import FakeClock


def amqplain(table: Table) -> bytes:
    return encode_table(table)[4:]


@pytest.mark.parametrize(
    ("mechanism", "response", "expected"),
    [
        ("PLAIN", b"\0guest\0secret", ("guest", "secret")),
        ("PLAIN", b"\0\0", ("", "")),
        ("PLAIN", "\0jürgen\0pässwort".encode(), ("jürgen", "pässwort")),
        ("PLAIN", b"\0u\0\xff\xfe", ("u", "\udcff\udcfe")),
        ("PLAIN", b"", None),
        ("PLAIN", b"guest\0secret", None),
        ("PLAIN", b"\0guest", None),
        ("PLAIN", b"\0a\0b\0c", None),
        ("PLAIN", b"other\0guest\0secret", None),
        ("AMQPLAIN", amqplain({"LOGIN": "guest", "PASSWORD": "secret"}), ("guest", "secret")),
        ("AMQPLAIN", amqplain({"PASSWORD": "secret", "LOGIN": "guest", "more": 1}), ("guest", "secret")),
        ("AMQPLAIN", amqplain({"LOGIN": "guest"}), None),
        ("AMQPLAIN", amqplain({"LOGIN": 1, "PASSWORD": "secret"}), None),
        ("AMQPLAIN", b"\0guest\0secret", None),
        ("AMQPLAIN", b"", None),
        ("AMQPLAIN", b"\xff" * 40, None),
        ("EXTERNAL", b"\0guest\0secret", None),
        ("plain", b"\0guest\0secret", None),
        ("", b"", None),
    ],
)
def test_credentials_are_read_or_nobody_is_there(
    mechanism: str, response: bytes, expected: tuple[str, str] | None
) -> None:
    assert credentials(mechanism, response) == expected


def test_what_is_offered_to_everybody_is_what_needs_no_certificate() -> None:
    assert MECHANISMS == b"PLAIN AMQPLAIN"


# Failures.


def test_repeated_failures_are_answered_later_and_later() -> None:
    failures = Failures(FakeClock())
    delays = [failures.note("192.0.2.1") for _ in range(8)]
    assert delays[:3] == [FIRST_DELAY_S, 2 * FIRST_DELAY_S, 4 * FIRST_DELAY_S]
    assert delays == sorted(delays)
    assert delays[-1] == DELAY_MAX_S
    assert failures.note("192.0.2.2") == FIRST_DELAY_S


def test_failures_are_forgiven_one_by_one() -> None:
    clock = FakeClock()
    failures = Failures(clock)
    for _ in range(3):
        failures.note("192.0.2.1")
    clock.advance(FORGIVE_S)
    assert failures.note("192.0.2.1") == 4 * FIRST_DELAY_S
    clock.advance(10 * FORGIVE_S)
    assert failures.note("192.0.2.1") == FIRST_DELAY_S


def test_however_many_attack_little_is_remembered_and_the_latest_longest() -> None:
    failures = Failures(FakeClock())
    failures.note("198.51.100.1")
    failures.note("198.51.100.2")
    for number in range(ADDRESSES_MAX - 1):
        failures.note(f"10.0.{number >> 8}.{number & 255}")
    assert len(failures) == ADDRESSES_MAX
    assert failures.note("198.51.100.2") == 2 * FIRST_DELAY_S
    assert failures.note("198.51.100.1") == FIRST_DELAY_S  # forgotten


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("2001:db8::1", "2001:db8::ffff", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("::ffff:192.0.2.1", "192.0.2.1", True),
        ("192.0.2.1", "192.0.2.2", False),
        ("a socket file", "a socket file", True),
    ],
)
def test_failures_are_counted_by_address_or_by_network(one: str, other: str, same: bool) -> None:
    assert (source(one) == source(other)) is same


# Checking.


class Desk:
    """Logins on a running loop, with a clock that is turned by hand."""

    def __init__(self) -> None:
        self.users = Users()
        self.clock = FakeClock()
        self.stream = io.StringIO()
        self.logins = Logins(self.users, self.clock, Log(stream=self.stream))
        self.outcomes: list[tuple[str, str]] = []
        self._told = asyncio.Event()

    def attempt(
        self, user: str, password: str | None, host: str = "127.0.0.1", done: Callable[[str, str], None] | None = None
    ) -> Attempt:
        return Attempt(user, password, host, host == "127.0.0.1", f"{host}:1234", done or self._done)

    def _done(self, user: str, refusal: str) -> None:
        self.outcomes.append((user, refusal))
        self._told.set()

    async def outcome(self) -> tuple[str, str]:
        """The next; time passes as far as it is asked for."""
        while not self.outcomes:
            self._told.clear()
            await asyncio.sleep(0)
            self.clock.advance(DELAY_MAX_S)
        return self.outcomes.pop(0)

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await asyncio.sleep(0)


def on_a_desk(test: Callable[[Desk], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        desk = Desk()
        try:
            await test(desk)
        finally:
            desk.logins.close()

    asyncio.run(asyncio.wait_for(run(), 120))


def test_a_right_password_is_verified_once_and_then_known() -> None:
    async def test(desk: Desk) -> None:
        assert not desk.logins.check(desk.attempt("guest", "guest"))
        assert await desk.outcome() == ("guest", "")
        assert desk.logins.check(desk.attempt("guest", "guest"))
        desk.users.change_password("guest", known_secret("other", b"\1\2\3\4"))
        assert not desk.logins.check(desk.attempt("guest", "guest"))
        assert await desk.outcome() == ("guest", "user 'guest' - invalid credentials")

    on_a_desk(test)


@pytest.mark.parametrize(
    ("user", "password"), [("guest", "wrong"), ("nobody", "guest"), ("guest", ""), ("locked", ""), ("locked", "x")]
)
def test_a_wrong_login_is_refused_and_logged(user: str, password: str) -> None:
    async def test(desk: Desk) -> None:
        desk.users.put_user("locked", NO_PASSWORD)
        assert not desk.logins.check(desk.attempt(user, password))
        assert await desk.outcome() == (user, f"user '{user}' - invalid credentials")
        assert "login failed peer=127.0.0.1:1234" in desk.stream.getvalue()

    on_a_desk(test)


def test_a_user_without_a_password_stays_out_even_with_an_empty_one() -> None:
    async def test(desk: Desk) -> None:
        desk.users.put_user("blank", known_secret(""))
        desk.logins.check(desk.attempt("blank", ""))
        assert await desk.outcome() == ("blank", "user 'blank' - invalid credentials")

    on_a_desk(test)


def test_guest_from_elsewhere_is_refused_known_or_not() -> None:
    async def test(desk: Desk) -> None:
        for _ in range(2):
            assert not desk.logins.check(desk.attempt("guest", "guest", "192.0.2.1"))
            assert await desk.outcome() == ("guest", "user 'guest' can only connect via localhost")

    on_a_desk(test)


def test_a_certificate_needs_a_user_of_its_name_and_no_password() -> None:
    async def test(desk: Desk) -> None:
        desk.users.put_user("CN=client", NO_PASSWORD)
        assert desk.logins.check(desk.attempt("CN=client", None, "192.0.2.1"))
        assert not desk.logins.check(desk.attempt("CN=stranger", None, "192.0.2.1"))
        assert await desk.outcome() == ("CN=stranger", "user 'CN=stranger' - invalid credentials")

    on_a_desk(test)


def test_the_answer_to_a_failure_waits_and_nothing_else_does() -> None:
    async def test(desk: Desk) -> None:
        desk.logins.check(desk.attempt("guest", "wrong"))
        await desk.until(lambda: "login failed" in desk.stream.getvalue())
        desk.logins.check(desk.attempt("guest", "guest"))
        await desk.until(lambda: bool(desk.outcomes))
        assert desk.outcomes == [("guest", "")]
        desk.clock.advance(FIRST_DELAY_S - 0.01)
        assert len(desk.outcomes) == 1
        desk.clock.advance(0.01)
        assert desk.outcomes[1] == ("guest", "user 'guest' - invalid credentials")

    on_a_desk(test)


def test_a_connection_that_is_gone_gets_no_answer_and_its_failure_still_counts() -> None:
    async def test(desk: Desk) -> None:
        gone = desk.attempt("guest", "wrong")
        desk.logins.check(gone)
        desk.logins.cancel(gone)  # while it is verified
        await desk.until(lambda: "login failed" in desk.stream.getvalue())
        late = desk.attempt("guest", "wrong")
        desk.logins.check(late)
        await desk.until(lambda: late.timer is not None)
        desk.clock.advance(FIRST_DELAY_S)
        assert desk.outcomes == []  # the second failure waits twice as long
        desk.logins.cancel(late)  # while the answer waits
        desk.clock.advance(DELAY_MAX_S)
        assert desk.outcomes == []

    on_a_desk(test)


class Slow:
    """Verifies when it is told to, and notes in which order it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.go = threading.Semaphore(0)

    def verify(self, secret: Secret, password: str) -> bool:
        self.asked.append(password)
        assert self.go.acquire(timeout=60)
        return secret is not DECOY


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Slow:
    slow = Slow()
    monkeypatch.setattr(login, "verify", slow.verify)
    return slow


def test_a_flood_from_one_address_does_not_keep_the_others_waiting(slow: Slow) -> None:
    async def test(desk: Desk) -> None:
        for number in range(50):
            desk.logins.check(desk.attempt("nobody", f"flood{number}", "192.0.2.1"))
        desk.logins.check(desk.attempt("nobody", "other", "192.0.2.2"))
        await desk.until(lambda: len(slow.asked) == THREADS)
        for _ in range(2):
            slow.go.release()
        await desk.until(lambda: len(slow.asked) == THREADS + 2)
        assert "other" in slow.asked
        slow.go.release(100)

    on_a_desk(test)


def test_when_all_reconnect_at_once_one_verification_serves_them_all(slow: Slow) -> None:
    async def test(desk: Desk) -> None:
        for _ in range(1000):
            desk.logins.check(desk.attempt("guest", "guest"))
        await desk.until(lambda: len(slow.asked) == THREADS)
        slow.go.release(THREADS)
        await desk.until(lambda: len(desk.outcomes) == 1000)
        assert set(desk.outcomes) == {("guest", "")}
        assert len(slow.asked) == THREADS

    on_a_desk(test)


def test_who_hangs_up_while_waiting_is_not_verified(slow: Slow) -> None:
    async def test(desk: Desk) -> None:
        for number in range(THREADS):
            desk.logins.check(desk.attempt("nobody", f"first{number}"))
        waiting = [desk.attempt("nobody", "gone") for _ in range(3)]
        for attempt in waiting:
            desk.logins.check(attempt)
        for attempt in waiting:
            desk.logins.cancel(attempt)
        desk.logins.check(desk.attempt("nobody", "last"))
        slow.go.release(100)
        await desk.until(lambda: len(slow.asked) == THREADS + 1)
        assert "gone" not in slow.asked

    on_a_desk(test)


def test_a_password_changed_while_it_was_verified_is_wrong(slow: Slow) -> None:
    async def test(desk: Desk) -> None:
        desk.logins.check(desk.attempt("guest", "guest"))
        await desk.until(lambda: len(slow.asked) == 1)
        desk.users.change_password("guest", known_secret("other", b"\1\2\3\4"))
        slow.go.release()
        assert await desk.outcome() == ("guest", "user 'guest' - invalid credentials")

    on_a_desk(test)


def test_a_bug_in_verifying_refuses_the_login_and_is_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(secret: Secret, password: str) -> bool:
        raise RuntimeError("broken")

    async def test(desk: Desk) -> None:
        monkeypatch.setattr(login, "verify", broken)
        desk.logins.check(desk.attempt("guest", "guest"))
        assert await desk.outcome() == ("guest", "user 'guest' - invalid credentials")
        assert "crash" in desk.stream.getvalue()

    on_a_desk(test)


def test_a_password_is_not_shown_where_an_attempt_is() -> None:
    assert "pw" not in repr(Attempt("alice", "pw", "127.0.0.1", True, "peer", lambda user, refusal: None))
