"""Users and their logins: what a password may be, who is let in, and what ends a login."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sqlalchemy import select

from iothub.base.errors import ConfigError, ConflictError, DeniedError, NotFoundError
from iothub.testing.clock import ManualClock
from iothub_tenants.accounts import audit, login_sessions, passwords, tenants, users
from iothub_tenants.accounts.login_sessions import IDLE_S, MOST_OF_USER, WHOLE_S
from iothub_tenants.accounts.roles import Role
from iothub_tenants.accounts.store import AccountStore
from iothub_tenants.accounts.tables import admin_user, login_session
from iothub_tenants.accounts.users import Person, User

GOOD = "correct horse battery"
ISSUER = "https://id.example.com"


def log_in(store: AccountStore, name: str, password: str = GOOD) -> str | None:
    """Return the token of a login."""
    found = users.proven(store, name, password)
    begun = login_sessions.begin(store, *found) if found is not None else None
    return None if begun is None else begun.token


def person(name: str = "alice", role: str = "operator", tenant: str | None = None, subject: str = "1") -> Person:
    return Person(ISSUER, subject, name, role, tenant)


# --- passwords


@pytest.mark.parametrize("password", [GOOD, "korrekt-pferd-batterie", "éééé1234567x", "839201748563", "x" * 8 + "yz12"])
def test_password_of_any_characters_is_taken_if_it_is_long(password: str) -> None:
    passwords.check("alice", password)


@pytest.mark.parametrize(
    ("password", "why"),
    [
        ("", "too short"),
        ("elevenchars", "too short"),
        ("é" * 513, "too long"),
        ("alice" * 3, "anybody would try"),
        ("Alice-2026-2027", "anybody would try"),
        ("aaaaaaaaaaaa", "anybody would try"),
        ("abababababab", "anybody would try"),
        ("123456789012", "anybody would try"),
        ("zyxwvutsrqponm", "anybody would try"),
        ("qwertyuiopas", "anybody would try"),
        ("Password-1234", "anybody would try"),
        ("iothub-iothub-2026", "anybody would try"),
    ],
)
def test_obvious_password_is_refused(password: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        passwords.check("alice", password)


def test_password_is_one_text_however_it_is_composed() -> None:
    stored = passwords.hashed("gru\u0308ne wiesen 12")

    assert passwords.is_right("gr\u00fcne wiesen 12", stored)
    assert not passwords.is_right("grune wiesen 12", stored)
    assert not passwords.is_right("x" * 1025, stored)
    assert not passwords.is_right("\ud800", stored)


def test_generated_passwords_are_good_and_different() -> None:
    first, second = passwords.generate(), passwords.generate()

    passwords.check("alice", first)
    assert first != second


# --- users


def test_user_logs_in_with_the_password_that_was_chosen(store: AccountStore) -> None:
    made = users.create(store, "alice", "operator", password=GOOD)

    assert made.password is None
    token = log_in(store, "alice")
    assert token is not None
    found = login_sessions.holder(store, token)
    assert found is not None
    assert (found.name, found.role, found.tenant, found.is_local) == ("alice", Role.OPERATOR, None, True)
    assert found.login_ms == found.last_used_ms > 0


def test_generated_password_is_returned_and_not_stored(store: AccountStore) -> None:
    made = users.create(store, "alice", "viewer")

    assert made.password is not None
    assert made.password not in repr(made)
    with store.read() as connection:
        row = connection.execute(select(admin_user)).mappings().one()
    assert row["credential"].startswith("$argon2id$")
    assert made.password not in repr(dict(row))
    assert log_in(store, "alice", made.password) is not None


@pytest.mark.parametrize(("name", "password"), [("alice", "correct horse"), ("alice", ""), ("bob", GOOD), ("", GOOD)])
def test_wrong_name_or_password_is_nobody(store: AccountStore, name: str, password: str) -> None:
    users.create(store, "alice", "viewer", password=GOOD)

    assert users.proven(store, name, password) is None


def test_unknown_name_takes_a_hash_as_well(store: AccountStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody finds out by time which users there are."""
    proven = []
    monkeypatch.setattr(passwords, "verify_password", lambda _password, stored: proven.append(stored) or True)

    assert users.proven(store, "nobody", GOOD) is None
    assert [stored.startswith("$argon2id$") for stored in proven] == [True]


@pytest.mark.parametrize(
    ("role", "tenant", "is_good"),
    [
        ("platform-admin", None, True),
        ("tenant-admin", "acme", True),
        ("tenant-admin", None, False),
        ("operator", "acme", False),
        ("scrape", None, False),
        ("root", None, False),
    ],
)
def test_roles_of_users(store: AccountStore, role: str, tenant: str | None, is_good: bool) -> None:
    tenants.create(store, "acme")

    if is_good:
        assert users.create(store, "u", role, tenant).user.tenant == tenant
    else:
        with pytest.raises(ConfigError):
            users.create(store, "u", role, tenant)


def test_mistakes_of_users(store: AccountStore) -> None:
    users.create(store, "alice", "viewer")

    with pytest.raises(ConflictError):
        users.create(store, "alice", "viewer")
    with pytest.raises(ConfigError, match="cannot be a user name"):
        users.create(store, "a b", "viewer")
    with pytest.raises(ConfigError, match="OpenID provider"):
        users.create(store, "oidc:alice", "viewer")
    with pytest.raises(NotFoundError):
        users.create(store, "bob", "tenant-admin", "nobody")
    for change in (users.show, users.remove, users.disable, users.enable, users.set_password):
        with pytest.raises(NotFoundError, match="there is no user 'bob'"):
            change(store, "bob")


# --- logins


@pytest.mark.parametrize(
    "change",
    [
        lambda store: users.disable(store, "alice"),
        lambda store: users.remove(store, "alice"),
        lambda store: users.set_password(store, "alice", GOOD),
        lambda store: tenants.delete(store, "acme"),
    ],
    ids=["disable", "delete", "password", "tenant"],
)
def test_login_ends_with_what_it_was_made_of(store: AccountStore, change: Callable[[AccountStore], object]) -> None:
    tenants.create(store, "acme")
    users.create(store, "alice", "tenant-admin", "acme", GOOD)
    token = log_in(store, "alice")
    assert token is not None

    change(store)

    assert login_sessions.holder(store, token) is None
    with store.read() as connection:
        assert connection.execute(select(login_session)).first() is None


def test_enabled_user_logs_in_anew(store: AccountStore) -> None:
    users.create(store, "alice", "viewer", password=GOOD)
    users.disable(store, "alice")

    assert log_in(store, "alice") is None
    users.enable(store, "alice")
    assert log_in(store, "alice") is not None


@pytest.mark.parametrize(
    "change",
    [lambda store: users.set_password(store, "alice", "another password"), lambda store: users.disable(store, "alice")],
)
def test_login_that_is_overtaken_does_not_begin(store: AccountStore, change: Callable[[AccountStore], object]) -> None:
    """The password was right when it was looked at, and is not when the login would begin."""
    users.create(store, "alice", "viewer", password=GOOD)
    found = users.proven(store, "alice", GOOD)
    assert found is not None

    change(store)

    assert login_sessions.begin(store, *found) is None


def test_login_is_over_when_it_was_idle_or_is_old(store: AccountStore, monkeypatch: pytest.MonkeyPatch) -> None:
    now = store.now_ms()
    monkeypatch.setattr(AccountStore, "now_ms", lambda _store: now)
    users.create(store, "alice", "viewer", password=GOOD)
    idle, used = log_in(store, "alice"), log_in(store, "alice")
    assert idle is not None
    assert used is not None

    for _ in range(WHOLE_S // (IDLE_S - 1)):
        now += (IDLE_S - 1) * 1000
        assert login_sessions.holder(store, used) is not None
    now += 2000

    assert login_sessions.holder(store, idle) is None
    now += IDLE_S * 1000 - 3000
    assert login_sessions.holder(store, used) is None
    log_in(store, "alice")
    with store.read() as connection:
        assert len(connection.execute(select(login_session)).all()) == 1


def test_looking_at_a_login_is_no_use_of_it(store: AccountStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """An open page looks whether its login is one, and must not keep it alive."""
    now = store.now_ms()
    monkeypatch.setattr(AccountStore, "now_ms", lambda _store: now)
    users.create(store, "alice", "viewer", password=GOOD)
    token = log_in(store, "alice")
    assert token is not None

    now += (IDLE_S - 1) * 1000
    assert login_sessions.holder(store, token, is_used=False) is not None
    now += 2000

    assert login_sessions.holder(store, token) is None


def test_login_that_is_ended_is_nobodys(store: AccountStore) -> None:
    users.create(store, "alice", "viewer", password=GOOD)
    first, second = log_in(store, "alice"), log_in(store, "alice")
    assert first is not None
    assert second is not None

    login_sessions.end(store, first)
    login_sessions.end(store, first)

    assert login_sessions.holder(store, first) is None
    assert login_sessions.holder(store, second) is not None
    assert login_sessions.holder(store, "x") is None


def test_token_of_a_login_is_not_stored(store: AccountStore) -> None:
    users.create(store, "alice", "viewer", password=GOOD)
    token = log_in(store, "alice")

    with store.read() as connection:
        row = connection.execute(select(login_session)).mappings().one()
    assert token is not None
    assert token not in repr(dict(row))


def test_user_has_a_bounded_number_of_logins(store: AccountStore) -> None:
    user, proof = _made(store)
    tokens = [begun.token for _ in range(MOST_OF_USER + 1) if (begun := login_sessions.begin(store, user, proof))]

    in_force = [login_sessions.holder(store, token) is not None for token in tokens]

    assert in_force == [False] + [True] * MOST_OF_USER


def test_logins_are_in_the_audit_log(store: AccountStore) -> None:
    """Not the name of nobody: people type passwords there."""
    user, proof = _made(store)
    begun = login_sessions.begin(store, user, proof, address="192.0.2.1")
    assert begun is not None
    login_sessions.end(store, begun.token)
    assert login_sessions.note_failure(store, "alice", address="192.0.2.1") == "alice"
    assert login_sessions.note_failure(store, "my-password", address="192.0.2.1") == ""

    lines = audit.page(store, limit=4)

    assert [(line.kind, line.subject, line.action) for line in lines] == [
        ("user", "", "login failed"),
        ("user", "alice", "login failed"),
        ("user", "alice", "logged out"),
        ("user", "alice", "logged in"),
    ]
    assert "my-password" not in repr(lines)


# --- people of an OpenID provider


def test_person_of_the_provider_is_made_and_changed_at_each_login(store: AccountStore) -> None:
    tenants.create(store, "acme")
    first = users.take_person(store, person())
    begun = login_sessions.begin(store, first, "")
    assert begun is not None

    again = users.take_person(store, person(name="renamed"))
    assert (again.id, again.name, again.role, again.is_local) == (first.id, "oidc:alice", Role.OPERATOR, False)
    assert login_sessions.holder(store, begun.token) is not None
    changed = users.take_person(store, person(role="tenant-viewer", tenant="acme"))

    assert (changed.id, changed.role, changed.tenant) == (first.id, Role.TENANT_VIEWER, "acme")
    assert login_sessions.holder(store, begun.token) is None


def test_person_of_the_provider_is_no_local_user(store: AccountStore) -> None:
    users.create(store, "alice", "viewer", password=GOOD)
    made = users.take_person(store, person())

    assert made.name == "oidc:alice"
    assert users.proven(store, "oidc:alice", "") is None
    with pytest.raises(ConflictError, match="has no password here"):
        users.set_password(store, "oidc:alice", GOOD)
    with pytest.raises(ConflictError, match="another person"):
        users.take_person(store, person(subject="2"))
    assert users.take_person(store, person(name="Zoë Müller+x", subject="3")).name == "oidc:Zo__M_ller_x"


def test_person_who_is_disabled_or_may_nothing_is_refused(store: AccountStore) -> None:
    users.take_person(store, person())
    users.disable(store, "oidc:alice")

    with pytest.raises(DeniedError):
        users.take_person(store, person())
    with pytest.raises(ConfigError):
        users.take_person(store, person(role="scrape", subject="2"))
    with pytest.raises(NotFoundError):
        users.take_person(store, person(role="tenant-admin", tenant="nobody", subject="2"))


def _made(store: AccountStore) -> tuple[User, str]:
    users.create(store, "alice", "viewer", password=GOOD)
    found = users.proven(store, "alice", GOOD)
    assert found is not None
    return found


def test_last_use_of_a_users_logins_is_known_to_the_minute(store: AccountStore, clock: ManualClock) -> None:
    users.create(store, "alice", "operator", password=GOOD)
    token = log_in(store, "alice")
    assert token is not None
    begun_ms = users.show(store, "alice").last_used_ms

    clock.advance(59)
    login_sessions.holder(store, token)
    assert users.show(store, "alice").last_used_ms == begun_ms
    clock.advance(2)
    login_sessions.holder(store, token)

    found = users.show(store, "alice")
    assert (found.login_ms, found.last_used_ms) == (begun_ms, begun_ms + 61_000)
