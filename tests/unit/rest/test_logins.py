"""Logging in and out: the cookie, whose changes count, how often it may fail, and what is noted; and `/users`.

`iothub.rest.auth`, `iothub.rest.cookies`, `iothub.rest.logins` and `iothub.rest.users`, by requests.
"""

from __future__ import annotations

import pytest
from starlette.types import Receive, Scope, Send

from iothub.rest import logins
from iothub.rest.edge import UNUSED
from iothub.rest.login_limits import (
    LINES,
    LINES_WINDOW_S,
    MOST_KNOWN,
    MOST_OF_ADDRESS,
    MOST_OF_NAME,
    WINDOW_S,
    FailureLimits,
    FailureLines,
)
from iothub_tenants.accounts import audit, users
from iothub_tenants.accounts.login_sessions import IDLE_S
from iothub_tenants.accounts.store import AccountStore
from tests.support.in_process.rest_api import HOST, Answer, Api

GOOD = "correct horse battery"


@pytest.fixture
def alice(api: Api) -> dict[str, str]:
    """What a browser sends in which Alice has logged in."""
    users.create(api.store, "alice", "operator", password=GOOD)
    return browser(log_in(api))


def log_in(api: Api, name: str = "alice", password: str = GOOD, **options: str) -> Answer:
    return api.post("/auth/login", {"name": name, "password": password}, key=None, **options)


def browser(answer: Answer) -> dict[str, str]:
    return {"cookie": answer.headers["set-cookie"].partition(";")[0], "host": HOST, "origin": f"http://{HOST}"}


# --- the cookie


def test_login_sets_a_cookie_and_says_who_it_is(api: Api, alice: dict[str, str]) -> None:
    answer = log_in(api)

    assert answer.status == 200
    assert (answer.json["kind"], answer.json["name"], answer.json["role"]) == ("user", "alice", "operator")
    assert answer.headers["cache-control"] == "no-store"
    words = answer.headers["set-cookie"].split("; ")
    assert words[0].startswith("iothub=")
    assert {"HttpOnly", "Path=/", "SameSite=strict"} <= set(words)
    assert "Secure" not in words
    assert api.get("/whoami", key=None, headers=alice).json["name"] == "alice"


def test_cookie_over_tls_is_of_this_host_alone(api: Api, alice: dict[str, str]) -> None:
    answer = log_in(api, scheme="https")

    words = answer.headers["set-cookie"].split("; ")
    assert words[0].startswith("__Host-iothub=")
    assert "Secure" in words
    headers = {"cookie": words[0]}
    assert api.get("/whoami", key=None, headers=headers, scheme="https").status == 200
    assert api.get("/whoami", key=None, headers=headers).status == 401
    assert api.get("/whoami", key=None, headers=alice, scheme="https").status == 401


def test_logout_ends_the_login_and_takes_the_cookie_back(api: Api, alice: dict[str, str]) -> None:
    answer = api.post("/auth/logout", key=None, headers=alice)

    assert answer.status == 204
    assert "Max-Age=0" in answer.headers["set-cookie"]
    assert api.get("/whoami", key=None, headers=alice).status == 401


@pytest.mark.parametrize(("mark", "status"), [({UNUSED: True}, 401), ({}, 200)], ids=["looks", "uses"])
def test_request_that_only_looks_keeps_no_login_alive(
    api: Api, alice: dict[str, str], mark: dict[str, bool], status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An open page looks whether its login is one; the mark is in the scope, where no client can put it."""
    now, app = api.store.now_ms() + (IDLE_S - 1) * 1000, api.app
    monkeypatch.setattr(AccountStore, "now_ms", lambda _store: now)

    async def marked(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, **mark}, receive, send)

    monkeypatch.setattr(api, "app", marked)
    assert api.get("/whoami", key=None, headers=alice).status == 200
    now += 2000

    assert api.get("/whoami", key=None, headers=alice).status == status


@pytest.mark.parametrize("cookie", ["iothub=", "iothub=x", "other=y", "iothub", "=;;=", "iothub=\xff", "x" * 20_000])
def test_other_cookies_are_nobodys(api: Api, alice: dict[str, str], cookie: str) -> None:
    assert api.get("/whoami", key=None, headers={"cookie": cookie}).status == 401


def test_key_goes_before_the_cookie(api: Api, alice: dict[str, str]) -> None:
    """A wrong one, too: what is sent is what counts."""
    assert api.get("/whoami", headers=alice).json["name"] == "root"
    assert api.get("/whoami", key="nothing", headers=alice).status == 401


@pytest.mark.parametrize(
    "origin", [None, "null", "https://evil.example.com", "http://hub.example.com", f"https://{HOST}", f"http://{HOST}."]
)
def test_change_by_a_page_of_another_origin_is_refused(api: Api, alice: dict[str, str], origin: str | None) -> None:
    headers = {name: value for name, value in alice.items() if name != "origin"}
    headers |= {} if origin is None else {"origin": origin}

    for method, path in (("POST", "/tenants/acme:suspend"), ("DELETE", "/tenants/acme"), ("POST", "/auth/logout")):
        answer = api(method, path, key=None, headers=headers)
        assert (answer.status, answer.code) == (403, "cross_origin")
    assert api.get("/tenants/acme", key=None, headers=headers).json["state"] == "active"


def test_login_by_a_page_of_another_origin_is_refused(api: Api, alice: dict[str, str]) -> None:
    """Nobody logs somebody else in; a program that says no origin may."""
    answer = log_in(api, headers={"host": HOST, "origin": "https://evil.example.com"})  # type: ignore[arg-type]

    assert (answer.status, answer.code) == (403, "cross_origin")


def test_change_of_a_user_has_the_name_of_the_user(api: Api, alice: dict[str, str]) -> None:
    assert api.post("/tenants/acme:suspend", key=None, headers=alice).status == 200

    assert audit.page(api.store, limit=1)[0].actor == "user:alice"


@pytest.mark.parametrize(("method", "path"), [("POST", "/users/root:disable"), ("DELETE", "/users/root")])
def test_nobody_locks_himself_out(api: Api, method: str, path: str) -> None:
    """Also if he is the last one; another may."""
    users.create(api.store, "root", "platform-admin", password=GOOD)
    own = browser(log_in(api, "root"))

    refused = api(method, path, key=None, headers=own)
    done = api(method, path)

    assert (refused.status, refused.code) == (409, "conflict")
    assert done.status < 300


@pytest.mark.parametrize(("method", "path"), [("POST", "/api-keys/own:disable"), ("DELETE", "/api-keys/own")])
def test_no_key_locks_itself_out(api: Api, method: str, path: str) -> None:
    own = api.post("/api-keys", {"name": "own", "role": "platform-admin"}).json["key"]

    refused = api(method, path, key=own)
    done = api(method, path)

    assert (refused.status, refused.code) == (409, "conflict")
    assert done.status < 300


def test_answer_is_not_given_again_to_another_user(api: Api, alice: dict[str, str]) -> None:
    """Nor to one who gets the name of a deleted one."""
    repeated = {"Idempotency-Key": "k1"}
    assert api.post("/tenants", {"name": "t1"}, key=None, headers=alice | repeated).status == 201
    users.remove(api.store, "alice")
    again = api.login("alice", "operator")

    assert api.post("/tenants", {"name": "t1"}, key=None, headers=again | repeated).status == 409


# --- failures


@pytest.mark.parametrize(("name", "password"), [("alice", "wrong"), ("nobody", GOOD)])
def test_login_that_fails_says_not_why(api: Api, alice: dict[str, str], name: str, password: str) -> None:
    answer = log_in(api, name, password)

    assert (answer.status, answer.code) == (401, "login_failed")
    assert "set-cookie" not in answer.headers
    assert answer.json["detail"] == "the name or the password is wrong, or the user is disabled"
    line = audit.page(api.store, limit=1)[0]
    assert (line.actor, line.action) == ("anonymous", "login failed")
    assert line.subject == ("alice" if name == "alice" else "")


def test_login_that_fails_too_often_waits(api: Api, alice: dict[str, str]) -> None:
    """With this name from this address: the right password, too. Somebody else does not wait."""
    users.create(api.store, "bob", "viewer", password=GOOD)
    for _ in range(MOST_OF_NAME):
        assert log_in(api, "alice", "wrong").status == 401

    answer = log_in(api)

    assert (answer.status, answer.code) == (429, "too_many_failures")
    assert 0 < int(answer.headers["retry-after"]) <= WINDOW_S
    assert log_in(api, "bob").status == 200
    assert log_in(api, address="192.0.2.1").status == 200


def test_logins_that_succeed_are_not_counted(api: Api, alice: dict[str, str]) -> None:
    for _ in range(MOST_OF_NAME + 1):
        assert log_in(api).status == 200


def test_wave_of_logins_is_refused(api: Api, alice: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each would take memory and a core."""
    monkeypatch.setattr(logins, "_MOST_WAITING", 0)

    answer = log_in(api)

    assert (answer.status, answer.code) == (503, "busy")


def test_failures_of_an_address_are_counted_over_all_names() -> None:
    now = 0.0
    limits = FailureLimits(lambda: now)
    for number in range(MOST_OF_ADDRESS):
        assert limits.begin(f"n{number}", "192.0.2.1") == 0

    assert limits.begin("other", "192.0.2.1") == WINDOW_S
    assert limits.begin("other", "192.0.2.2") == 0
    now = WINDOW_S
    assert limits.begin("other", "192.0.2.1") == 0


def test_addresses_of_one_network_count_together() -> None:
    limits = FailureLimits(lambda: 0.0)
    for number in range(MOST_OF_NAME):
        assert limits.begin("alice", f"2001:db8::{number + 1}") == 0

    assert limits.begin("alice", "2001:db8::ffff") > 0
    assert limits.begin("alice", "2001:db8:0:1::1") == 0
    assert limits.begin("alice", "::ffff:192.0.2.1") == 0
    assert limits.begin("alice", "unknown") == 0


def test_memory_of_failures_is_bounded() -> None:
    limits = FailureLimits(lambda: 0.0)
    for number in range(MOST_KNOWN + 10):
        limits.begin("alice", f"a{number}")

    assert len(limits._known) == MOST_KNOWN


def test_lines_of_failures_are_bounded_and_say_what_was_left_out() -> None:
    now = 0.0
    lines = FailureLines(lambda: now)

    assert [lines.next_line() for _ in range(LINES + 3)] == [0] * LINES + [None] * 3
    now = LINES_WINDOW_S
    assert lines.next_line() == 3
    assert lines.next_line() == 0


# --- one's own password


def test_user_chooses_another_password(api: Api, alice: dict[str, str]) -> None:
    """And logs in anew, everywhere."""
    other = {"old": GOOD, "new": "another good one"}

    assert api.post("/auth/password", other, key=None, headers=alice).status == 204
    assert api.get("/whoami", key=None, headers=alice).status == 401
    assert log_in(api).status == 401
    assert log_in(api, password="another good one").status == 200
    assert "user:alice" in [line.actor for line in audit.page(api.store, limit=4)]


def test_password_is_not_changed_without_the_old_one(api: Api, alice: dict[str, str]) -> None:
    wrong = api.post("/auth/password", {"old": "wrong", "new": "another good one"}, key=None, headers=alice)
    bad = api.post("/auth/password", {"old": GOOD, "new": "alicealicealice"}, key=None, headers=alice)

    assert (wrong.status, wrong.code) == (403, "forbidden")
    assert (bad.status, bad.code) == (422, "invalid")
    assert log_in(api).status == 200


def test_key_has_no_login(api: Api) -> None:
    assert api.post("/auth/logout").code == "conflict"
    assert api.post("/auth/password", {"old": "x", "new": "another good one"}).code == "conflict"


# --- /users


def test_users_are_made_shown_and_deleted(api: Api) -> None:
    made = api.post("/users", {"name": "bob", "role": "tenant-admin", "tenant": "acme"})

    assert made.status == 201
    assert made.headers["location"] == "/api/v1/users/bob"
    assert log_in(api, "bob", made.json["password"]).json["tenant"] == "acme"
    shown = api.get("/users/bob").json
    assert (shown["role"], shown["is_enabled"]) == ("tenant-admin", True)
    assert shown["login"] is not None
    assert "password" not in shown
    assert [row["name"] for row in api.get("/users").json["items"]] == ["bob"]
    assert api("DELETE", "/users/bob").status == 204
    assert api.get("/users/bob").code == "not_found"


def test_user_who_is_disabled_is_logged_out(api: Api, alice: dict[str, str]) -> None:
    assert api.post("/users/alice:disable").json["is_enabled"] is False
    assert api.get("/whoami", key=None, headers=alice).status == 401
    assert log_in(api).status == 401
    assert api.post("/users/alice:enable").json["is_enabled"] is True
    assert log_in(api).status == 200


def test_password_of_a_user_is_set_or_generated(api: Api, alice: dict[str, str]) -> None:
    generated = api.post("/users/alice:set-password").json["password"]

    assert api.get("/whoami", key=None, headers=alice).status == 401
    assert log_in(api, password=generated).status == 200
    assert "password" not in api.post("/users/alice:set-password", {"password": GOOD}).json
    assert log_in(api).status == 200
    assert api.post("/users/alice:set-password", {"password": "aaaaaaaaaaaa"}).code == "invalid"
    assert api.post("/users", {"name": "x", "role": "scrape"}).code == "invalid"
