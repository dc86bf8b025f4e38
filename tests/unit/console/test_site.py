"""The URL of a broker's HTTP API, and tables of what it answers."""

from __future__ import annotations

import pytest

from penstock.console.objects import arguments_of
from penstock.console.picture import show
from penstock.console.site import Site, SiteError


@pytest.mark.parametrize(
    "url", ["", "localhost:15672", "ftp://h", "http://", "http://h:x", "http://h:99999", "http://h/api", "http://h?a=1"]
)
def test_a_wrong_url_is_one_line_and_shows_no_password(url: str):
    with pytest.raises(SiteError, match="URL") as caught:
        Site(url)
    assert "\n" not in str(caught.value)


def test_the_port_is_the_apis_own_and_the_password_is_never_shown():
    assert Site("http://me:secret@host").shown == "http://host:15672"
    assert Site("https://host").shown == "https://host:15671"
    assert "secret" not in repr(Site("http://me:secret@host"))


def test_nobody_at_the_port_is_one_line():
    with pytest.raises(SiteError, match=r"no answer from http://127\.0\.0\.1:1: Connection refused"):
        Site("http://127.0.0.1:1").get("overview")


def test_an_argument_is_json_or_a_string():
    given = ["x-max-length=10", "x-queue-type=stream", 'x-name="10"', "x-empty="]
    assert arguments_of(given) == {"x-max-length": 10, "x-queue-type": "stream", "x-name": "10", "x-empty": ""}
    with pytest.raises(SiteError, match="expected name=value"):
        arguments_of(["x-max-length"])


def test_a_table_shows_whole_names_under_their_heads(capsys: pytest.CaptureFixture[str]):
    show(
        [
            {"name": "orders", "messages_ready": 12, "durable": True, "tags": ["a", "b"], "at": {"rate": 1.25}},
            {"name": "", "messages_ready": None, "durable": False, "tags": [], "at": None},
        ],
        ("name", "messages_ready", "durable", "tags", "at.rate"),
    )
    assert capsys.readouterr().out.splitlines() == [
        "NAME    MESSAGES READY  DURABLE  TAGS  RATE",
        "orders  12              yes      a,b   1.2",
        '""      -               no       -     -',
    ]
    show([], ("name",), empty="there are no queues")
    assert capsys.readouterr().out == "there are no queues\n"
