"""Which failures count towards a ban, whom a change of the accounts disconnects, and what the observer is told."""

from __future__ import annotations

from typing import Any

import pytest

from iothub.base.reasons import Reason
from iothub_services.auth.authenticator import Authenticated, AuthSettings, Credentials
from iothub_services.auth.check_pool import CheckSettings
from iothub_services.auth.directory import DirectorySettings
from iothub_services.auth.failures import FailureSettings
from iothub_services.auth.lru import LruSettings
from iothub_services.auth.port import CredentialKind, DeviceRecord, TenantState
from tests.unit.auth.test_authenticator import Harness, collect

ONE_IS_A_BAN = FailureSettings(failures=1)


@pytest.mark.parametrize(
    ("device", "secret", "tenant"),
    [
        ("dev1", b"correct", "nowhere"),
        ("nobody", b"correct", "acme"),
        ("off", b"correct", "acme"),
        ("dev1", b"wrong", "acme"),
        ("dev1", None, "acme"),
        ("cert", None, "acme"),
        ("token", None, "acme"),
    ],
)
def test_every_failure_of_a_credential_counts(device: str, secret: bytes | None, tenant: str) -> None:
    """Unknown names as well: otherwise a ban would show which names exist."""
    harness = Harness(failures=ONE_IS_A_BAN)
    harness.add("off", harness.accounts.devices["dev1"].credential, is_enabled=False)
    harness.add("cert", "CN=cert", credential_kind=CredentialKind.X509)
    harness.add("token", "dev1", credential_kind=CredentialKind.JWT)

    harness.connect(device, secret, tenant=tenant)

    ((_, is_ban),) = harness.recorder.refusals
    assert is_ban


@pytest.mark.parametrize(("device", "tenant"), [("dev1", "nowhere"), ("off", "acme")])
def test_refusal_of_a_device_that_a_plug_in_proved_counts_too(device: str, tenant: str) -> None:
    harness = Harness(failures=ONE_IS_A_BAN)
    harness.add("off", "", is_enabled=False)

    (outcome,) = collect(harness.auth.vouch(Credentials(tenant, device, None, "192.0.2.1")))

    assert outcome.reason is Reason.BAD_CREDENTIALS
    assert harness.recorder.refusals[0][1]


def test_plug_in_proves_nobody_of_a_tenant_that_is_being_deleted() -> None:
    harness = Harness()
    harness.change(state=TenantState.DELETING)

    (outcome,) = collect(harness.auth.vouch(Credentials("acme", "dev1", None, "192.0.2.1")))

    assert (outcome.reason, outcome.cause) == (Reason.BAD_CREDENTIALS, "unknown_tenant")


def review(harness: Harness, proven: Authenticated) -> Any:
    (outcome,) = collect(harness.auth.review(proven, client_id="c", address="192.0.2.1"))
    return outcome


@pytest.mark.parametrize("change", [{"id": 9}, {"state": TenantState.DELETING}, {"name": "other"}])
def test_device_of_a_tenant_that_is_no_more_has_to_leave(change: dict[str, Any]) -> None:
    """Deleted, being deleted, or made again under the same name; it is told at once."""
    harness = Harness()
    proven = harness.connect()
    harness.change(**change)

    outcome = review(harness, proven)

    assert (outcome.reason, outcome.cause) == (Reason.CREDENTIAL_REVOKED, "unknown_tenant")
    assert outcome.reply_after_s == 0.0


def test_device_without_a_row_stays_when_the_accounts_change() -> None:
    """A plug-in has proven it: the change does not make the proof invalid."""
    harness = Harness()
    (proven,) = collect(harness.auth.vouch(Credentials("acme", "guest", None, "192.0.2.1")))
    harness.change(version=2)

    assert review(harness, proven).device == DeviceRecord("guest", "")


def test_observer_hears_of_every_proof() -> None:
    harness = Harness()
    harness.connect()

    assert harness.recorder.proofs == ["dev1"]


def test_settings_that_are_replaced_hold_from_the_next_failure() -> None:
    """Those of bans and of checks: a pool without a place tells every failure as overload."""
    harness = Harness()

    harness.auth.apply(AuthSettings(checks=CheckSettings(pending=0), failures=ONE_IS_A_BAN))

    assert harness.connect(secret=b"wrong").reason is Reason.OVERLOAD
    assert harness.recorder.refusals == [("wrong_secret", True)]


def test_settings_that_are_replaced_hold_for_what_is_remembered() -> None:
    """A shorter life of records ends the answers in memory: tenants, devices and names that no tenant has."""
    harness = Harness()
    harness.connect()
    harness.connect(tenant="nowhere")
    harness.accounts.questions.clear()
    short = LruSettings(ttl_s=5.0, negative_ttl_s=5.0)

    harness.auth.apply(AuthSettings(directory=DirectorySettings(tenants=short, devices=short)))
    harness.clock.advance(5.0)
    harness.connect()
    harness.connect(tenant="nowhere")

    assert harness.accounts.questions == ["acme", "1/dev1", "nowhere"]


def test_change_of_anything_makes_every_proof_old() -> None:
    harness = Harness()
    proven = harness.connect()

    harness.auth.invalidate_all()

    assert not harness.auth.is_current(proven)
