"""Token issuers of a tenant: added, changed, removed, and what the hub reads of them."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives import serialization

from iothub.base.errors import ConfigError, ConflictError, NotFoundError
from iothub.testing.clock import ManualClock
from iothub_services.auth.port import CredentialKind, TokenAlgorithm, TokenKey
from iothub_tenants.accounts import devices, tenants, token_issuers
from iothub_tenants.accounts.changes import ChangeWatcher
from iothub_tenants.accounts.devices import CredentialForm
from iothub_tenants.accounts.plain import plain
from iothub_tenants.accounts.registry import Registry
from iothub_tenants.accounts.store import AccountStore, ChangeKind
from iothub_tenants.accounts.token_issuers import KEY_LIMIT, Changes
from tests.support.tokens import ES256, issuer, private_key, public_pem, sharing


@pytest.fixture
def acme(store: AccountStore) -> AccountStore:
    tenants.create(store, "acme")
    tenants.create(store, "beta")
    return store


def test_added_issuer_is_what_the_hub_reads(acme: AccountStore) -> None:
    """With a line in the change log; the neighbour has none of it."""
    watcher, registry = ChangeWatcher(acme), Registry(acme)
    before = registry.find_tenant("acme")
    given = issuer(issuer="https://login.example", audience="iothub", leeway_s=30.0, kid="k1")

    token_issuers.add(acme, "acme", given)

    after, beside = registry.find_tenant("acme"), registry.find_tenant("beta")
    assert before is not None
    assert after is not None
    assert beside is not None
    assert (after.token_issuers, beside.token_issuers) == ((given,), ())
    assert after.version > before.version
    assert [(change.tenant_id, change.kind, change.subject) for change in watcher.poll()] == [
        (after.id, ChangeKind.TOKEN_ISSUER, "fleet")
    ]


def test_shown_issuer_has_fingerprints_and_no_secret(acme: AccountStore) -> None:
    """The SHA-256 of the DER form, as openssl computes it."""
    key = private_key(ES256).public_key()
    der = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    token_issuers.add(acme, "acme", issuer(leeway_s=0.5))
    token_issuers.add(acme, "acme", sharing(acme.pepper))

    fleet, shared = (plain(each) for each in token_issuers.list_all(acme, "acme"))

    assert fleet["keys"] == [{"kid": "", "sha256": hashlib.sha256(der).hexdigest()}]
    assert (fleet["algorithm"], fleet["leeway_s"], fleet["tenant"]) == ("ES256", 0.5, "acme")
    assert shared["keys"] == [{"kid": "", "sha256": ""}]
    assert plain(token_issuers.show(acme, "acme", "fleet")) == fleet


def test_taken_name_malformed_values_and_strangers_are_refused(acme: AccountStore) -> None:
    token_issuers.add(acme, "acme", issuer())
    token_issuers.add(acme, "beta", issuer())

    with pytest.raises(ConflictError, match="fleet already"):
        token_issuers.add(acme, "acme", issuer())
    for wrong in (
        issuer(name="a/b"),
        issuer(name=""),
        issuer(name="x", issuer="a\nb"),
        issuer(name="x", audience="a" * 513),
        issuer(name="x", leeway_s=-1.0),
        issuer(name="x", leeway_s=601.0),
        replace(issuer(name="x"), keys=()),
    ):
        with pytest.raises(ConfigError):
            token_issuers.add(acme, "acme", wrong)
    for call in (
        lambda: token_issuers.add(acme, "nobody", issuer()),
        lambda: token_issuers.list_all(acme, "nobody"),
        lambda: token_issuers.show(acme, "acme", "other"),
        lambda: token_issuers.remove(acme, "acme", "other"),
        lambda: token_issuers.change(acme, "acme", "other", Changes(issuer="x"), None),
    ):
        with pytest.raises(NotFoundError):
            call()


def test_tenant_has_a_bounded_number_of_keys(acme: AccountStore) -> None:
    """Each may have to be tried on a stranger's token."""
    many = tuple(TokenKey(f"k{number}", public_pem(ES256)) for number in range(KEY_LIMIT - 1))
    token_issuers.add(acme, "acme", replace(issuer(name="many"), keys=many))
    token_issuers.add(acme, "acme", issuer(name="last"))

    with pytest.raises(ConflictError, match=f"expected at most {KEY_LIMIT}"):
        token_issuers.add(acme, "acme", issuer(name="more"))
    with pytest.raises(ConflictError, match="remove old ones"):
        token_issuers.change(acme, "acme", "last", Changes(keys=many), None)
    token_issuers.change(acme, "acme", "many", Changes(keys=many[1:]), None)
    token_issuers.add(acme, "acme", issuer(name="more"))


def test_change_leaves_the_rest(acme: AccountStore, clock: ManualClock) -> None:
    """An empty text lifts a demand; keys of another algorithm are refused."""
    token_issuers.add(acme, "acme", issuer(issuer="a", audience="b", leeway_s=1.0))
    watcher = ChangeWatcher(acme)
    clock.advance(5)

    changed = token_issuers.change(acme, "acme", "fleet", Changes(audience=""), None)

    assert (changed.issuer, changed.audience, changed.leeway_s) == ("a", "", 1.0)
    assert changed.changed_ms - changed.created_ms == 5000
    assert [change.kind for change in watcher.poll()] == [ChangeKind.TOKEN_ISSUER]
    with pytest.raises(ConfigError, match="signs with ES256"):
        token_issuers.change(acme, "acme", "fleet", Changes(keys=issuer("RS256").keys), TokenAlgorithm.RS256)
    again = token_issuers.change(acme, "acme", "fleet", Changes(keys=issuer(number=1).keys), TokenAlgorithm.ES256)
    assert again.keys != changed.keys


def test_removed_issuer_is_gone(acme: AccountStore) -> None:
    token_issuers.add(acme, "acme", issuer())
    watcher = ChangeWatcher(acme)

    token_issuers.remove(acme, "acme", "fleet")

    found = Registry(acme).find_tenant("acme")
    assert found is not None
    assert found.token_issuers == ()
    assert [change.kind for change in watcher.poll()] == [ChangeKind.TOKEN_ISSUER]


def test_deleted_tenant_leaves_no_issuer_to_its_successor(acme: AccountStore) -> None:
    token_issuers.add(acme, "acme", issuer())

    tenants.finish_deletion(acme, tenants.delete(acme, "acme").tenant_id)
    tenants.create(acme, "acme")

    assert token_issuers.list_all(acme, "acme") == []


def test_device_for_tokens_says_so(acme: AccountStore) -> None:
    """No secret is made; any other credential ends it."""
    made = devices.create(acme, "acme", "robot", with_token=True)
    record = Registry(acme).find_device(tenants.show(acme, "acme").id, "robot")

    assert (made.secret, made.device.credential) == (None, CredentialForm.JWT)
    assert record is not None
    assert (record.credential_kind, record.credential) == (CredentialKind.JWT, "")
    assert devices.rotate_secret(acme, "acme", "robot").device.credential is CredentialForm.GENERATED
    assert devices.set_jwt(acme, "acme", "robot").credential is CredentialForm.JWT
    assert devices.show(acme, "acme", "robot").credential is CredentialForm.JWT
