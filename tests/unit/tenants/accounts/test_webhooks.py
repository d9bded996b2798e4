"""Webhooks in the accounts: whose they are, what they are for, secrets that nobody stores, and the log of attempts."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from iothub.base.errors import ConfigError, ConflictError, NotFoundError, TenantLimitError
from iothub.testing.clock import ManualClock
from iothub_services.webhooks import signing
from iothub_services.webhooks.port import Attempt
from iothub_tenants.accounts import changes, tenants, webhooks
from iothub_tenants.accounts.store import AccountStore, ChangeKind
from iothub_tenants.accounts.webhooks import MOST, MOST_ATTEMPTS, OLD_SECRET_MS, Changes

URL = "https://hooks.example.com/x"


@pytest.fixture(autouse=True)
def _tenants(store: AccountStore) -> None:
    for name in ("acme", "beta"):
        tenants.create(store, name)


def test_a_webhook_is_of_a_tenant_or_of_the_platform(store: AccountStore) -> None:
    """The same name may be in each."""
    for tenant in ("acme", "beta", None):
        webhooks.create(store, tenant, "pager", URL, ["client/*"])

    assert [each.tenant for each in webhooks.list_all(store, "acme")] == ["acme"]
    assert [each.tenant for each in webhooks.list_all(store, None)] == [None]
    assert [target.label for target in webhooks.active(store)] == ["acme/pager", "beta/pager", "pager"]


def test_the_secret_is_shown_once_and_stored_nowhere(store: AccountStore) -> None:
    made = webhooks.create(store, "acme", "pager", URL)

    (target,) = webhooks.active(store)
    assert signing.shown(target.secrets[0]) == made.secret
    assert made.secret not in repr(made) + repr(target)
    with store.read() as connection:
        rows = (
            connection.execute(text("SELECT * FROM webhook")).all()
            + connection.execute(text("SELECT * FROM audit")).all()
        )
    assert made.secret not in repr(rows)


def test_a_replaced_secret_signs_for_a_day_more(store: AccountStore, clock: ManualClock) -> None:
    first = webhooks.create(store, "acme", "pager", URL)
    second = webhooks.rotate(store, "acme", "pager")

    def secrets() -> list[str]:
        return [signing.shown(secret) for secret in webhooks.active(store)[0].secrets]

    assert secrets() == [second.secret, first.secret]
    clock.advance(OLD_SECRET_MS / 1000)
    assert secrets() == [second.secret]


def test_what_is_given_is_changed_and_a_disabled_one_is_not_delivered_to(store: AccountStore) -> None:
    webhooks.create(store, "acme", "pager", URL, ["client/*"])

    changed = webhooks.change(store, "acme", "pager", Changes(events=["quota/exceeded", "quota/exceeded"]))
    assert (changed.url, changed.events, changed.is_enabled) == (URL, ("quota/exceeded",), True)
    webhooks.change(store, "acme", "pager", Changes(is_enabled=False))

    assert webhooks.active(store) == []
    assert webhooks.target(store, "acme", "pager").events == {"quota/exceeded"}


def test_changes_reach_hubs_through_the_change_log(store: AccountStore) -> None:
    watcher = changes.ChangeWatcher(store)
    webhooks.create(store, "acme", "pager", URL)
    webhooks.create(store, None, "ops", URL)
    webhooks.remove(store, None, "ops")

    assert [(found.kind, found.subject) for found in watcher.poll()] == [
        (ChangeKind.WEBHOOK, "pager"),
        (ChangeKind.WEBHOOK, "ops"),
        (ChangeKind.WEBHOOK, "ops"),
    ]


@pytest.mark.parametrize(
    "given",
    [
        "",
        "ftp://a",
        "https://",
        "https://user:word@a/",
        "https://a/#x",
        "https://a/ b",
        "https://\u00fc.example",
        "https://a:99999/",
        "javascript:alert(1)",
        "https://a/" + "x" * 1024,
    ],
)
def test_a_url_that_is_none_is_refused(store: AccountStore, given: str) -> None:
    with pytest.raises(ConfigError, match="URL"):
        webhooks.create(store, "acme", "pager", given)


def test_unknown_names_and_events_are_refused_with_what_is_expected(store: AccountStore) -> None:
    with pytest.raises(ConfigError, match="client/connected"):
        webhooks.create(store, "acme", "pager", URL, ["client/vanished"])
    with pytest.raises(ConfigError, match="all of them"):
        webhooks.create(store, "acme", "pager", URL, [])
    with pytest.raises(ConfigError, match="beginning with a letter"):
        webhooks.create(store, "acme", "a/b", URL)
    with pytest.raises(NotFoundError, match=r"`iothub webhook list --tenant acme` shows them"):
        webhooks.show(store, "acme", "pager")
    with pytest.raises(NotFoundError, match=r"`iothub webhook list` shows them"):
        webhooks.show(store, None, "pager")
    with pytest.raises(NotFoundError):
        webhooks.list_all(store, "nobody")


def test_there_is_a_limit_and_no_two_of_a_name(store: AccountStore) -> None:
    for number in range(MOST):
        webhooks.create(store, "acme", f"w{number}", URL)

    with pytest.raises(ConflictError, match="already"):
        webhooks.create(store, "acme", "w0", URL)
    with pytest.raises(TenantLimitError, match="delete one"):
        webhooks.create(store, "acme", "w", URL)


def test_the_last_attempts_are_kept_newest_first(store: AccountStore) -> None:
    """Those of a webhook that is gone are not, and each has its own."""
    for name in ("one", "two"):
        webhooks.create(store, "acme", name, URL)
    one, two = (target.id for target in webhooks.active(store))
    made = [Attempt(one, at, f"e{at}", "client/connected", "failed", 500, "no") for at in range(MOST_ATTEMPTS + 5)]

    webhooks.note_attempts(store, made, 3)
    webhooks.note_attempts(
        store, [Attempt(two, 1, "e", "x", "delivered", 200, ""), Attempt(99, 1, "e", "x", "y", 0, "")], 3
    )

    found = webhooks.attempts(store, "acme", "one")
    assert [each.event_id for each in found] == [f"e{at}" for at in range(MOST_ATTEMPTS + 4, 4, -1)]
    assert (found[0].node, found[0].status, found[0].detail) == (3, 500, "no")
    assert len(webhooks.attempts(store, "acme", "two")) == 1


def test_a_deleted_tenants_webhooks_are_gone_with_their_attempts(store: AccountStore) -> None:
    webhooks.create(store, "acme", "pager", URL)
    webhooks.create(store, "beta", "pager", URL)
    acme, _ = webhooks.active(store)
    webhooks.note_attempts(store, [Attempt(acme.id, 1, "e", "x", "delivered", 200, "")], 0)

    tenants.delete(store, "acme")
    assert [target.label for target in webhooks.active(store)] == ["beta/pager"]
    tenants.finish_deletion(store, acme.tenant_id)

    with store.read() as connection:
        assert connection.execute(text("SELECT count(*) FROM webhook")).scalar() == 1
        assert connection.execute(text("SELECT count(*) FROM webhook_attempt")).scalar() == 0


@pytest.mark.parametrize("event", ["alarm/*", "node/up", "tenant/created", "job/failed"])
def test_a_tenants_webhook_for_events_of_the_platform_is_refused(store: AccountStore, event: str) -> None:
    """It would never get one."""
    webhooks.create(store, None, "ops", URL, [event])
    webhooks.create(store, "acme", "pager", URL)

    for refused in (
        lambda: webhooks.create(store, "acme", "other", URL, [event]),
        lambda: webhooks.change(store, "acme", "pager", Changes(events=["client/*", event])),
    ):
        with pytest.raises(ConfigError, match="an event of the platform, which no webhook of a tenant gets: expected"):
            refused()
