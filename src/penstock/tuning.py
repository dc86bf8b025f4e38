"""Tuning: the settings in force, and how the running broker follows a change of one.

Place: server.py makes it and hands it to the verbs of operators (broker/admin.py), which see it as `Settings`.
A change counts at once and until the broker stops; what is given at the start is in files, and those are not touched.
Not here: names, defaults and what a value may be (config.py), HTTP (management/).
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.broker.admin import AdminError
from penstock.broker.alarms import Thresholds
from penstock.broker.broker import Broker
from penstock.broker.ledger import Json
from penstock.config import BY_NAME, SETTINGS, Config, ConfigError


class Tuning:
    __slots__ = ("_config", "_followers")

    def __init__(self, config: Config, broker: Broker) -> None:
        self._config = config
        self._followers: dict[str, Callable[[], None]] = {}
        spec, inner, outer = config.spec, broker.channel_queue, broker.reader_channel
        self.follow("credit.reader_channel", lambda: outer.change(spec("credit.reader_channel")))
        self.follow("credit.channel_queue", lambda: inner.change(spec("credit.channel_queue")))
        self.follow("credit.reader_channel_bytes", lambda: outer.change(bytes_=spec("credit.reader_channel_bytes")))
        self.follow("credit.channel_queue_bytes", lambda: inner.change(bytes_=spec("credit.channel_queue_bytes")))
        for setting in SETTINGS:
            if setting.name.startswith("alarms."):
                self.follow(setting.name, lambda: broker.alarms.change(thresholds(config)))
        self.follow("faults.channel_delay_us", lambda: slow_channels(broker, config.integer("faults.channel_delay_us")))
        self.follow("faults.queue_delay_us", lambda: slow_queues(broker, config.integer("faults.queue_delay_us")))

    def follow(self, name: str, follower: Callable[[], None]) -> None:
        """Call this when the setting has changed; it reads the new value from the config."""
        assert BY_NAME[name].run_time, name
        self._followers[name] = follower

    def followed(self) -> set[str]:
        return set(self._followers)

    def all(self) -> list[dict[str, Json]]:
        return [
            {
                "name": setting.name,
                "value": self._config.text(setting.name),
                "default": setting.default,
                "run_time": setting.name in self._followers,
                "reason": setting.reason,
            }
            for setting in SETTINGS
        ]

    def change(self, name: str, text: str) -> None:
        if name not in BY_NAME:
            raise AdminError(f"there is no setting '{name}'", missing=True)
        follower = self._followers.get(name)
        if follower is None:
            raise AdminError(f"setting {name} is read at the start only")
        try:
            self._config.set(name, text)
        except ConfigError as error:
            raise AdminError(str(error)) from None
        follower()


def slow_channels(broker: Broker, delay_us: int) -> None:
    """Those that are there, and those to come."""
    broker.channel_delay_us = delay_us
    for channel in broker.ack_timeout.channels:
        channel.mailbox.delay_us = delay_us


def slow_queues(broker: Broker, delay_us: int) -> None:
    broker.queue_delay_us = delay_us
    for vhost in broker.vhosts.values():
        vhost.queue_delay_us = delay_us
        for name, queue in vhost.queues.items():
            if name not in vhost.protected:  # a rehearsal is to be seen in the events, not to delay them
                queue.mailbox.delay_us = delay_us


def thresholds(config: Config) -> Thresholds:
    return Thresholds(
        memory_bytes_high=config.integer("alarms.memory_bytes_high"),
        memory_relative_high=config.number("alarms.memory_relative_high"),
        disk_free_bytes_low=config.integer("alarms.disk_free_bytes_low"),
        disk_free_relative_low=config.number("alarms.disk_free_relative_low"),
        blocked_deadline_s=config.number("alarms.blocked_deadline_s"),
    )
