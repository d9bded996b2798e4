"""Export and import of a tenant: what goes out comes in, under any name; a damaged document changes nothing."""

from __future__ import annotations

import json

import pytest

from iothub.base.errors import ConfigError, ConflictError, NotFoundError
from iothub_services.auth.secrets import hash_password, verify_generated
from iothub_tenants.accounts import acl_rules, bans, devices, groups, quotas, tenants, token_issuers, transfer
from iothub_tenants.accounts.registry import Registry
from iothub_tenants.accounts.store import AccountStore
from iothub_tenants.accounts.token_issuers import Changes
from tests.support.foreign_hashes import PBKDF2, SHA512
from tests.support.tokens import SECRET, issuer, sharing


@pytest.fixture
def document(store: AccountStore) -> dict[str, object]:
    tenants.create(store, "acme", display_name="Acme", is_closed=True)
    tenants.update(store, "acme", tenants.Settings(client_id_policy="prefix", denied_networks=("192.0.2.0/24",)))
    groups.create(store, "acme", "sensors")
    devices.create(store, "acme", "dev1", groups=["sensors"])
    devices.create(store, "acme", "dev2")
    devices.set_certificate(store, "acme", "dev2", "CN=dev2")
    devices.disable(store, "acme", "dev2")
    acl_rules.deny(store, "acme", "dev1", "publish", "a/{device}/#")
    acl_rules.allow(store, "acme", "@sensors", "both", "b/#")
    quotas.set_limits(store, "acme", "connections=5 dry-run:connects=1/1s")
    quotas.set_limits(store, "acme", "packet_bytes=100", device="dev1")
    bans.add(store, "acme", "address", "192.0.2.1", reason="no")
    devices.create(store, "acme", "robot", with_token=True)
    token_issuers.add(store, "acme", issuer(kid="k1", issuer="https://login.example", audience="iothub", leeway_s=1.5))
    token_issuers.add(store, "acme", sharing(store.pepper))
    return json.loads(json.dumps(transfer.export_tenant(store, "acme")))


def test_imported_tenant_equals_the_exported_one(store: AccountStore, document: dict[str, object]) -> None:
    """Under another name: the same document comes out again, and secrets still prove."""
    imported = transfer.import_tenant(store, document, name="copy")

    again = transfer.export_tenant(store, "copy")
    settings = again["tenant"]
    assert isinstance(settings, dict)
    assert settings.pop("name") == "copy"
    original = document["tenant"]
    assert isinstance(original, dict)
    del original["name"]
    assert json.loads(json.dumps(again)) == document
    assert (imported.devices, imported.without_secret, imported.issuers_without_secret) == (3, (), ())
    assert SECRET.decode() not in json.dumps(document)
    original_record, record = (Registry(store).find_tenant(name) for name in ("acme", "copy"))
    assert original_record is not None
    assert record is not None
    assert record.token_issuers == original_record.token_issuers


def test_foreign_pepper_leaves_generated_secrets_behind(
    store: AccountStore, url: str, document: dict[str, object]
) -> None:
    """Those devices, and issuers that shared a secret, are named; nothing opens them until they have a new one."""
    other = AccountStore(url, pepper=b"q" * 32)

    imported = transfer.import_tenant(other, document, name="copy")

    record = Registry(other).find_device(imported.tenant.id, "dev1")
    assert imported.without_secret == ("dev1",)
    assert record is not None
    assert not verify_generated("", record.credential, other.pepper)
    assert devices.rotate_secret(other, "copy", "dev1").secret
    assert imported.issuers_without_secret == ("shared",)
    owner = Registry(other).find_tenant("copy")
    assert owner is not None
    assert [(each.name, len(each.keys)) for each in owner.token_issuers] == [("fleet", 1), ("shared", 0)]
    changes = Changes(keys=sharing(other.pepper).keys)
    assert token_issuers.change(other, "copy", "shared", changes, None).keys
    other.close()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"algorithm": "none"}, r"token_issuers\[0\].algorithm"),
        ({"algorithm": "RS256"}, r"keys\[0\]: expected a key for RS256"),
        ({"algorithm": "HS256"}, r"keys\[0\]: expected a key for HS256"),
        ({"keys": "x"}, "keys: expected a list"),
        ({"keys": [{"kid": "", "key": "x"}]}, r"keys\[0\]: expected a key"),
        ({"keys": [{"kid": 7, "key": "x"}]}, r"keys\[0\].kid"),
        ({"leeway_ms": "1s"}, "leeway_ms"),
        ({"leeway_ms": 1_000_000}, "leeway"),
        ({"issuer": None}, "issuer"),
        ({"name": "a/b"}, "token issuer name"),
        ({"name": "shared"}, "already"),
    ],
)
def test_damaged_token_issuer_is_named(
    store: AccountStore, document: dict[str, object], changes: dict[str, object], words: str
) -> None:
    """Nothing is created, and no key of another kind slips in."""
    issuers = document["token_issuers"]
    assert isinstance(issuers, list)
    issuers[0] |= changes

    with pytest.raises((ConfigError, ConflictError), match=words):
        transfer.import_tenant(store, document, name="copy")
    with pytest.raises(NotFoundError):
        tenants.show(store, "copy")


def test_suspended_and_protected_stay_so(store: AccountStore, document: dict[str, object]) -> None:
    """A copy never opens what was closed."""
    settings = document["tenant"]
    assert isinstance(settings, dict)
    settings |= {"state": "suspended", "is_protected": True}

    copy = transfer.import_tenant(store, document, name="copy").tenant

    assert (copy.state.value, copy.is_protected) == ("suspended", True)


def test_taken_name_and_unknown_plan_are_refused(store: AccountStore, document: dict[str, object]) -> None:
    """Exit codes 4 and 3."""
    with pytest.raises(ConflictError, match="exists already"):
        transfer.import_tenant(store, document)
    settings = document["tenant"]
    assert isinstance(settings, dict)
    settings["plan"] = "gold"
    with pytest.raises(NotFoundError, match="'gold'"):
        transfer.import_tenant(store, document, name="copy")


def test_over_bans_are_not_imported(store: AccountStore, document: dict[str, object]) -> None:
    """The document may be old."""
    document["bans"] = [{"kind": "device", "value": "dev1", "until_ms": 5, "reason": ""}]

    transfer.import_tenant(store, document, name="copy")

    assert bans.list_all(store, "copy") == []


ENDLESS = "$argon2id$v=19$m=4194304,t=9999,p=1$c2FsdHNhbHRzYWx0$aGFzaGhhc2hoYXNoaGFzaGhhc2hoYXNo"


@pytest.mark.parametrize("stored", [hash_password("secret"), PBKDF2, SHA512], ids=["argon2id", "pbkdf2", "sha512"])
def test_hashes_of_passwords_are_taken_as_they_are(
    store: AccountStore, document: dict[str, object], stored: str
) -> None:
    """Ours, and those that an import took over from other brokers."""
    device = {"name": "a", "credential_kind": "password", "credential": stored, "groups": [], "is_enabled": True}

    transfer.import_tenant(store, document | {"devices": [device], "rules": [], "limits": [], "bans": []}, name="copy")

    assert [device.credential.value for device in devices.list_all(store, "copy")] == ["password"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("format", "other"), ("version", 2), ("tenant", []), ("tenant", {"name": "x"}), ("groups", {}), ("groups", [5]), ("groups", ["@a"]),
        ("devices", [5]), ("devices", [{"name": "a/b", "credential_kind": "none", "credential": ""}]),
        ("devices", [{"name": "a", "credential_kind": "magic", "credential": ""}]),
        ("devices", [{"name": "a", "credential_kind": "none", "credential": "x" * 513}]),
        ("devices", [{"name": "a", "credential_kind": "none", "credential": "", "groups": [1], "is_enabled": True}]),
        ("devices", [{"name": "a", "credential_kind": "none", "credential": "", "groups": [], "is_enabled": 1}]),
        ("devices", 2 * [{"name": "a", "credential_kind": "none", "credential": "", "groups": [], "is_enabled": True}]),
        ("devices", [{"name": "a", "credential_kind": "password", "credential": ENDLESS, "groups": [], "is_enabled": True}]),
        ("devices", [{"name": "a", "credential_kind": "password", "credential": "secret", "groups": [], "is_enabled": True}]),
        ("devices", [{"name": "a", "credential_kind": "generated", "credential": "h1$zz$zz", "groups": [], "is_enabled": True}]),
        ("token_issuers", None), ("streams", {}),
        ("streams", [{"name": "s", "direction": "up", "filter": "#", "partitions": 1, "retention_ms": -1}]),
        ("streams", [{"name": "s", "direction": "out", "filter": "#", "partitions": True, "retention_ms": -1}]),
        ("rules", [{"scope": "world", "subject": "", "effect": "allow", "action": "both", "filter": "#"}]),
        ("rules", [{"scope": "tenant", "subject": "", "effect": "allow", "action": "both", "filter": "a#"}]),
        ("rules", [{"scope": "tenant", "subject": "dev1", "effect": "allow", "action": "both", "filter": "a"}]),
        ("limits", [{"device": "", "value": "nosuch=1"}]), ("limits", [{"device": "dev1", "value": "connections=1"}]),
        ("bans", [{"kind": "device", "value": "dev1", "until_ms": "x", "reason": ""}]),
        ("bans", [{"kind": "device", "value": "dev1", "until_ms": 0, "reason": "a\nb"}]),
    ],
)  # fmt: skip
def test_damaged_document_changes_nothing(
    store: AccountStore, document: dict[str, object], key: str, value: object
) -> None:
    """Exit code 2, all or nothing."""
    with pytest.raises(ConfigError):
        transfer.import_tenant(store, document | {key: value}, name="copy")

    assert [tenant.name for tenant in tenants.list_all(store)] == ["acme"]


def test_text_that_is_no_document_is_refused(store: AccountStore) -> None:
    """Whatever JSON can say."""
    for document in (None, 5, "x", [], {}):
        with pytest.raises(ConfigError):
            transfer.import_tenant(store, document)
