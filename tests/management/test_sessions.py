"""Sessions: a browser's login. They end by themselves, and another site's page cannot use them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from penstock.management.session import OF_USER_MAX, SESSIONS_MAX, Sessions
from tests.management.conftest import PASSWORD
from tests.management.web import Answer, Web
from tests.wire.live import LiveBroker

IDLE_S = 1000
MAX_S = 2500


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveBroker]:
    """With ends of sessions of its own."""
    settings = {"management.session_idle_s": str(IDLE_S), "management.session_max_s": str(MAX_S)}
    with LiveBroker(settings, data=tmp_path_factory.mktemp("broker")) as live:
        yield live


@pytest.fixture
def clock(broker: LiveBroker, url: str, monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The sessions' time stands still, until the test moves it."""
    listener = broker.server.management
    assert listener is not None
    own = Clock()
    monkeypatch.setattr(listener._application.api.sessions, "_clock", own)
    return own


@pytest.fixture
def nobody(url: str) -> Iterator[Web]:
    client = Web(url, None)
    yield client
    client.close()


def log_in(nobody: Web, name: str, password: str = PASSWORD) -> Answer:
    return nobody.ask("POST", "/login", {"username": name, "password": password}, X_Penstock="1")


def cookie_of(answer: Answer) -> str:
    return answer.headers["set-cookie"].partition(";")[0]


def test_a_session_is_a_cookie_that_scripts_and_other_sites_cannot_use(
    url: str, nobody: Web, user: Callable[..., Web]
) -> None:
    user("monitoring", name="session-one")
    answer = log_in(nobody, "session-one")
    assert (answer.status, answer.json) == (200, {"name": "session-one", "tags": ["monitoring"]})
    attributes = answer.headers["set-cookie"].split("; ")
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(attributes)
    session = Web(url, None, cookie=cookie_of(answer))
    assert session.get("whoami")["name"] == "session-one"
    session.close()


def test_a_form_logs_in_too_and_leads_to_the_page(nobody: Web, user: Callable[..., Web]) -> None:
    user("management", name="session-form")
    answer = nobody.ask(
        "POST",
        "/login",
        b"username=session-form&password=p",
        Content_Type="application/x-www-form-urlencoded",
    )
    assert (answer.status, answer.headers["location"]) == (303, "/")
    assert "penstock_session=" in answer.headers["set-cookie"]


def test_with_a_session_a_change_needs_a_header_that_other_sites_cannot_send(
    url: str, nobody: Web, vhost: str, user: Callable[..., Web]
) -> None:
    user("administrator", vhost, name="session-two")
    session = Web(url, None, cookie=cookie_of(log_in(nobody, "session-two")))
    refused = session.ask("PUT", f"queues/{vhost}/q", {})
    assert (refused.status, "X-Penstock" in refused.reason) == (403, True)
    assert session.ask("PUT", f"queues/{vhost}/q", {}, X_Penstock="1").status == 201
    session.close()


@pytest.mark.parametrize(
    "headers", [{"Origin": "http://elsewhere.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}]
)
def test_a_change_that_another_sites_page_asks_for_is_refused(web: Web, headers: dict[str, str]) -> None:
    answer = web.ask("PUT", "vhosts/foreign", **headers)
    assert (answer.status, "another site" in answer.reason) == (403, True)
    assert web.ask("GET", "vhosts/foreign").status == 404


def test_a_page_of_our_own_may_ask_for_changes(web: Web, url: str, vhost: str) -> None:
    answer = web.ask("PUT", f"queues/{vhost}/own", Origin=url, Sec_Fetch_Site="same-origin")
    assert answer.status == 201


def test_a_session_ends_at_logout_and_with_its_users_password(
    url: str, nobody: Web, web: Web, user: Callable[..., Web]
) -> None:
    user("administrator", name="session-three")
    first = Web(url, None, cookie=cookie_of(log_in(nobody, "session-three")))
    second = Web(url, None, cookie=cookie_of(log_in(nobody, "session-three")))
    assert first.ask("POST", "/logout", X_Penstock="1").status == 204
    assert first.ask("GET", "whoami").status == 401
    assert second.get("whoami")["tags"] == ["administrator"]
    tags = web.get("users/session-three")
    web.put("users/session-three", {"password_hash": tags["password_hash"], "tags": "management", **_algorithm(tags)})
    assert second.get("whoami")["tags"] == ["management"]  # tags count at once
    web.put("users/session-three", {"password": "another", "tags": "management"})
    over = second.ask("GET", "whoami", X_Penstock="1")
    assert over.status == 401
    assert "www-authenticate" not in over.headers  # the page logs in by itself
    first.close()
    second.close()


def _algorithm(user: dict[str, str]) -> dict[str, str]:
    return {"hashing_algorithm": user["hashing_algorithm"]}


def test_a_wrong_password_opens_no_session(nobody: Web, user: Callable[..., Web]) -> None:
    user("administrator", name="session-four")
    answer = log_in(nobody, "session-four", "wrong")
    assert (answer.status, answer.reason) == (401, "user or password is wrong")
    assert "set-cookie" not in answer.headers
    user("", name="session-five")
    assert log_in(nobody, "session-five").status == 401


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{",
        b"\xff",
        b'{"username": "a", "password": "\xff"}',
        b'{"username": "a", "password": "\\ud800"}',
        {"username": "a"},
        {"username": 1, "password": 2},
    ],
)
def test_a_login_that_cannot_be_read_is_400(nobody: Web, body: object) -> None:
    assert nobody.ask("POST", "/login", body).status == 400


def test_a_session_ends_when_it_is_not_used_and_when_it_is_old() -> None:
    clock = Clock()
    sessions = Sessions(10, 25, clock)
    token = sessions.open("alice", "")
    for clock.now_s in (9.0, 18.0, 25.0):
        assert sessions.find(token) is not None
    clock.now_s = 26.0
    assert sessions.find(token) is None
    token = sessions.open("alice", "")
    clock.now_s = 37.0
    assert sessions.find(token) is None
    assert len(sessions) == 0


def test_a_running_broker_ends_a_session_that_no_person_uses_and_one_that_is_old(
    url: str, nobody: Web, user: Callable[..., Web], clock: Clock
) -> None:
    user("monitoring", name="session-idle")
    answer = log_in(nobody, "session-idle")
    assert f"Max-Age={MAX_S}" in answer.headers["set-cookie"].split("; ")
    left = Web(url, None, cookie=cookie_of(answer))
    used = Web(url, None, cookie=cookie_of(log_in(nobody, "session-idle")))

    def seen(session: Web, who: str) -> int:
        return session.ask("GET", "whoami", X_Penstock=who).status

    clock.now_s = IDLE_S - 1  # the one is only asked for by its page, the other by a person
    assert (seen(left, "auto"), seen(used, "1")) == (200, 200)
    clock.now_s = IDLE_S + 1
    assert (seen(left, "auto"), seen(used, "auto")) == (401, 200)
    clock.now_s = 2 * IDLE_S - 2
    assert (seen(left, "1"), seen(used, "1")) == (401, 200)  # what is over stays over
    clock.now_s = MAX_S
    assert seen(used, "1") == 200
    clock.now_s = MAX_S + 1
    assert seen(used, "1") == 401
    assert used.ask("GET", "/", X_Penstock="1").headers["location"] == "/login"
    left.close()
    used.close()


def test_there_are_no_more_sessions_than_a_limit() -> None:
    sessions = Sessions(10, 25, lambda: 0.0)
    first = sessions.open("alice", "")
    others = [sessions.open(f"bob-{number}", "") for number in range(SESSIONS_MAX)]
    assert len(sessions) == SESSIONS_MAX
    assert sessions.find(first) is None
    assert sessions.find(others[0]) is not None


def test_who_logs_in_again_and_again_logs_out_nobody_else() -> None:
    sessions = Sessions(10, 25, lambda: 0.0)
    alice = sessions.open("alice", "")
    bobs = [sessions.open("bob", "") for _ in range(SESSIONS_MAX)]
    assert len(sessions) == OF_USER_MAX + 1
    assert sessions.find(alice) is not None
    assert sessions.find(bobs[-OF_USER_MAX]) is not None
    assert sessions.find(bobs[-OF_USER_MAX - 1]) is None


def test_a_page_that_asks_by_itself_does_not_keep_a_session_alive() -> None:
    clock = Clock()
    sessions = Sessions(10, 100, clock)
    token = sessions.open("alice", "")
    for clock.now_s in (4.0, 8.0):
        assert sessions.find(token, by_person=False) is not None
    clock.now_s = 11.0
    assert sessions.find(token, by_person=False) is None
