"""Login: who it is, by mechanism, and whether that is true. PLAIN, AMQPLAIN, EXTERNAL.

Upstream: handshake.py, with a connection.start-ok.  Downstream: broker/users.py, and two threads for password.verify.

A password's hash is slow on purpose, so it is computed in threads and the connection waits (connection.py holds what
its client sends meanwhile). Waiting logins take turns by address, so that a flood from one does not keep the others
out. Who logs in again with the password that was right before does not wait at all (broker/users.py tells why).

A failed login is logged at once and answered late: the first from an address hardly, repeated ones up to
DELAY_MAX_S. Only that answer waits, nobody else's.
EXTERNAL is offered on TLS connections whose client showed a certificate with a name in it, as in RabbitMQ: nobody else
could use it. The user of that name must exist; its password does not matter.
Not here: the states of a handshake (handshake.py), names in certificates (tls.py), permissions (broker/access.py).
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from penstock.amqp.close import CloseConnection
from penstock.amqp.table import decode_table
from penstock.broker.password import Secret, verify
from penstock.broker.users import Users, invalid_credentials
from penstock.net.attempts import Attempts
from penstock.net.log import Log
from penstock.runtime.clock import Clock, Timer

MECHANISMS: Final = b"PLAIN AMQPLAIN"
EXTERNAL: Final = "EXTERNAL"

THREADS: Final = 2  # each needs 32 MiB while it works; more would only take the cores from the broker itself

FIRST_DELAY_S: Final = 0.1  # a person who mistyped does not notice; ten guesses per second instead of thousands
DELAY_MAX_S: Final = 3.0  # RabbitMQ's wait before it closes without a word; well below the handshake timeout
FORGIVE_S: Final = 10.0  # one failure less for every such time without one: a minute or so until all is forgotten
FAILURES_MAX: Final = 6  # counted per address; enough for the longest delay, and soon forgiven
ADDRESSES_MAX: Final = 4096  # remembered; then the one that failed longest ago is forgotten, however many attack
IPV6_NETWORK_BITS: Final = 64  # one customer has at least so many addresses to fail from


def credentials(mechanism: str, response: bytes) -> tuple[str, str] | None:
    """User and password, or None if the response is not what the mechanism says or the mechanism has no password."""
    if mechanism == "PLAIN":
        parts = response.split(b"\0")
        if len(parts) != 3 or parts[0]:
            return None
        return _text(parts[1]), _text(parts[2])
    if mechanism == "AMQPLAIN":
        try:  # a table without the length in front
            table, _ = decode_table(len(response).to_bytes(4, "big") + response, 0)
        except CloseConnection:
            return None
        user, password = table.get("LOGIN"), table.get("PASSWORD")
        if isinstance(user, str) and isinstance(password, str):
            return user, password
    return None


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def source(host: str) -> str:
    """What failures are counted by: the address, or for IPv6 its network."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.ip_network((int(address), IPV6_NETWORK_BITS), strict=False))
    return host


class Failures:
    """How often logins failed lately, by address."""

    __slots__ = ("_by_source", "_clock")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._by_source: dict[str, tuple[int, int]] = {}  # failures and time of the last, the longest ago first

    def note(self, host: str) -> float:
        """One more; how long its answer is to wait, in seconds."""
        key = source(host)
        now_ns = self._clock.now_ns()
        count, last_ns = self._by_source.pop(key, (0, now_ns))
        forgiven = int((now_ns - last_ns) / (FORGIVE_S * 1e9))
        count = min(max(count - forgiven, 0) + 1, FAILURES_MAX)
        if len(self._by_source) >= ADDRESSES_MAX:
            del self._by_source[next(iter(self._by_source))]
        self._by_source[key] = count, now_ns
        return float(min(FIRST_DELAY_S * 2 ** (count - 1), DELAY_MAX_S))

    def __len__(self) -> int:
        return len(self._by_source)


class Attempt:
    """One login of one connection. `done` gets the user and why it was refused, or an empty string."""

    __slots__ = ("cancelled", "done", "host", "loopback", "password", "peer", "timer", "user")

    def __init__(
        self, user: str, password: str | None, host: str, loopback: bool, peer: str, done: Callable[[str, str], None]
    ) -> None:
        self.user = user
        self.password = password  # None: the client's certificate says who it is
        self.host = host
        self.loopback = loopback
        self.peer = peer  # for the log
        self.done = done
        self.cancelled = False
        self.timer: Timer | None = None  # while the answer to a failure waits

    def __repr__(self) -> str:  # without the password
        return f"<Attempt {self.user!r} from {self.peer}>"


class Logins:
    """Checks logins. One for all listeners of a broker."""

    __slots__ = ("_clock", "_failures", "_log", "_pool", "_running", "_users", "_waiting", "attempts", "failed")

    def __init__(self, users: Users, clock: Clock, log: Log) -> None:
        self._users = users
        self._clock = clock
        self._log = log
        self._failures = Failures(clock)
        self.attempts = Attempts()
        self.failed: Callable[[str, str, str], None] = _nobody  # told of every failure: user, peer, reason
        self._pool: ThreadPoolExecutor | None = None
        self._running = 0
        # By address, whose turn is next first. Bounded by the connections that are still in their handshake.
        self._waiting: dict[str, dict[Attempt, None]] = {}

    def check(self, attempt: Attempt) -> bool:
        """True if the user is let in at once; otherwise `attempt.done` is called later, from the event loop."""
        users = self._users
        if attempt.password is None or users.recall(attempt.user, attempt.password):
            refusal = users.refusal(attempt.user, attempt.loopback)
            if refusal:
                self._refuse(attempt, refusal)
            else:
                self.attempts.note(attempt.peer, True)
            return not refusal
        self._waiting.setdefault(source(attempt.host), {})[attempt] = None
        self._start()
        return False

    async def admits(self, user: str, password: str, host: str, loopback: bool) -> bool:
        """The same for an HTTP request: whether it comes from this user; a refusal takes its time."""
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        attempt = Attempt(user, password, host, loopback, f"http {host}", _Told(done))
        if self.check(attempt):
            return True
        try:
            return await done
        finally:
            self.cancel(attempt)

    def cancel(self, attempt: Attempt) -> None:
        """The connection is gone: its login need not be checked any more, and nobody waits for the answer."""
        attempt.cancelled = True
        if attempt.timer is not None:
            attempt.timer.cancel()
        key = source(attempt.host)
        same = self._waiting.get(key)
        if same is not None:
            same.pop(attempt, None)
            if not same:
                del self._waiting[key]

    def close(self) -> None:
        """The broker stops; nobody waits any more."""
        self._waiting.clear()
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None

    # In threads.

    def _start(self) -> None:
        while self._running < THREADS and self._waiting:
            attempt = self._next()
            password = attempt.password or ""
            if self._users.recall(attempt.user, password):  # another connection's login was first
                self._decide(attempt, True)
                continue
            if self._pool is None:
                self._pool = ThreadPoolExecutor(THREADS, "login")
            secret = self._users.secret(attempt.user)
            future = asyncio.get_running_loop().run_in_executor(self._pool, verify, secret, password)
            self._running += 1
            future.add_done_callback(_Verified(self, attempt, secret))

    def _next(self) -> Attempt:
        """The first of the address whose turn it is; that address is then behind the others."""
        key = next(iter(self._waiting))
        same = self._waiting.pop(key)
        attempt = next(iter(same))
        del same[attempt]
        if same:
            self._waiting[key] = same
        return attempt

    def verified(self, attempt: Attempt, secret: Secret, outcome: asyncio.Future[bool]) -> None:
        """From a thread, by way of the event loop."""
        self._running -= 1
        if outcome.cancelled():  # the broker stops
            return
        error = outcome.exception()
        if error is not None:
            self._log.crash("login", error)
        password = attempt.password or ""
        # Once more against the users: the password may have been changed while it was verified.
        right = error is None and outcome.result() and bool(password)
        self._decide(attempt, right and self._users.remember(attempt.user, secret, password))
        self._start()

    def _decide(self, attempt: Attempt, right: bool) -> None:
        refusal = self._users.refusal(attempt.user, attempt.loopback) if right else invalid_credentials(attempt.user)
        if refusal:
            self._refuse(attempt, refusal)
            return
        self.attempts.note(attempt.peer, True)
        if not attempt.cancelled:
            attempt.done(attempt.user, "")

    def _refuse(self, attempt: Attempt, refusal: str) -> None:
        self._log.warning("login failed", peer=attempt.peer, reason=refusal)
        self.attempts.note(attempt.peer, False)
        self.failed(attempt.user, attempt.peer, refusal)
        delay_s = self._failures.note(attempt.host)
        if not attempt.cancelled:
            attempt.timer = self._clock.call_later(delay_s, _Answer(attempt, refusal))

    def __repr__(self) -> str:
        waiting = sum(map(len, self._waiting.values()))
        return f"<Logins running={self._running} waiting={waiting} failed_from={len(self._failures)}>"


class _Verified:
    """What is to be done when the thread is."""

    __slots__ = ("_attempt", "_logins", "_secret")

    def __init__(self, logins: Logins, attempt: Attempt, secret: Secret) -> None:
        self._logins = logins
        self._attempt = attempt
        self._secret = secret

    def __call__(self, outcome: asyncio.Future[bool]) -> None:
        self._logins.verified(self._attempt, self._secret, outcome)


class _Told:
    """Tells whoever awaits a login how it went."""

    __slots__ = ("_done",)

    def __init__(self, done: asyncio.Future[bool]) -> None:
        self._done = done

    def __call__(self, user: str, refusal: str) -> None:
        if not self._done.done():
            self._done.set_result(not refusal)


class _Answer:
    """The late answer to a failed login."""

    __slots__ = ("_attempt", "_refusal")

    def __init__(self, attempt: Attempt, refusal: str) -> None:
        self._attempt = attempt
        self._refusal = refusal

    def __call__(self) -> None:
        self._attempt.timer = None
        self._attempt.done(self._attempt.user, self._refusal)


def _nobody(user: str, peer: str, reason: str) -> None:
    """Who is told before the listener says who."""
