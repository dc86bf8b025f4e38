"""Uri: amqp://user:password@host:port/vhost, as RabbitMQ's URI specification and pika read it.

Used by connection.py and by every command that takes an address. Pure: no name is looked up here.
Not here: TLS (amqps is refused by name), settings in a query string (refused, so that none is dropped in silence).
"""

from dataclasses import dataclass
from urllib.parse import SplitResult, quote, unquote, urlsplit

DEFAULT_HOST = "localhost"
DEFAULT_PORT = 5672
DEFAULT_USER = "guest"
DEFAULT_PASSWORD = "guest"
DEFAULT_VHOST = "/"


class UriError(ValueError):
    """The address cannot be used; the text is one line that says why."""


@dataclass(frozen=True, slots=True)
class Uri:
    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT
    user: str = DEFAULT_USER
    password: str = DEFAULT_PASSWORD
    vhost: str = DEFAULT_VHOST

    @property
    def address(self) -> str:
        """host:port, for messages; an IPv6 host in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def __str__(self) -> str:
        """The address without the password: this is what logs and errors show."""
        return f"amqp://{quote(self.user, safe='')}@{self.address}/{quote(self.vhost, safe='')}"

    def __repr__(self) -> str:
        return f"<Uri {self}>"


def parse_uri(text: str) -> Uri:
    """The parts of an amqp:// address, with defaults for what is left out; UriError if it is none."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise UriError(f"not an address: {error}") from None
    if parts.scheme == "amqps":
        raise UriError("amqps:// (TLS) is not supported by this client; use amqp://")
    if parts.scheme != "amqp" or not text.lower().startswith("amqp://"):
        raise UriError(f"an address looks like amqp://user:password@host:port/vhost, not {_shown(text)!r}")
    if parts.query or parts.fragment:
        raise UriError(f"settings in an address are not supported: {parts.query or parts.fragment}")
    if port == 0:
        raise UriError("port 0 is for listening only; name the port the broker listens on")
    return Uri(
        host=unquote(parts.hostname or DEFAULT_HOST),
        port=port or DEFAULT_PORT,
        user=DEFAULT_USER if parts.username is None else unquote(parts.username),
        password=DEFAULT_PASSWORD if parts.password is None else unquote(parts.password),
        vhost=_vhost(parts),
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
