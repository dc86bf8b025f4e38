"""Session: a login that a browser keeps, by a cookie that says nothing but a random word.

A session ends when it was not used for a while, when it is old, at logout, when its user's password or name is gone,
and when the broker stops. What the user may do is looked up with every request, so that tags count at once.
Not here: checking the password (net/login.py), the paths /login and /logout (routes/login.py).
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

COOKIE: Final = "penstock_session"
HEADER: Final = "x-penstock"  # a page of another site cannot send it: browsers ask first, and nobody answers
BY_ITSELF: Final = "auto"  # its value when the page asks and nobody has touched it for a while
TOKEN_BYTES: Final = 32
SESSIONS_MAX: Final = 1024  # then the one that was not used for longest ends
OF_USER_MAX: Final = 64  # the same of one user, who cannot log out all others by logging in


@dataclass(slots=True)
class Session:
    user: str
    proof: str  # the user's hash at the time: with a new password the session ends
    began_s: float
    used_s: float


class Sessions:
    __slots__ = ("_by_token", "_clock", "idle_s", "max_s")

    def __init__(self, idle_s: float, max_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.idle_s = idle_s
        self.max_s = max_s
        self._clock = clock
        self._by_token: dict[str, Session] = {}  # the one that was not used for longest first

    def open(self, user: str, proof: str) -> str:
        """A new session's token."""
        self._expire()
        own = [token for token, session in self._by_token.items() if session.user == user]
        for token in own[: max(0, len(own) - OF_USER_MAX + 1)]:
            del self._by_token[token]
        while len(self._by_token) >= SESSIONS_MAX:
            del self._by_token[next(iter(self._by_token))]
        token = secrets.token_urlsafe(TOKEN_BYTES)
        now_s = self._clock()
        self._by_token[token] = Session(user, proof, now_s, now_s)
        return token

    def find(self, token: str, by_person: bool = True) -> Session | None:
        """The session; None if there is none any more. A page that asks by itself does not keep it from ending."""
        session = self._by_token.pop(token, None)
        if session is None or self._is_over(session):
            return None
        if by_person:
            session.used_s = self._clock()
        self._by_token[token] = session
        return session

    def close(self, token: str) -> None:
        self._by_token.pop(token, None)

    def _is_over(self, session: Session) -> bool:
        now_s = self._clock()
        return now_s - session.used_s > self.idle_s or now_s - session.began_s > self.max_s

    def _expire(self) -> None:
        for token in [token for token, session in self._by_token.items() if self._is_over(session)]:
            del self._by_token[token]

    def __len__(self) -> int:
        return len(self._by_token)


def cookie(token: str, secure: bool, age_s: float) -> str:
    """A Set-Cookie header. Scripts cannot read it, other sites cannot make a browser send it."""
    text = f"{COOKIE}={token}; Path=/; HttpOnly; SameSite=Strict; Max-Age={int(age_s)}"
    return text + "; Secure" if secure else text
