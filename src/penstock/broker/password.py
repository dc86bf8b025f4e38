"""Password: hashes of passwords: RabbitMQ's, which are taken over as they are, and our own, which is memory-hard.

`verify` and `new_secret` take tens of milliseconds on purpose. Both are pure, so that whoever has an event loop can run
them in a thread (net/login.py does); nothing in broker/ calls them on its own.

RabbitMQ's hash is base64 of a salt of 4 bytes and the digest of salt and password. Ours is scrypt in the PHC string
format, `$scrypt$ln=15,r=8,p=1$salt$hash`: the parameters are in it, so that they can grow with the machines.
Not here: whose hash it is, and what was verified lately (users.py).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from dataclasses import dataclass
from typing import Final

SCRYPT: Final = "penstock_password_hashing_scrypt"
SHA256: Final = "rabbit_password_hashing_sha256"
DIGESTS: Final = {
    SHA256: "sha256",
    "rabbit_password_hashing_sha512": "sha512",
    "rabbit_password_hashing_md5": "md5",
}

RABBIT_SALT_BYTES: Final = 4
SALT_BYTES: Final = 16  # what RFC 7914's users take; no two users share one by chance
KEY_BYTES: Final = 32
LOG2_N: Final = 15  # with R: 32 MiB and some 60 ms per guess; two threads of it do not hurt a small broker
R: Final = 8
P: Final = 1
# A hash comes with its own parameters: one that is imported must not cost more than a login may.
MEMORY_BYTES_MAX: Final = 268_435_456
P_MAX: Final = 16


@dataclass(frozen=True, slots=True)
class Secret:
    """A password's hash, as RabbitMQ's definitions have it. With an empty hash no password is right."""

    algorithm: str
    password_hash: str

    def __repr__(self) -> str:  # hashes do not belong into logs
        return f"<Secret {self.algorithm}{'' if self.password_hash else ' none'}>"


NO_PASSWORD: Final = Secret(SHA256, "")
# What an unknown user's password is compared with, so that the time taken does not tell which names exist.
DECOY: Final = Secret(
    SCRYPT,
    f"$scrypt$ln={LOG2_N},r={R},p={P}$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
)


@dataclass(frozen=True, slots=True)
class _Scrypt:
    """A parsed hash of ours."""

    log2_n: int
    r: int
    p: int
    salt: bytes
    key: bytes

    def memory_bytes(self) -> int:
        return 128 * self.r * ((1 << self.log2_n) + self.p + 2)


def new_secret(password: str) -> Secret:
    """For a new password. Slow: not on the event loop."""
    salt = secrets.token_bytes(SALT_BYTES)
    key = _derive(_Scrypt(LOG2_N, R, P, salt, b""), password)
    return Secret(SCRYPT, f"$scrypt$ln={LOG2_N},r={R},p={P}${_short(salt)}${_short(key)}")


def known_secret(password: str, salt: bytes = b"salt") -> Secret:
    """RabbitMQ's hash, for a password that everybody knows anyway. Fast."""
    return Secret(SHA256, base64.b64encode(salt + _digest("sha256", salt, password)).decode())


def verify(secret: Secret, password: str) -> bool:
    """Whether this is the password. Slow: not on the event loop. A wrong one always takes as long as scrypt does."""
    if secret.algorithm == SCRYPT and secret.password_hash:
        parsed = _parse(secret.password_hash)
        assert parsed is not None, "checked by `fault` when it was set"
        return hmac.compare_digest(_derive(parsed, password), parsed.key)
    if secret.password_hash:
        raw = base64.b64decode(secret.password_hash)
        salt, digest = raw[:RABBIT_SALT_BYTES], raw[RABBIT_SALT_BYTES:]
        if hmac.compare_digest(_digest(DIGESTS[secret.algorithm], salt, password), digest):
            return True
    verify(DECOY, password)
    return False


def fault(secret: Secret) -> str:
    """What is wrong with a hash that comes from outside; empty if nothing is."""
    if secret.algorithm == SCRYPT:
        return "" if not secret.password_hash or _parse(secret.password_hash) else "is no scrypt hash within our bounds"
    if secret.algorithm not in DIGESTS:
        return f"has an unknown hashing algorithm {secret.algorithm!r}"
    if not secret.password_hash:
        return ""
    try:
        raw = base64.b64decode(secret.password_hash, validate=True)
    except (binascii.Error, ValueError):
        return "is not base64"
    size = RABBIT_SALT_BYTES + hashlib.new(DIGESTS[secret.algorithm], usedforsecurity=False).digest_size
    return "" if len(raw) == size else f"has {len(raw)} bytes where {secret.algorithm} has {size}"


def _parse(text: str) -> _Scrypt | None:
    parts = text.split("$")
    if len(parts) != 5 or parts[:2] != ["", "scrypt"]:
        return None
    settings = dict(pair.partition("=")[::2] for pair in parts[2].split(","))
    try:
        log2_n, r, p = (int(settings[name]) for name in ("ln", "r", "p"))
        parsed = _Scrypt(log2_n, r, p, _long(parts[3]), _long(parts[4]))
    except (KeyError, ValueError):  # binascii's error is a ValueError too
        return None
    # The first bound keeps the shift below within reason; scrypt itself takes any salt, and a key of any size from 1.
    if not 1 <= log2_n <= 31 or r < 1 or not 1 <= p <= P_MAX or parsed.memory_bytes() > MEMORY_BYTES_MAX:
        return None
    return parsed if len(parsed.key) == KEY_BYTES else None


def _derive(parameters: _Scrypt, password: str) -> bytes:
    return hashlib.scrypt(
        _bytes(password),
        salt=parameters.salt,
        n=1 << parameters.log2_n,
        r=parameters.r,
        p=parameters.p,
        maxmem=parameters.memory_bytes() + 1,
        dklen=KEY_BYTES,
    )


def _digest(name: str, salt: bytes, password: str) -> bytes:
    return hashlib.new(name, salt + _bytes(password), usedforsecurity=False).digest()


def _bytes(password: str) -> bytes:
    return password.encode("utf-8", "surrogateescape")  # whatever bytes the client sent


def _short(raw: bytes) -> str:
    """PHC's base64 is without padding."""
    return base64.b64encode(raw).decode().rstrip("=")


def _long(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
