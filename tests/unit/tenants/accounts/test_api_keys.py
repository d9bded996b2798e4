"""Keys of the REST API: shown once, stored as a hash, refused as soon as they are disabled, rotated or deleted."""

from __future__ import annotations

import pytest
from sqlalchemy import select

from iothub.base.errors import BackendError, ConfigError, ConflictError, NotFoundError
from iothub.testing.clock import ManualClock
from iothub_tenants.accounts import api_keys, tenants
from iothub_tenants.accounts.roles import Role
from iothub_tenants.accounts.store import AccountStore
from iothub_tenants.accounts.tables import api_key as table


def test_text_of_a_key_finds_it_and_is_not_stored(store: AccountStore) -> None:
    made = api_keys.create(store, "ci", "platform-admin")

    assert api_keys.holder(store, made.text) == made.key
    assert made.text not in repr(made)
    with store.read() as connection:
        row = connection.execute(select(table)).mappings().one()
    assert made.text.split("_", 2)[2] not in repr(dict(row))  # it may have the mark itself
    assert made.text.startswith(f"iothub_{row['prefix']}_")


@pytest.mark.parametrize(
    "text", ["", "iothub_", "Bearer", "iothub_0123456789ab_" + "x" * 32, "iothub_" + "é" * 12 + "_" + "x" * 32]
)
def test_other_texts_find_nobody(store: AccountStore, text: str) -> None:
    api_keys.create(store, "ci", "viewer")

    assert api_keys.holder(store, text) is None


def test_each_letter_of_a_key_counts(store: AccountStore) -> None:
    text = api_keys.create(store, "ci", "viewer").text

    for at in range(len(text)):
        other = text[:at] + ("0" if text[at] != "0" else "1") + text[at + 1 :]
        assert api_keys.holder(store, other) is None


def test_disabled_key_is_refused_until_it_is_enabled(store: AccountStore) -> None:
    text = api_keys.create(store, "ci", "operator").text

    assert not api_keys.disable(store, "ci").is_enabled
    assert api_keys.holder(store, text) is None
    api_keys.enable(store, "ci")
    assert api_keys.holder(store, text) is not None


def test_rotated_key_has_another_text(store: AccountStore) -> None:
    old = api_keys.create(store, "ci", "operator").text

    new = api_keys.rotate(store, "ci").text

    assert api_keys.holder(store, old) is None
    found = api_keys.holder(store, new)
    assert found is not None
    assert (found.name, found.role) == ("ci", Role.OPERATOR)


def test_deleted_key_is_nobodys(store: AccountStore) -> None:
    text = api_keys.create(store, "ci", "operator").text

    api_keys.remove(store, "ci")

    assert api_keys.holder(store, text) is None
    assert api_keys.list_all(store) == []
    for change in (api_keys.show, api_keys.remove, api_keys.rotate, api_keys.disable):
        with pytest.raises(NotFoundError, match="there is no key 'ci'"):
            change(store, "ci")


def test_keys_of_a_tenant_go_with_it(store: AccountStore) -> None:
    tenants.create(store, "acme")
    text = api_keys.create(store, "app", "tenant-admin", "acme").text

    tenants.delete(store, "acme")

    assert api_keys.holder(store, text) is None
    with pytest.raises(ConflictError):
        api_keys.create(store, "late", "tenant-viewer", "acme")


@pytest.mark.parametrize(
    ("role", "tenant", "is_good"),
    [
        ("platform-admin", None, True),
        ("operator", None, True),
        ("viewer", None, True),
        ("scrape", None, True),
        ("scrape", "acme", True),
        ("tenant-admin", "acme", True),
        ("tenant-viewer", "acme", True),
        ("platform-admin", "acme", False),
        ("operator", "acme", False),
        ("viewer", "acme", False),
        ("tenant-admin", None, False),
        ("tenant-viewer", None, False),
        ("root", None, False),
    ],
)
def test_roles_of_a_tenant_need_one_and_others_have_none(
    store: AccountStore, role: str, tenant: str | None, is_good: bool
) -> None:
    tenants.create(store, "acme")

    if is_good:
        assert api_keys.create(store, "k", role, tenant).key.tenant == tenant
    else:
        with pytest.raises(ConfigError):
            api_keys.create(store, "k", role, tenant)


def test_name_is_well_formed_and_of_one_key(store: AccountStore) -> None:
    api_keys.create(store, "ci", "viewer")

    with pytest.raises(ConflictError, match="there is a key ci already"):
        api_keys.create(store, "ci", "viewer")
    with pytest.raises(ConfigError, match="cannot be a key name"):
        api_keys.create(store, "c i", "viewer")
    with pytest.raises(NotFoundError):
        api_keys.create(store, "k", "tenant-admin", "nobody")


def test_last_use_of_a_key_is_known_to_the_minute(store: AccountStore, clock: ManualClock) -> None:
    """One write a minute, however many requests there are; a refused one is no use."""
    text = api_keys.create(store, "ci", "viewer").text
    assert api_keys.show(store, "ci").last_used_ms == 0

    api_keys.holder(store, text)
    first = api_keys.show(store, "ci").last_used_ms
    assert first == store.now_ms()
    clock.advance(59)
    api_keys.holder(store, text)
    api_keys.holder(store, text[:-1] + ("A" if text[-1] != "A" else "B"))
    assert api_keys.show(store, "ci").last_used_ms == first
    clock.advance(2)
    api_keys.holder(store, text)
    assert api_keys.show(store, "ci").last_used_ms == first + 61_000


def test_key_is_let_in_when_its_use_cannot_be_noted(store: AccountStore, monkeypatch: pytest.MonkeyPatch) -> None:
    text = api_keys.create(store, "ci", "viewer").text

    def fail(_self: object) -> None:
        raise BackendError("disk full", retryable=True)

    monkeypatch.setattr(AccountStore, "write", fail)
    assert api_keys.holder(store, text) is not None
