"""Authentication from memory: it lets in whom the whole decision lets in, and leaves everybody else to that."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from twisted.internet.defer import Deferred, succeed

from iothub.testing.clock import ManualClock
from iothub_services.auth.authenticator import Authenticated, Authenticator, AuthSettings, Credentials, Refusal
from iothub_services.auth.failures import FailureSettings
from iothub_services.auth.port import Ban, BanKind, CredentialKind, DeviceRecord, TenantRecord, TenantState
from iothub_services.auth.secrets import MAX_SECRET_BYTES, hash_generated, hash_password

PEPPER = bytes(32)
SECRET = b"correct"
SHOWN = Credentials("acme", "dev1", SECRET, "192.0.2.1", client_id="c")


@dataclass
class OneDevice:
    """The accounts of one tenant with one device."""

    tenant: TenantRecord = field(default_factory=lambda: TenantRecord(1, "acme"))
    device: DeviceRecord = field(default_factory=lambda: DeviceRecord("dev1", hash_generated(SECRET, PEPPER)))

    def find_tenant(self, name: str) -> TenantRecord | None:
        return self.tenant if name == self.tenant.name else None

    def find_device(self, _tenant_id: int, name: str) -> DeviceRecord | None:
        return self.device if name == self.device.name else None

    def find_devices(self, _tenant_id: int, names: Collection[str]) -> dict[str, DeviceRecord]:
        return {name: self.device for name in names if name == self.device.name}


class Observer:
    """Counts."""

    def __init__(self) -> None:
        self.proofs = self.refusals = 0

    def proven(self, _who: Authenticated) -> None:
        self.proofs += 1

    def refused(self, _shown: Credentials, _refusal: Refusal, *, is_ban: bool) -> None:
        del is_ban
        self.refusals += 1

    def store_failed(self, call: str, error: Exception) -> None:
        raise AssertionError(call) from error


class World:
    """An Authenticator that has the accounts in memory."""

    def __init__(
        self, *, tenant: dict[str, Any] | None = None, device: dict[str, Any] | None = None, decides: bool = True
    ) -> None:
        self.clock, self.observer, self.accounts = ManualClock(), Observer(), OneDevice()
        self.accounts.tenant = replace(self.accounts.tenant, **tenant or {})
        self.accounts.device = replace(self.accounts.device, **device or {})
        settings = AuthSettings(failures=FailureSettings(failures=2))
        run: Any = lambda _name, call, *args: succeed(call(*args))  # noqa: E731
        self.auth = Authenticator(self.accounts, run, self.clock, PEPPER, self.observer, settings)
        if decides:
            self.decide(SHOWN)

    def decide(self, shown: Credentials) -> Authenticated | Refusal:
        answers: list[Authenticated | Refusal] = []
        Deferred.fromCoroutine(self.auth.authenticate(shown)).addCallback(answers.append)
        return answers[0]


def test_known_device_with_its_secret_is_let_in_from_memory() -> None:
    """The answer is that of the whole decision, and is counted as one."""
    world = World()

    recalled = world.auth.recall(SHOWN)

    assert recalled is not None
    assert recalled == world.decide(SHOWN)
    assert world.auth.is_current(recalled)
    assert (world.observer.proofs, world.observer.refusals) == (3, 0)


def test_chosen_password_is_recalled_once_it_was_proven() -> None:
    """Not another one, not from a process that has not checked it, and not when the device has a new one."""
    stored = hash_password(SECRET)
    world = World(device={"credential": stored})
    other = World(device={"credential": stored}, decides=False)
    other.decide(replace(SHOWN, secret=b"wrong", address="192.0.2.9"))  # its record is in memory

    recalled = world.auth.recall(SHOWN)

    assert recalled is not None
    assert recalled == world.decide(SHOWN)
    assert (world.observer.proofs, world.observer.refusals) == (3, 0)
    assert world.auth.recall(replace(SHOWN, secret=b"wrong")) is None
    assert other.auth.recall(SHOWN) is None

    world.accounts.device = replace(world.accounts.device, credential=hash_password(b"new"))
    world.auth.invalidate(1, "dev1")
    world.decide(replace(SHOWN, secret=b"new"))

    assert world.auth.recall(SHOWN) is None
    assert world.auth.recall(replace(SHOWN, secret=b"new")) is not None


@pytest.mark.parametrize(
    "shown",
    [
        *(
            Credentials("acme", "dev1", secret, "192.0.2.1")
            for secret in (None, b"", b"wrong", SECRET + b"x", b"x" * (MAX_SECRET_BYTES + 1))
        ),
        Credentials("acme", "dev2", SECRET, "192.0.2.1"),
        Credentials("other", "dev1", SECRET, "192.0.2.1"),
    ],
)
def test_whoever_shows_something_else_is_left_to_the_whole_decision(shown: Credentials) -> None:
    """And there refused: nothing was counted before."""
    world = World()

    assert world.auth.recall(shown) is None
    assert world.observer.refusals == 0
    assert isinstance(world.decide(shown), Refusal)
    assert world.observer.refusals == 1


@pytest.mark.parametrize(
    ("tenant", "device"),
    [
        ({"state": TenantState.SUSPENDED}, {}),
        ({"state": TenantState.DELETING}, {}),
        ({"bans": (Ban(BanKind.DEVICE, "dev1"),)}, {}),
        ({"allowed_networks": ("203.0.113.0/24",)}, {}),
        ({"denied_networks": ("192.0.2.0/24",)}, {}),
        ({}, {"is_enabled": False}),
        ({}, {"credential_kind": CredentialKind.X509}),
        ({}, {"credential_kind": CredentialKind.JWT, "credential": ""}),
    ],
)
def test_account_that_may_not_connect_is_left_to_the_whole_decision(
    tenant: dict[str, Any], device: dict[str, Any]
) -> None:
    """Its record is in memory, and the secret is right."""
    world = World(tenant=tenant, device=device)

    assert world.auth.recall(SHOWN) is None
    assert isinstance(world.decide(SHOWN), Refusal)


def test_device_with_failures_is_left_to_the_whole_decision() -> None:
    """It may be banned, and its success clears them; another address has none."""
    world = World()
    world.decide(Credentials("acme", "dev1", b"wrong", "192.0.2.1"))

    assert world.auth.recall(SHOWN) is None
    assert world.auth.recall(Credentials("acme", "dev1", SECRET, "192.0.2.9")) is not None
    assert isinstance(world.decide(SHOWN), Authenticated)
    assert world.auth.recall(SHOWN) is not None


def test_changed_or_old_record_is_not_used() -> None:
    """A change of the accounts forgets it at once, time in a minute."""
    world = World()
    world.accounts.device = replace(world.accounts.device, credential=hash_generated(b"new", PEPPER))
    world.auth.invalidate(1, "dev1")

    assert world.auth.recall(SHOWN) is None
    assert isinstance(world.decide(SHOWN), Refusal)

    fresh = World()
    fresh.clock.advance(61)
    assert fresh.auth.recall(SHOWN) is None
