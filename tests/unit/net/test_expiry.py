"""Until when a certificate is valid, asked of certificates that openssl made."""

from __future__ import annotations

import time
from pathlib import Path

from penstock.net.attempts import Attempts
from penstock.net.expiry import ends
from tests.wire.certificates import Authority, needs_openssl

DAY_S = 86_400


@needs_openssl
def test_the_end_of_every_certificate_in_a_file_is_told(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    pair = authority.sign("server")
    chain = tmp_path / "chain.pem"
    chain.write_text(pair.certificate.read_text() + authority.ca.read_text())
    for end_s in ends(chain):
        assert abs(end_s - time.time() - 2 * DAY_S) < DAY_S / 2
    assert len(ends(chain)) == 2


def test_what_is_no_certificate_has_no_end(tmp_path: Path) -> None:
    broken = tmp_path / "broken.pem"
    for text in ("", "hello", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"):
        broken.write_text(text)
        assert ends(broken) == []
    assert ends(tmp_path / "none.pem") == []


def test_logins_are_counted_by_protocol() -> None:
    attempts = Attempts()
    for peer, succeeded in (("http 127.0.0.1", True), ("127.0.0.1:5000", False), ("127.0.0.1:5000", True)):
        attempts.note(peer, succeeded)
    assert attempts.counts() == {"http": (1, 0), "amqp091": (1, 1)}
    attempts.reset()
    assert attempts.counts() == {}
