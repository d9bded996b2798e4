"""The verbs on devices: credentials are shown once and stored as hashes; a deleted device leaves nothing to its successor."""

from __future__ import annotations

import pytest
from sqlalchemy import select

from iothub.base.errors import ConfigError, ConflictError, NotFoundError
from iothub.testing.clock import ManualClock
from iothub_services.auth.secrets import verify_generated, verify_password
from iothub_tenants.accounts import acl_rules, bans, devices, groups, quotas, tenants
from iothub_tenants.accounts.devices import CredentialForm
from iothub_tenants.accounts.store import AccountStore
from iothub_tenants.accounts.tables import device as table


@pytest.fixture(autouse=True)
def _tenant(store: AccountStore) -> None:
    tenants.create(store, "acme")


def stored_credential(store: AccountStore, name: str) -> str:
    with store.read() as connection:
        return str(connection.execute(select(table.c.credential).where(table.c.name == name)).scalar_one())


def test_generated_secret_is_returned_and_only_its_hash_is_stored(store: AccountStore) -> None:
    """The hash proves it, under the pepper of the store."""
    made = devices.create(store, "acme", "dev1")

    assert made.secret is not None
    assert verify_generated(made.secret, stored_credential(store, "dev1"), store.pepper)
    assert made.secret not in stored_credential(store, "dev1")
    assert made.secret not in repr(made)


def test_chosen_password_is_stored_as_a_slow_hash(store: AccountStore) -> None:
    """And not returned."""
    made = devices.create(store, "acme", "dev1", password="gr\u00fcn")

    assert made.secret is None
    assert made.device.credential is CredentialForm.PASSWORD
    assert verify_password("gr\u00fcn", stored_credential(store, "dev1"))


@pytest.mark.parametrize("password", ["", "x" * 1025, "a\0b", "\ud800"])
def test_impossible_password_is_refused(store: AccountStore, password: str) -> None:
    """Without being repeated in the message."""
    with pytest.raises(ConfigError) as refusal:
        devices.create(store, "acme", "dev1", password=password)

    assert "xxx" not in str(refusal.value)


def test_secret_needs_the_pepper(url: str) -> None:
    """A store that was opened without it refuses instead of hashing with nothing."""
    store = AccountStore(url)

    with pytest.raises(ConfigError, match="pepper"):
        devices.create(store, "acme", "dev1")

    store.close()


def test_device_exists_once_per_tenant(store: AccountStore) -> None:
    """The same name in another tenant is another device."""
    tenants.create(store, "other")
    devices.create(store, "acme", "dev1")

    with pytest.raises(ConflictError, match="rotate-secret acme dev1"):
        devices.create(store, "acme", "dev1")
    devices.create(store, "other", "dev1")


def test_names_differ_by_case(store: AccountStore) -> None:
    """Compared byte by byte."""
    devices.create(store, "acme", "dev1")
    devices.create(store, "acme", "DEV1")

    assert [device.name for device in devices.list_all(store, "acme")] == ["DEV1", "dev1"]


def test_bad_name_and_unknown_tenant_are_refused(store: AccountStore) -> None:
    """Exit codes 2 and 3."""
    with pytest.raises(ConfigError):
        devices.create(store, "acme", "a/b")
    with pytest.raises(NotFoundError):
        devices.create(store, "nobody", "dev1")


def test_new_device_joins_its_groups(store: AccountStore) -> None:
    """All of them, or it is not created."""
    groups.create(store, "acme", "sensors")

    with pytest.raises(NotFoundError, match="'actors'"):
        devices.create(store, "acme", "dev1", groups=["sensors", "actors"])
    made = devices.create(store, "acme", "dev1", groups=["sensors"])

    assert made.device.groups == ("sensors",)
    assert devices.list_all(store, "acme") == [made.device]


def test_rotated_secret_replaces_the_old_one(store: AccountStore, clock: ManualClock) -> None:
    """Whatever it was."""
    old = devices.create(store, "acme", "dev1")
    clock.advance(5)

    new = devices.rotate_secret(store, "acme", "dev1")

    assert new.secret is not None
    assert old.secret is not None
    assert verify_generated(new.secret, stored_credential(store, "dev1"), store.pepper)
    assert not verify_generated(old.secret, stored_credential(store, "dev1"), store.pepper)
    assert new.device.changed_ms - new.device.created_ms == 5000


def test_password_and_certificate_replace_the_secret(store: AccountStore) -> None:
    """A device has one credential."""
    devices.create(store, "acme", "dev1")

    assert devices.set_password(store, "acme", "dev1", "geheim").credential is CredentialForm.PASSWORD
    given = devices.set_certificate(store, "acme", "dev1", "CN=dev1,O=Acme")
    assert (given.credential, given.certificate_subject) == (CredentialForm.X509, "CN=dev1,O=Acme")
    assert stored_credential(store, "dev1") == "CN=dev1,O=Acme"
    with pytest.raises(ConfigError, match="subject"):
        devices.set_certificate(store, "acme", "dev1", "CN=a\nb")
    with pytest.raises(ConfigError, match="not compared"):
        devices.set_certificate(store, "acme", "dev1", "XY=dev1")


def test_disabled_device_keeps_its_account(store: AccountStore) -> None:
    """Until it is enabled again."""
    devices.create(store, "acme", "dev1")

    assert not devices.disable(store, "acme", "dev1").is_enabled
    assert not devices.show(store, "acme", "dev1").is_enabled
    assert devices.enable(store, "acme", "dev1").is_enabled


def test_deleted_device_leaves_nothing_to_its_successor(store: AccountStore) -> None:
    """Neither rules, limits, bans nor groups."""
    groups.create(store, "acme", "sensors")
    devices.create(store, "acme", "dev1", groups=["sensors"])
    acl_rules.allow(store, "acme", "dev1", "both", "secret/#")
    quotas.set_limits(store, "acme", "packet_bytes=100", device="dev1")
    bans.add(store, "acme", "device", "dev1")

    devices.delete(store, "acme", "dev1")
    successor = devices.create(store, "acme", "dev1").device

    assert successor.groups == ()
    assert [rule.subject for rule in acl_rules.list_all(store, "acme")] == ["*"]
    assert quotas.list_all(store, "acme") == []
    assert bans.list_all(store, "acme") == []


def test_unknown_device_is_not_found(store: AccountStore) -> None:
    """By every verb."""
    for verb in (devices.show, devices.rotate_secret, devices.enable, devices.disable, devices.delete):
        with pytest.raises(NotFoundError, match="device list acme"):
            verb(store, "acme", "nobody")
