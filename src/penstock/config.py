"""Config: every setting of the broker, with its default and the reason for it.

A setting can be given as `--set section.key=value`, in a TOML file, or as PENSTOCK_SECTION_KEY; the command line wins
over the environment, the environment over the file. docs/settings.md has the same list; a test holds the two together.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from penstock.credit import Spec

Setting_value = int | float | str | Spec


class ConfigError(Exception):
    """A setting that is not there, or a value that it cannot have."""


class Setting:
    __slots__ = ("default", "name", "parse", "reason", "run_time")

    def __init__(
        self, name: str, default: str, parse: Callable[[str], Setting_value], reason: str, run_time: bool = False
    ) -> None:
        self.name = name
        self.default = default
        self.parse = parse
        self.reason = reason
        self.run_time = run_time

    def __repr__(self) -> str:
        return f"<Setting {self.name}={self.default}>"


def at_least(least: int, most: int | None = None) -> Callable[[str], int]:
    def parse(text: str) -> int:
        try:
            number = int(text.replace("_", ""))
        except ValueError:
            raise ValueError(f"{text!r} is not a whole number") from None
        if number < least or (most is not None and number > most):
            limit = f"at least {least}" if most is None else f"{least} to {most}"
            raise ValueError(f"{number} is out of range: {limit}")
        return number

    return parse


def seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a number of seconds") from None
    if not 0 < number < 1e6:
        raise ValueError(f"{text} is out of range: more than 0")
    return number


def number(least: float, most: float) -> Callable[[str], float]:
    def parse(text: str) -> float:
        try:
            found = float(text)
        except ValueError:
            raise ValueError(f"{text!r} is not a number") from None
        if not least <= found <= most:  # nor NaN
            raise ValueError(f"{text} is out of range: {least:g} to {most:g}")
        return found

    return parse


def one_of(*words: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in words:
            raise ValueError(f"{text!r} is none of {', '.join(words)}")
        return text

    return parse


SETTINGS: Final = (
    Setting("credit.reader_channel", "400,200", Spec.parse, "RabbitMQ's default: batches long enough to be fast", True),
    Setting("credit.channel_queue", "400,200", Spec.parse, "the same", True),
    Setting(
        "credit.reader_channel_bytes",
        "16777216,8388608",
        Spec.parse,
        "400 messages of 40 KB; only larger ones notice it",
        True,
    ),
    Setting("credit.channel_queue_bytes", "16777216,8388608", Spec.parse, "the same", True),
    Setting(
        "credit.queue_store", "2000,500", Spec.parse, "RabbitMQ's for its message store; every persistent message", True
    ),
    Setting("credit.queue_store_bytes", "16777216,8388608", Spec.parse, "as between channel and queue", True),
    Setting(
        "store.journal_bytes",
        "67108864",
        at_least(65536, 1 << 31),
        "then a checkpoint: about a second of background work, and what a start after kill -9 has to read",
    ),
    Setting("store.embed_below_bytes", "4096", at_least(1, 1 << 20), "RabbitMQ's; larger bodies are stored once"),
    Setting(
        "store.cache_bytes",
        "67108864",
        at_least(0),
        "messages in RAM that are on disk too; more of them is no faster, as the kernel caches files",
        True,
    ),
    Setting(
        "store.paging_ratio",
        "0.5",
        number(0.01, 1.0),
        "RabbitMQ's; of the memory watermark, from where on transient messages are paged out too",
    ),
    Setting("limits.frame_max_bytes", "131072", at_least(4096, 1 << 30), "what RabbitMQ offers in tune"),
    Setting("limits.channel_max", "2047", at_least(1, 65535), "what RabbitMQ offers in tune"),
    Setting("limits.message_bytes", "536870912", at_least(0), "RabbitMQ's hard limit; larger bodies are refused, 406"),
    Setting(
        "limits.unfinished_bytes",
        "1073741824",
        at_least(0),
        "bodies still coming on all channels of a connection: two of the largest; more close the connection, 506",
    ),
    Setting("limits.table_depth", "128", at_least(1, 128), "what the interpreter's stack allows; clients nest to 3"),
    Setting("limits.table_bytes", "131072", at_least(0), "one frame of the default size; RabbitMQ has no other bound"),
    Setting(
        "limits.table_entries",
        "8192",
        at_least(0),
        "keys and array elements: an entry of 2 bytes on the wire costs 100 in memory; room for long CC lists",
    ),
    Setting("limits.name_bytes", "255", at_least(1, 255), "names, keys and tags: what the protocol allows"),
    Setting("limits.connections", "65536", at_least(1), "a bound on sockets; set it below the limit on open files"),
    Setting(
        "limits.parked_bytes",
        "1048576",
        at_least(0),
        "publishes of blocked channels per connection; then the socket pauses",
    ),
    Setting("limits.handshake_timeout_s", "10", seconds, "RabbitMQ's; a peer that does not log in by then is closed"),
    Setting(
        "limits.ack_timeout_s",
        "1800",
        at_least(0),
        "RabbitMQ's; a consumer that keeps a delivery longer loses its channel, 406; 0 is never",
    ),
    Setting("limits.heartbeat_s", "60", at_least(0, 65535), "what RabbitMQ offers in tune; 0 is none"),
    Setting(
        "alarms.memory_bytes_high",
        "0",
        at_least(0),
        "memory used by the process that blocks publishers; 0: memory_relative_high counts, which fits any machine",
        True,
    ),
    Setting(
        "alarms.memory_relative_high",
        "0.6",
        number(0, 1),
        "the same as a part of the machine's memory or of the control group's limit; room for what is under way",
        True,
    ),
    Setting("alarms.disk_free_bytes_low", "50000000", at_least(0), "RabbitMQ's; below it publishers are blocked", True),
    Setting(
        "alarms.disk_free_relative_low",
        "0",
        number(0, 1000),
        "the same as a part of the memory there is; 0 is none: how large a disk must be depends on its use",
        True,
    ),
    Setting(
        "alarms.blocked_deadline_s",
        "0",
        number(0, 1e6),
        "how long alarms may block a publisher before it is closed, 320; 0 is for ever, as in RabbitMQ",
        True,
    ),
    Setting("faults.channel_delay_us", "0", at_least(0), "for rehearsals: slows every channel down, per message", True),
    Setting("faults.queue_delay_us", "0", at_least(0), "for rehearsals: slows every queue down, per message", True),
    Setting("faults.store_sync_delay_ms", "0", at_least(0), "for rehearsals: slows every sync of the store down", True),
    Setting(
        "events.enabled",
        "true",
        one_of("true", "false"),
        "whether there is the stream penstock.events; only with a data directory",
    ),
    Setting(
        "events.max_bytes",
        "268435456",
        at_least(1 << 20),
        "what the stream keeps: weeks of a quiet broker, hours of a busy one; the oldest goes first",
    ),
    Setting("events.max_age_s", "604800", at_least(0, 1_000_000_000), "a week; 0 is for ever"),
    Setting(
        "events.per_second",
        "500",
        at_least(0, 100_000),
        "a bound on what events cost: about 10 us each; what is more is dropped and counted",
        True,
    ),
    Setting("tls.certificate", "", str, "a PEM file, with the chain; empty, so no TLS, until there is one"),
    Setting("tls.key", "", str, "a PEM file without a password; empty: the key is in tls.certificate"),
    Setting("tls.ca", "", str, "a PEM file: who may have signed clients' certificates; the system's sign for anybody"),
    Setting(
        "tls.client_certificates",
        "none",
        one_of("none", "optional", "required"),
        "RabbitMQ's; whether clients are asked for a certificate, and refused without one",
    ),
    Setting("tls.minimum", "1.2", one_of("1.2", "1.3"), "what all clients of today speak; 1.1 and below are broken"),
    Setting(
        "tls.user_from",
        "distinguished_name",
        one_of(
            "distinguished_name",
            "common_name",
            "subject_alternative_name_dns",
            "subject_alternative_name_email",
            "subject_alternative_name_uri",
            "subject_alternative_name_ip",
        ),
        "RabbitMQ's; which name in a client's certificate is the user's, for EXTERNAL",
    ),
    Setting(
        "users.loopback_only",
        "guest",
        str,
        "users that may come from this machine only, with commas; everybody knows guest's password",
    ),
    Setting("management.session_idle_s", "1800", seconds, "a page that nobody uses for so long is logged out"),
    Setting("management.session_max_s", "28800", seconds, "and after a working day at the latest"),
    Setting("management.tables", "", str, "where the flow pipeline writes, for the page's history; empty: nowhere"),
    Setting("definitions.file", "", str, "RabbitMQ's JSON, loaded at every start; empty: none"),
    Setting("log.level", "info", one_of("debug", "info", "warning", "error"), "connections and what went wrong"),
    Setting("log.format", "text", one_of("text", "json"), "text for people, json for collectors"),
)
BY_NAME: Final = {setting.name: setting for setting in SETTINGS}


class Config:
    """The settings in force."""

    __slots__ = ("_texts", "_values")

    def __init__(self, given: Mapping[str, str] | None = None) -> None:
        self._values = {setting.name: setting.parse(setting.default) for setting in SETTINGS}
        self._texts = {setting.name: setting.default for setting in SETTINGS}
        for name, text in (given or {}).items():
            self.set(name, text)

    def set(self, name: str, text: str) -> None:
        setting = BY_NAME.get(name)
        if setting is None:
            raise ConfigError(f"no setting {name!r}; docs/settings.md lists them")
        try:
            self._values[name] = setting.parse(text)
        except ValueError as error:
            raise ConfigError(f"setting {name}: {error}") from None
        self._texts[name] = text

    def text(self, name: str) -> str:
        """As it was given."""
        return self._texts[name]

    def integer(self, name: str) -> int:
        value = self._values[name]
        assert isinstance(value, int), name
        return value

    def number(self, name: str) -> float:
        value = self._values[name]
        assert isinstance(value, (int, float)), name
        return float(value)

    def word(self, name: str) -> str:
        value = self._values[name]
        assert isinstance(value, str), name
        return value

    def spec(self, name: str) -> Spec:
        value = self._values[name]
        assert isinstance(value, Spec), name
        return value


def load(file: Path | None, environment: Mapping[str, str], overrides: list[str]) -> Config:
    """From file, environment and command line, in rising order."""
    config = Config()
    if file is not None:
        for name, text in _from_file(file).items():
            config.set(name, text)
    for setting in SETTINGS:
        given = environment.get("PENSTOCK_" + setting.name.replace(".", "_").upper())
        if given is not None:
            config.set(setting.name, given)
    for override in overrides:
        name, equals, text = override.partition("=")
        if not equals:
            raise ConfigError(f"--set {override}: expected section.key=value")
        config.set(name.strip(), text.strip())
    return config


def _from_file(file: Path) -> dict[str, str]:
    try:
        sections = tomllib.loads(file.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"configuration file {file}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"configuration file {file}: {error}") from None
    found: dict[str, str] = {}
    for section, entries in sections.items():
        if not isinstance(entries, dict):
            raise ConfigError(f"configuration file {file}: {section!r} stands outside of any [section]")
        for key, value in entries.items():
            text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
            found[f"{section}.{key}"] = text
    return found
