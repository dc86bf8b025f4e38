"""Users: who may log in, and from where."""

from __future__ import annotations

import hmac
from typing import Final

DEFAULT_USER: Final = "guest"
DEFAULT_PASSWORD: Final = "guest"


class Users:
    """Names and passwords. The default user may only come from this machine: its password is known to everyone."""

    __slots__ = ("_loopback_only", "_passwords")

    def __init__(self) -> None:
        self._passwords = {DEFAULT_USER: DEFAULT_PASSWORD}
        self._loopback_only = {DEFAULT_USER}

    def refusal(self, user: str, password: str, loopback: bool) -> str:
        """Why this login is refused, for the log; empty if it is not."""
        known = self._passwords.get(user)
        # Compare even if the user is unknown, so that the time taken does not tell which names exist.
        right = hmac.compare_digest((known or "\0").encode(), password.encode("utf-8", "surrogateescape"))
        if known is None or not right:
            return f"user '{user}' - invalid credentials"
        if user in self._loopback_only and not loopback:
            return f"user '{user}' can only connect via localhost"
        return ""
