"""TLS: the certificate in force and its renewal, who a client's certificate says it is, why a handshake failed.

A reload makes a new context and never touches the old one: a connection keeps the context it began with, the next one
gets the new. So certificate, key and authorities change together or not at all.
Not here: accepting and the handshake itself (listener.py), what EXTERNAL does with the user's name (login.py).
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from penstock.net.log import Log
from penstock.runtime.clock import Clock, Timer

# A renewal is weeks away from the old certificate's end: seconds do not matter, and three stats cost nothing.
LOOK_INTERVAL_S: Final = 2.0

MINIMUM: Final = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
CLIENT_CERTIFICATES: Final = {
    "none": ssl.CERT_NONE,
    "optional": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}

# RabbitMQ's `ssl_cert_login_from`, and the kinds of alternative name that Python's ssl names.
ALTERNATIVE_NAMES: Final = {
    "subject_alternative_name_dns": "DNS",
    "subject_alternative_name_email": "email",
    "subject_alternative_name_uri": "URI",
    "subject_alternative_name_ip": "IP Address",
}
USER_FROM: Final = ("distinguished_name", "common_name", *ALTERNATIVE_NAMES)

# How RabbitMQ writes the parts of a distinguished name: these by a name, others by their number. Of those, what OpenSSL
# names and certificates hold is here too; the rest keeps OpenSSL's name.
ATTRIBUTES: Final = {
    "businessCategory": "2.5.4.15",
    "commonName": "CN",
    "countryName": "C",
    "description": "2.5.4.13",
    "dnQualifier": "2.5.4.46",
    "domainComponent": "DC",
    "emailAddress": "EMAILADDRESS",
    "generationQualifier": "GENERATIONQUALIFIER",
    "givenName": "GIVENNAME",
    "initials": "INITIALS",
    "localityName": "L",
    "name": "2.5.4.41",
    "organizationIdentifier": "2.5.4.97",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "postalCode": "2.5.4.17",
    "pseudonym": "PSEUDONYM",
    "serialNumber": "SERIALNUMBER",
    "stateOrProvinceName": "ST",
    "streetAddress": "2.5.4.9",
    "surname": "SN",
    "title": "TITLE",
    "userId": "UID",
}

# What OpenSSL calls the failures that operators meet most often, in words that say what to look at.
FAILURES: Final = {
    "WRONG_VERSION_NUMBER": "not TLS: plain AMQP belongs to the other port",
    "HTTP_REQUEST": "not TLS: an HTTP request",
    "UNSUPPORTED_PROTOCOL": "the client's TLS version is below tls.minimum",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client gave no certificate, and tls.client_certificates is required",
    "TLSV1_ALERT_UNKNOWN_CA": "the client does not know who signed our certificate",
}

Certificate: TypeAlias = Mapping[str, object]  # as ssl.SSLObject.getpeercert gives it
Stamp: TypeAlias = tuple[tuple[int, int, int] | None, ...]


class TlsError(Exception):
    """Why certificate, key or authorities cannot be used, in one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """The settings tls.*, as they were given; config.py has the defaults."""

    certificate: str
    key: str
    ca: str
    client_certificates: str
    minimum: str
    user_from: str

    def files(self) -> list[str]:
        return [name for name in (self.certificate, self.key, self.ca) if name]


def new_context(settings: TlsSettings) -> ssl.SSLContext:
    """From the files as they are now; TlsError if one of them is not what it should be."""
    if not settings.certificate:
        raise TlsError("tls.certificate is not set: TLS needs a certificate and its key")
    if settings.client_certificates != "none" and not settings.ca:
        raise TlsError(f"tls.client_certificates is {settings.client_certificates}, but tls.ca names no authorities")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = MINIMUM[settings.minimum]
    # A peer that renegotiates makes us do the costly half of a handshake as often as it likes.
    context.options |= ssl.OP_NO_RENEGOTIATION
    _load_certificate(context, settings)
    if settings.ca:
        _expect(settings.ca, "tls.ca", "CERTIFICATE-----", "certificate")
        try:
            context.load_verify_locations(cafile=settings.ca)
        except ssl.SSLError as error:
            raise TlsError(f"tls.ca {settings.ca} cannot be used: {_words(error)}") from None
        context.verify_mode = CLIENT_CERTIFICATES[settings.client_certificates]
    return context


def _load_certificate(context: ssl.SSLContext, settings: TlsSettings) -> None:
    certificate, key = settings.certificate, settings.key or settings.certificate
    _expect(certificate, "tls.certificate", "CERTIFICATE-----", "certificate")
    # Without tls.key, the key is in the certificate's file.
    _expect(key, "tls.key" if settings.key else "tls.key is not set, and", "PRIVATE KEY-----", "private key")
    try:
        context.load_cert_chain(certificate, key, _no_password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise TlsError(f"tls.key {key} is not the key of tls.certificate {certificate}") from None
        raise TlsError(f"tls.certificate {certificate} with tls.key {key} cannot be used: {_words(error)}") from None


def _no_password() -> str:
    """Without this, OpenSSL would ask for it on the terminal, and the broker would stand still."""
    raise TlsError("tls.key is encrypted; give a key without a password, readable by the broker only")


def _expect(file: str, setting: str, mark: str, what: str) -> None:
    """OpenSSL's own errors name neither the file nor what is wrong with it."""
    try:
        text = Path(file).read_text("ascii", "replace")
    except OSError as error:
        raise TlsError(f"{setting} {file}: {error.strerror}") from None
    if mark not in text:
        raise TlsError(f"{setting} {file} holds no {what} in PEM format")


class Certificates:
    """The context in force, and the files it came from."""

    __slots__ = ("_clock", "_loaded", "_log", "_seen", "_timer", "context", "settings")

    def __init__(self, settings: TlsSettings, clock: Clock, log: Log) -> None:
        self.settings = settings
        self._clock = clock
        self._log = log
        self._seen = self._loaded = self._stamp()
        self.context = new_context(settings)
        self._timer: Timer = clock.call_later(LOOK_INTERVAL_S, self._look_again)

    def stop(self) -> None:
        self._timer.cancel()

    def reload(self) -> None:
        """Take the files as they are now; if they are broken, what was in force stays."""
        self._loaded = self._stamp()
        try:
            self.context = new_context(self.settings)
        except TlsError as error:
            self._log.error("certificate not reloaded, the old one stays in force", reason=str(error))
            return
        self._log.info("certificate reloaded", file=self.settings.certificate)

    def _look_again(self) -> None:
        self._timer = self._clock.call_later(LOOK_INTERVAL_S, self._look_again)
        self.look()

    def look(self) -> None:
        """Reload once the files have changed and then stayed the same between two looks.

        Certificate and key are written one after the other; in between they do not fit.
        """
        stamp = self._stamp()
        settled = stamp == self._seen
        self._seen = stamp
        if settled and stamp != self._loaded:
            self.reload()

    def _stamp(self) -> Stamp:
        return tuple(map(_stamp_of, self.settings.files()))


def _stamp_of(file: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(file)
    except OSError:
        return None  # reload says why
    return found.st_mtime_ns, found.st_size, found.st_ino


# Who a certificate says the client is.


def certificate_user(certificate: Certificate | None, user_from: str) -> str | None:
    """The user's name in a client's certificate; None if there is no certificate, or no such name in it."""
    if not certificate:
        return None
    if user_from in ALTERNATIVE_NAMES:
        kind = ALTERNATIVE_NAMES[user_from]
        names = [value for name, value in _pairs(certificate.get("subjectAltName")) if name == kind]
        return names[0] if names else None
    subject = certificate.get("subject")
    parts = [_pairs(part) for part in subject] if isinstance(subject, tuple) else []
    if user_from == "common_name":
        # Several are joined, as RabbitMQ does.
        names = [value for part in parts for name, value in part if name == "commonName"]
        return ",".join(names) or None
    # RFC 4514, as RabbitMQ writes it: the last part first.
    return ",".join("+".join(_attribute(*pair) for pair in part) for part in reversed(parts)) or None


def _pairs(value: object) -> list[tuple[str, str]]:
    return [(str(name), str(text)) for name, text in value] if isinstance(value, tuple) else []


def _attribute(name: str, value: str) -> str:
    return f"{ATTRIBUTES.get(name, name)}={_escaped(value)}"


def _escaped(value: str) -> str:
    """RFC 4514 as RabbitMQ reads it: separators, and blanks at the ends, behind a backslash; the unprintable in hex."""
    last = len(value) - 1
    return "".join(_escaped_letter(letter, at == 0, at == last) for at, letter in enumerate(value))


def _escaped_letter(letter: str, first: bool, last: bool) -> str:
    if letter in '"+,;<>\\' or (first and letter in " #") or (last and letter == " "):
        return f"\\{letter}"
    if " " <= letter < "~":
        return letter
    return "".join(f"\\{byte:02X}" for byte in letter.encode("utf-8", "surrogateescape"))


# Failed handshakes.


def failure(error: OSError) -> str:
    """Why a handshake failed, for one line of the log."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the client's certificate is refused: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return FAILURES.get(error.reason or "", _words(error))
    if isinstance(error, ConnectionResetError):
        return "closed by the client"
    if isinstance(error, ConnectionAbortedError | TimeoutError):
        return "handshake timeout"
    return error.strerror or str(error)


def _words(error: ssl.SSLError) -> str:
    """`NO_SHARED_CIPHER` as words; the rest of OpenSSL's text names its source files."""
    return (error.reason or str(error)).replace("_", " ").lower()
