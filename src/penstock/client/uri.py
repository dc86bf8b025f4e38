"""Uri: amqp://user:password@host:port/vhost, as RabbitMQ's URI specification and pika read it.

amqps:// is the same over TLS; what TLS needs beside the address is a Tls value.
Used by connection.py and by every command that takes an address. Pure: no name is looked up and no file is read here.
Not here: settings in a query string (refused, so that none is dropped in silence).
"""

from dataclasses import dataclass, replace
from urllib.parse import SplitResult, quote, unquote, urlsplit

DEFAULT_HOST = "localhost"
DEFAULT_PORT = 5672
DEFAULT_TLS_PORT = 5671
DEFAULT_USER = "guest"
DEFAULT_PASSWORD = "guest"
DEFAULT_VHOST = "/"
ESCAPES = "the port must be a number, and / ? # @ : in a user, password or vhost are written %2f %3f %23 %40 %3a"


class UriError(ValueError):
    """The address cannot be used; the text is one line that says why."""


@dataclass(frozen=True, slots=True)
class Tls:
    """How a TLS connection is made: PEM files by name; empty is none, and then the machine's authorities count."""

    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""  # empty: the key is in the file of the certificate
    verify: bool = True  # False takes any certificate of any host: for trying things out only


@dataclass(frozen=True, slots=True)
class Uri:
    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT
    user: str = DEFAULT_USER
    password: str = DEFAULT_PASSWORD
    vhost: str = DEFAULT_VHOST
    tls: Tls | None = None  # None is plain TCP

    @property
    def address(self) -> str:
        """host:port, for messages; an IPv6 host in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def __str__(self) -> str:
        """The address without the password: this is what logs and errors show."""
        scheme = "amqp" if self.tls is None else "amqps"
        return f"{scheme}://{quote(self.user, safe='')}@{self.address}/{quote(self.vhost, safe='')}"

    def __repr__(self) -> str:
        return f"<Uri {self}>"

    def with_login(self, user: str | None = None, password: str | None = None) -> "Uri":
        """The same address with another user, another password or both."""
        changed = replace(self, user=user) if user is not None else self
        return replace(changed, password=password) if password is not None else changed

    def with_tls(self, tls: Tls) -> "Uri":
        """The same address with these settings of TLS; only an amqps:// address can have any."""
        if self.tls is None:
            raise UriError(f"settings of TLS need an amqps:// address, not {self}")
        return replace(self, tls=tls)


def parse_uri(text: str) -> Uri:
    """The parts of an amqp:// or amqps:// address, with defaults for what is left out; UriError if it is none."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise UriError("not an address: " + (ESCAPES if "@" in text else str(error))) from None
    if not text.lower().startswith(("amqp://", "amqps://")):
        raise UriError(f"an address looks like amqp://user:password@host:port/vhost, not {_shown(text)!r}")
    if "@" in parts.path + parts.query + parts.fragment:
        raise UriError("not an address: " + ESCAPES)  # it is the end of a password, which nothing must show
    if parts.query or parts.fragment:
        raise UriError(f"settings in an address are not supported: {parts.query or parts.fragment}")
    if port == 0:
        raise UriError("port 0 is for listening only; name the port the broker listens on")
    secure = parts.scheme == "amqps"
    return Uri(
        host=unquote(parts.hostname or DEFAULT_HOST),
        port=port or (DEFAULT_TLS_PORT if secure else DEFAULT_PORT),
        user=DEFAULT_USER if parts.username is None else unquote(parts.username),
        password=DEFAULT_PASSWORD if parts.password is None else unquote(parts.password),
        vhost=_vhost(parts),
        tls=Tls() if secure else None,
    )


def _vhost(parts: SplitResult) -> str:
    """No path, or a bare slash, is the default vhost as in pika and kombu; a slash in a name is written %2f."""
    name = parts.path[1:]
    if not name:
        return DEFAULT_VHOST
    if "/" in name and name != DEFAULT_VHOST:
        raise UriError(f"a slash in a vhost's name is written %2f: /{name.replace('/', '%2f')}")
    return unquote(name)


def _shown(text: str) -> str:
    """The text up to where a password may stand: an error must not print one."""
    return text if "@" not in text else "…@" + text.rsplit("@", 1)[1]
