"""Password: RabbitMQ's hashes as they are, ours for new ones, and the same time for every wrong guess."""

from __future__ import annotations

import base64
import hashlib

import pytest

from penstock.broker.password import (
    DECOY,
    MEMORY_BYTES_MAX,
    NO_PASSWORD,
    SCRYPT,
    SHA256,
    Secret,
    fault,
    known_secret,
    new_secret,
    verify,
)

# Made by RabbitMQ 3.10.8: rabbitmqctl add_user nobody pw, then export_definitions.
RABBIT_HASH = "gCFmjo8Hr8Fcd3vw8y8ylZurPFtTNHHfQybX1UYt53mh4Htz"


def rabbit_hash(name: str, password: bytes, salt: bytes = b"\x01\x02\x03\x04") -> str:
    return base64.b64encode(salt + hashlib.new(name, salt + password).digest()).decode()


def test_a_hash_that_rabbitmq_made_is_verified_as_it_is() -> None:
    secret = Secret(SHA256, RABBIT_HASH)
    assert not fault(secret)
    assert verify(secret, "pw")
    assert not verify(secret, "pw2")


@pytest.mark.parametrize("name", ["sha256", "sha512", "md5"])
def test_every_hashing_algorithm_of_rabbitmq_is_known(name: str) -> None:
    secret = Secret(f"rabbit_password_hashing_{name}", rabbit_hash(name, "pässwort".encode()))
    assert not fault(secret)
    assert verify(secret, "pässwort")
    assert not verify(secret, "passwort")


def test_a_new_password_is_hashed_memory_hard_with_its_own_salt() -> None:
    first, second = new_secret("same"), new_secret("same")
    assert first.algorithm == SCRYPT
    assert first.password_hash.startswith("$scrypt$ln=15,r=8,p=1$")
    assert first.password_hash != second.password_hash
    assert not fault(first)
    assert verify(first, "same")
    assert not verify(first, "other")


def test_the_parameters_of_a_hash_are_its_own() -> None:
    """RFC 7914's second test vector, cut to 32 bytes: other parameters than those of new hashes."""
    key = hashlib.scrypt(b"password", salt=b"NaCl", n=1024, r=8, p=16, dklen=32)
    assert key.hex().startswith("fdbabe1c9d3472007856e7190d01e9fe")
    text = base64.b64encode(key).decode().rstrip("=")
    secret = Secret(SCRYPT, f"$scrypt$ln=10,r=8,p=16$TmFDbA${text}")
    assert not fault(secret)
    assert verify(secret, "password")


def test_a_password_may_be_any_bytes() -> None:
    raw = b"\xff\xfe\x00"
    secret = Secret(SHA256, rabbit_hash("sha256", raw))
    assert verify(secret, raw.decode("utf-8", "surrogateescape"))


def test_without_a_hash_no_password_is_right() -> None:
    assert not fault(NO_PASSWORD)
    assert not verify(NO_PASSWORD, "")
    assert not verify(Secret(SCRYPT, ""), "")


def test_the_decoy_is_a_hash_like_any_other_and_nobodys_password() -> None:
    assert not fault(DECOY)
    assert not verify(DECOY, "")


@pytest.mark.parametrize(
    "secret", [NO_PASSWORD, known_secret("right"), Secret(SCRYPT, ""), DECOY, Secret(SHA256, RABBIT_HASH)]
)
def test_a_wrong_password_costs_the_slow_hash_once_whoever_it_is(
    secret: Secret, monkeypatch: pytest.MonkeyPatch
) -> None:
    derived: list[bytes] = []

    def scrypt(password: bytes, **parameters: object) -> bytes:
        derived.append(password)
        return b""

    monkeypatch.setattr(hashlib, "scrypt", scrypt)
    assert not verify(secret, "wrong")
    assert derived == [b"wrong"]


@pytest.mark.parametrize(
    ("secret", "told"),
    [
        (Secret("my_own_hashing", "abcd"), "unknown hashing algorithm"),
        (Secret(SHA256, "no base64!"), "not base64"),
        (Secret(SHA256, "YWJj"), "has 3 bytes where rabbit_password_hashing_sha256 has 36"),
        (Secret(SCRYPT, "$scrypt$"), "no scrypt hash"),
        (Secret(SCRYPT, "$argon2$ln=15,r=8,p=1$YQ$YQ"), "no scrypt hash"),
        (Secret(SCRYPT, DECOY.password_hash.replace("ln=15", "ln=x")), "no scrypt hash"),
        (Secret(SCRYPT, DECOY.password_hash.replace("ln=15,", "")), "no scrypt hash"),
        (Secret(SCRYPT, DECOY.password_hash.replace("ln=15", "ln=0")), "no scrypt hash"),
        (Secret(SCRYPT, DECOY.password_hash.replace("ln=15", "ln=1000000")), "no scrypt hash"),
        (Secret(SCRYPT, DECOY.password_hash.replace("ln=15", "ln=19")), "no scrypt hash"),
        (Secret(SCRYPT, DECOY.password_hash.replace("p=1", "p=17")), "no scrypt hash"),
        (Secret(SCRYPT, DECOY.password_hash.replace("r=8", "r=-8")), "no scrypt hash"),
        (Secret(SCRYPT, DECOY.password_hash[:-4]), "no scrypt hash"),
    ],
)
def test_a_hash_that_cannot_be_used_or_costs_too_much_is_found_when_it_is_set(secret: Secret, told: str) -> None:
    assert told in fault(secret)


def test_the_largest_hash_within_the_bounds_is_taken() -> None:
    assert 128 * 8 * (1 << 17) < MEMORY_BYTES_MAX < 128 * 8 * (1 << 18) + 128 * 8 * 3
    assert not fault(Secret(SCRYPT, DECOY.password_hash.replace("ln=15", "ln=17")))


def test_a_hash_is_not_shown_where_a_secret_is() -> None:
    assert RABBIT_HASH not in repr(Secret(SHA256, RABBIT_HASH))
