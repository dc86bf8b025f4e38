"""Config: defaults, where settings come from, which one wins, and what is refused with a clear text."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.config import SETTINGS, Config, ConfigError, load
from penstock.credit import Spec


def test_defaults_are_what_the_features_say() -> None:
    config = Config()
    assert config.spec("credit.reader_channel") == Spec(400, 200)
    assert config.spec("credit.channel_queue") == Spec(400, 200)
    assert config.integer("limits.frame_max_bytes") == 131_072
    assert config.integer("limits.channel_max") == 2047
    assert config.integer("limits.heartbeat_s") == 60
    assert config.number("limits.handshake_timeout_s") == 10.0
    assert config.word("log.level") == "info"


@pytest.mark.parametrize("setting", SETTINGS, ids=[setting.name for setting in SETTINGS])
def test_every_setting_has_a_section_a_default_it_takes_itself_and_a_reason(setting: object) -> None:
    name, default, reason = (getattr(setting, what) for what in ("name", "default", "reason"))
    section, _, key = name.partition(".")
    assert section.isidentifier()
    assert key.isidentifier()
    assert reason
    Config({name: default})


def test_the_command_line_wins_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text("[limits]\nchannel_max = 1\nheartbeat_s = 1\nparked_bytes = 1\n")
    environment = {"PENSTOCK_LIMITS_CHANNEL_MAX": "2", "PENSTOCK_LIMITS_HEARTBEAT_S": "2", "OTHER": "x"}
    config = load(file, environment, ["limits.channel_max=3"])
    assert config.integer("limits.channel_max") == 3
    assert config.integer("limits.heartbeat_s") == 2
    assert config.integer("limits.parked_bytes") == 1


def test_without_anything_the_defaults_hold() -> None:
    assert load(None, {}, []).integer("limits.channel_max") == 2047


def test_a_file_may_write_credit_as_text_or_as_a_list(tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text('[credit]\nreader_channel = "200,50"\nchannel_queue = [10, 5]\n')
    config = load(file, {}, [])
    assert config.spec("credit.reader_channel") == Spec(200, 50)
    assert config.spec("credit.channel_queue") == Spec(10, 5)


def test_spaces_around_an_override_do_not_matter() -> None:
    assert load(None, {}, ["limits.channel_max = 3"]).integer("limits.channel_max") == 3
    assert load(None, {}, ["limits.channel_max=1_000"]).integer("limits.channel_max") == 1000


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("limits.channel_max", "expected section.key=value"),
        ("limits.no_such=1", "no setting 'limits.no_such'"),
        ("limits.channel_max=many", "'many' is not a whole number"),
        ("limits.channel_max=0", "1 to 65535"),
        ("limits.channel_max=65536", "1 to 65535"),
        ("limits.frame_max_bytes=4095", "4096"),
        ("limits.parked_bytes=-1", "at least 0"),
        ("limits.handshake_timeout_s=0", "out of range"),
        ("limits.handshake_timeout_s=nan", "out of range"),
        ("limits.handshake_timeout_s=soon", "not a number of seconds"),
        ("credit.reader_channel=400", "as 400,200"),
        ("credit.reader_channel=400,0", "nothing is ever granted"),
        ("credit.reader_channel=1,2", "above initial"),
        ("credit.reader_channel=-1,-1", "negative"),
        ("log.level=loud", "none of debug, info"),
    ],
)
def test_a_wrong_override_is_refused_and_the_text_says_what_is_wrong(override: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(None, {}, [override])
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("channel_max = 1\n", "outside of any [section]"),
        ("[limits\n", "penstock.toml"),
        ("[limits]\nno_such = 1\n", "no setting 'limits.no_such'"),
        ("[limits]\nchannel_max = 'x'\n", "limits.channel_max"),
    ],
)
def test_a_wrong_file_is_refused_and_the_text_says_where(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(file, {}, [])
    assert words in str(caught.value)


def test_a_file_that_is_not_there_or_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        load(tmp_path / "nothing.toml", {}, [])
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match=r"binary\.toml"):
        load(binary, {}, [])


def test_a_wrong_value_in_the_environment_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"limits\.channel_max"):
        load(None, {"PENSTOCK_LIMITS_CHANNEL_MAX": "x"}, [])
