"""Expiry: until when the certificates in a PEM file are valid. Python's ssl does not tell it of one's own certificate.

A certificate is DER: tag, length, content. The end of its validity is the second time in the fourth or fifth entry of
its first part; nothing else is looked at.
"""

from __future__ import annotations

import re
import ssl
from calendar import timegm
from pathlib import Path
from time import strptime
from typing import Final

BLOCK: Final = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
VERSION: Final = 0xA0  # the tag of what may stand before the serial number
UTC_TIME: Final = 0x17  # a year of two digits
BEFORE_VALIDITY: Final = 3  # serial number, algorithm, issuer


def ends(file: Path) -> list[float]:
    """Seconds since 1970, one for each certificate in the file; none if it cannot be read."""
    try:
        text = file.read_text("ascii", "replace")
        return [_end(ssl.PEM_cert_to_DER_cert(block)) for block in BLOCK.findall(text)]
    except (OSError, ValueError, IndexError):
        return []


def _end(der: bytes) -> float:
    _, start, _ = _entry(der, 0)
    _, at, _ = _entry(der, start)
    tag, _, after = _entry(der, at)
    if tag == VERSION:
        at = after
    for _ in range(BEFORE_VALIDITY):
        at = _entry(der, at)[2]
    _, at, _ = _entry(der, at)
    at = _entry(der, at)[2]  # from when on
    tag, start, stop = _entry(der, at)
    text = der[start:stop].decode("ascii")
    return float(timegm(strptime(text, "%y%m%d%H%M%SZ" if tag == UTC_TIME else "%Y%m%d%H%M%SZ")))


def _entry(der: bytes, at: int) -> tuple[int, int, int]:
    """Tag, and where the content begins and ends."""
    length, start = der[at + 1], at + 2
    if length & 0x80:
        count = length & 0x7F
        length, start = int.from_bytes(der[start : start + count], "big"), start + count
    return der[at], start, start + length
