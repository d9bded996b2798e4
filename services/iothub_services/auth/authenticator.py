"""Authentication: tenant, device and credential, checked against cache or store, and refused without a cause.

Knows no CONNECT packet, no session and no SQL. What may be done (`policies`) and how long a failed CONNECT waits for its answer
are the caller's next steps; `Refusal` carries the figures.

Theory. An unknown tenant, an unknown or disabled device and a wrong secret end in the same Refusal. A state of the account
(suspended, banned, address) is revealed only to a client that has proven the credential. When the store is down, cached records are
used until they expire; everything else is refused as unavailable.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from iothub.base.clock import Clock
from iothub.base.distinguished_names import fits
from iothub.base.reasons import Reason
from iothub.base.values import value
from iothub_services.auth.bans import find_ban, is_address_permitted
from iothub_services.auth.check_pool import (
    FAILED_REPLY_S,
    Asker,
    CheckPool,
    CheckSettings,
    PoolFullError,
    TooManyGuessesError,
)
from iothub_services.auth.directory import Directory, DirectorySettings, Shared, StoreDownError
from iothub_services.auth.failures import Failures, FailureSettings, source_of
from iothub_services.auth.passwords import PasswordChecks
from iothub_services.auth.port import Accounts, CredentialKind, DeviceRecord, Run, TenantRecord, TenantState
from iothub_services.auth.secrets import MAX_SECRET_BYTES, is_acceptable, is_generated, verify_generated
from iothub_services.auth.token_checks import TokenChecks
from iothub_services.auth.token_proof import TokenFault, TokenProof

_ATTEMPTS = 5  # how often a decision is made anew because the accounts changed meanwhile


@dataclass(frozen=True, slots=True)
class AuthSettings:
    """Bounds of caches, pools and failures."""

    directory: DirectorySettings = field(default_factory=DirectorySettings)
    checks: CheckSettings = field(default_factory=CheckSettings)
    failures: FailureSettings = field(default_factory=FailureSettings)


@value
class Credentials:
    """What a CONNECT shows of its sender. `address`: the IP address; `certificate_subject`: what the listener verified.

    Its form: `iothub.base.distinguished_names`.
    """

    tenant: str
    device: str
    secret: bytes | None = field(repr=False)
    address: str
    certificate_subject: str | None = None
    client_id: str = ""


@value
class Authenticated:
    """A proven device. `stamp` shows whether the accounts have changed since (`Authenticator.is_current`).

    `token`: what proved it, if that was one; `ends_at`: when it stops to, in monotonic seconds, whatever the wall clock does meanwhile.
    """

    tenant: TenantRecord
    device: DeviceRecord
    stamp: int
    token: TokenProof | None = None
    ends_at: float = math.inf


@dataclass(frozen=True, slots=True)
class Refusal:
    """A refusal: `reason` for the client, `cause` for log and metric only, `reply_after_s` when to answer, counted from arrival."""

    reason: Reason
    cause: str
    reply_after_s: float = FAILED_REPLY_S
    tenant_id: int = 0  # 0: no tenant is known


@dataclass(frozen=True, slots=True)
class Examined:
    """What would become of a CONNECT whose credential is right. `cause`: of its refusal, empty: nothing speaks against it.

    `tenant`, `device`: as far as they are known; a tenant that is being deleted is not.
    """

    tenant: TenantRecord | None
    device: DeviceRecord | None
    reason: Reason | None = None
    cause: str = ""


@dataclass(frozen=True, slots=True)
class Current:
    """A tenant and some of its devices as they are after a change. `stamp`: see `Authenticated`; `tenant`: None if there is no such tenant."""

    stamp: int
    tenant: TenantRecord | None
    devices: Mapping[str, DeviceRecord]


class AuthObserver(Protocol):
    """Receives the results of authentication, for log, metric and event."""

    def proven(self, who: Authenticated) -> None:
        """A credential was right, and nothing else spoke against its device."""

    def refused(self, shown: Credentials, refusal: Refusal, *, is_ban: bool) -> None:
        """A CONNECT was refused; `is_ban`: this failure was one too many and began a ban."""

    def store_failed(self, call: str, error: Exception) -> None:
        """The accounts could not be read."""


class _Refused(Exception):  # noqa: N818  not an error: the way out of a decision
    def __init__(self, reason: Reason, cause: str, *, is_counted: bool = False) -> None:
        super().__init__(cause)
        self.reason = reason
        self.cause = cause
        self.is_counted = is_counted


OnBan = Callable[[str, str, str, float], None]
"""Gets tenant, device, source (`source_of`) and the seconds that the ban lasts."""

_Prove = Callable[[Credentials, TenantRecord | None], Awaitable[Authenticated]]


class Authenticator:
    """Authenticates the devices of all tenants; must be used on the reactor thread."""

    def __init__(
        self,
        accounts: Accounts,
        run: Run,
        clock: Clock,
        pepper: bytes,
        observer: AuthObserver,
        settings: AuthSettings,
        shared: Shared | None = None,
        on_ban: OnBan | None = None,
    ) -> None:
        """`shared`: the second level of the directory's cache, if there is one. `on_ban`: hears of the bans that are made here."""
        self._clock = clock
        self._pepper = pepper
        self._observer = observer
        self._on_ban = on_ban
        self.directory = Directory(accounts, run, clock, observer.store_failed, settings.directory, shared)
        self.checks = CheckPool(run, clock, settings.checks)
        self._passwords = PasswordChecks(self.checks)
        self._tokens = TokenChecks(self.checks, pepper)
        self.failures = Failures(settings.failures, clock)

    def apply(self, settings: AuthSettings) -> None:
        """Use other bounds from now on."""
        self.directory.apply(settings.directory)
        self.checks.apply(settings.checks)
        self.failures.apply(settings.failures)

    def recall(self, shown: Credentials) -> Authenticated | None:
        """Authenticate from memory a device that shows its secret: a generated one, or a password that was proven before.

        None: `authenticate` decides.

        What is returned here, that returns as well: whoever is not known, or has failed before, or is refused, is looked at there.
        """
        known = self.directory.recall(shown.tenant, shown.device)
        secret = shown.secret
        if known is None or secret is None or not 0 < len(secret) <= MAX_SECRET_BYTES:
            return None
        tenant, device = known
        if tenant.bans or tenant.allowed_networks or tenant.denied_networks or tenant.state is not TenantState.ACTIVE:
            return None
        if not device.is_enabled or device.credential_kind is not CredentialKind.SECRET:
            return None
        if self.failures and self.failures.has_any(shown.tenant, shown.device, source_of(shown.address)):
            return None
        if not self._is_known(shown, tenant, device, secret):
            return None
        proven = Authenticated(tenant, device, self.directory.stamp(tenant.id))
        self._observer.proven(proven)
        return proven

    async def authenticate(self, shown: Credentials) -> Authenticated | Refusal:
        """Return the proven device, or why not."""
        try:
            self._check_failures(shown)
        except _Refused as banned:
            return self._refuse(shown, None, banned, self.checks.reply_after_s())
        answer = await self._decide(shown, self._prove)
        if isinstance(answer, Authenticated):
            self.failures.clear(shown.tenant, shown.device, source_of(shown.address))
        return answer

    async def examine(self, shown: Credentials, *, is_connected: bool = False) -> Examined:
        """Decide as `authenticate` does, but for the credential: no secret is tested, no failure is counted and nobody is notified.

        `is_connected`: only what concerns a device that has connected before: no ban and no address.

        Raises:
            StoreDownError: the accounts cannot be read.
        """
        tenant: TenantRecord | None = None
        device: DeviceRecord | None = None
        try:
            if not is_connected:
                self._check_failures(shown)
            tenant = _existing(await self.directory.tenant(shown.tenant))
            device = await self._existing_device(tenant, shown.device)
            if not is_connected:
                _check_certificate_shown(shown, device)
            _check_enabled(device)
            if is_connected:
                _check_active(tenant)
            else:
                self._check_standing(tenant, device, shown.client_id, shown.address)
        except _Refused as refused:
            return Examined(tenant, device, refused.reason, refused.cause)
        return Examined(tenant, device)

    def refuse_nameless(self, shown: Credentials) -> Refusal:
        """Refuse a username that names no device: there is nothing to look up or to ban. `shown` must not have it: it may be a misplaced secret."""
        refused = _Refused(Reason.BAD_CREDENTIALS, "malformed_username")
        return self._refuse(shown, None, refused, self.checks.reply_after_s())

    async def vouch(self, credentials: Credentials) -> Authenticated | Refusal:
        """Check only the account's state: a plug-in has proven the device.

        A device that has no row is one without groups, rules and limits of its own.
        """
        return await self._decide(credentials, self._stand_for)

    async def review(self, proven: Authenticated, *, client_id: str, address: str) -> Authenticated | Refusal:
        """Check a connected device again after a change of the accounts: may it stay?

        Raises:
            StoreDownError: the accounts cannot be read; ask again later, the device stays as it is.
        """
        current = await self.current(proven.tenant, (proven.device.name,))
        return self.judge(proven, current, client_id=client_id, address=address)

    async def current(self, tenant: TenantRecord, devices: Collection[str]) -> Current:
        """Read anew what `judge` needs for connected devices, MOST_DEVICES at most: all in one question. Raises StoreDownError, as `review`."""
        while True:
            stamp = self.directory.stamp(tenant.id)
            present = await self.directory.tenant(tenant.name, is_urgent=True)
            if present is None or present.id != tenant.id or present.state is TenantState.DELETING:
                return Current(stamp, None, {})
            found = await self.directory.devices(present, devices)
            if stamp == self.directory.stamp(tenant.id):
                return Current(stamp, present, found)

    def judge(
        self, proven: Authenticated, current: Current, *, client_id: str, address: str
    ) -> Authenticated | Refusal:
        """Say whether a connected device, one of those that `current` was asked for, may stay."""
        tenant, device = current.tenant, current.devices.get(proven.device.name)
        try:
            if tenant is None:
                raise _Refused(Reason.CREDENTIAL_REVOKED, "unknown_tenant")
            if device is None and proven.device == _without_row(proven.device.name):
                device = proven.device  # proven by a plug-in: a change of the accounts does not make the proof invalid
            if device is None or not device.is_enabled or _credential(device) != _credential(proven.device):
                raise _Refused(Reason.CREDENTIAL_REVOKED, "credential_changed")
            if proven.token is not None and not proven.token.stands(tenant.token_issuers):
                raise _Refused(Reason.CREDENTIAL_REVOKED, "token_issuer_changed")
            self._check_standing(tenant, device, client_id, address)
        except _Refused as refused:
            return Refusal(refused.reason, refused.cause, 0.0)
        return Authenticated(tenant, device, current.stamp, proven.token, proven.ends_at)

    def is_current(self, proven: Authenticated) -> bool:
        """Say whether nothing of the tenant has changed since; if not, authenticate again before the session is touched."""
        return self.directory.stamp(proven.tenant.id) == proven.stamp

    def invalidate(self, tenant_id: int, device: str | None = None) -> None:
        """The accounts have changed: a device's own record, or (None) anything of the tenant, its coming into being included."""
        self.directory.invalidate(tenant_id, device)

    def invalidate_all(self) -> None:
        """The accounts may have changed in any way."""
        self.directory.invalidate_all()

    async def _decide(self, shown: Credentials, prove: _Prove) -> Authenticated | Refusal:
        """Decide by the present accounts: a record that was read before a change is not used."""
        reply_after_s = self.checks.reply_after_s()
        tenant: TenantRecord | None = None
        try:
            for _ in range(_ATTEMPTS):
                changes = self.directory.changes
                tenant = await self.directory.tenant(shown.tenant)
                proven = await prove(shown, tenant)
                if changes == self.directory.changes:
                    self._observer.proven(proven)
                    return proven
            raise _Refused(Reason.SERVER_UNAVAILABLE, "accounts_changing")
        except StoreDownError as error:
            return self._refuse(shown, tenant, _Refused(Reason.SERVER_UNAVAILABLE, error.cause), reply_after_s)
        except _Refused as refused:
            return self._refuse(shown, tenant, refused, reply_after_s)

    async def _stand_for(self, shown: Credentials, tenant: TenantRecord | None) -> Authenticated:
        tenant = _existing(tenant)
        stamp = self.directory.stamp(tenant.id)
        device = await self.directory.device(tenant, shown.device) or _without_row(shown.device)
        _check_enabled(device)
        self._check_standing(tenant, device, shown.client_id, shown.address)
        return Authenticated(tenant, device, stamp)

    async def _prove(self, shown: Credentials, tenant: TenantRecord | None) -> Authenticated:
        tenant = _existing(tenant)
        stamp = self.directory.stamp(tenant.id)
        device = await self._existing_device(tenant, shown.device)
        token = await self._check_credential(shown, tenant, device)
        _check_enabled(device)
        self._check_standing(tenant, device, shown.client_id, shown.address)
        if token is None:
            return Authenticated(tenant, device, stamp)
        lasts_s = token.ends_at - self._clock.wall()
        return Authenticated(tenant, device, stamp, token, self._clock.monotonic() + lasts_s)

    def _check_failures(self, shown: Credentials) -> None:
        if self.failures.is_banned(shown.tenant, shown.device, source_of(shown.address)):
            raise _Refused(Reason.BAD_CREDENTIALS, "failure_ban")

    async def _existing_device(self, tenant: TenantRecord, name: str) -> DeviceRecord:
        device = await self.directory.device(tenant, name)
        if device is None:
            raise _Refused(Reason.BAD_CREDENTIALS, "unknown_device", is_counted=True)
        return device

    async def _check_credential(
        self, shown: Credentials, tenant: TenantRecord, device: DeviceRecord
    ) -> TokenProof | None:
        """Return the proof if it is a token's, which ends some time."""
        if device.credential_kind is CredentialKind.JWT:
            return await self._check_token(shown, tenant, device)
        if device.credential_kind is CredentialKind.X509:
            _check_certificate_shown(shown, device)
            if not fits(device.credential, shown.certificate_subject or ""):
                raise _wrong_certificate()
            return None
        secret = shown.secret
        if secret is None or not is_acceptable(secret):
            raise _Refused(Reason.BAD_CREDENTIALS, "no_secret", is_counted=True)
        if not await self._is_right(shown, tenant, device, secret):
            raise _Refused(Reason.BAD_CREDENTIALS, "wrong_secret", is_counted=True)
        return None

    async def _check_token(self, shown: Credentials, tenant: TenantRecord, device: DeviceRecord) -> TokenProof:
        if not shown.secret:
            raise _Refused(Reason.BAD_CREDENTIALS, "no_secret", is_counted=True)
        asker = Asker(tenant.id, device.name, source_of(shown.address))
        with _refusing_what_is_too_much():
            answer = await self._tokens.check(asker, tenant, shown.secret)
        if isinstance(answer, TokenFault):
            raise _Refused(Reason.BAD_CREDENTIALS, answer.value, is_counted=answer.is_a_guess)
        return answer

    def _is_known(self, shown: Credentials, tenant: TenantRecord, device: DeviceRecord, secret: bytes) -> bool:
        if is_generated(device.credential):
            return verify_generated(secret, device.credential, self._pepper)
        asker = Asker(tenant.id, device.name, source_of(shown.address))
        return self._passwords.recall(asker, device.credential, secret)

    async def _is_right(self, shown: Credentials, tenant: TenantRecord, device: DeviceRecord, secret: bytes) -> bool:
        if is_generated(device.credential):
            return verify_generated(secret, device.credential, self._pepper)
        asker = Asker(tenant.id, device.name, source_of(shown.address))
        with _refusing_what_is_too_much():
            return await self._passwords.check(asker, device.credential, secret)

    def _check_standing(self, tenant: TenantRecord, device: DeviceRecord, client_id: str, address: str) -> None:
        _check_active(tenant)
        if not is_address_permitted(address, allowed=tenant.allowed_networks, denied=tenant.denied_networks):
            raise _Refused(Reason.ADDRESS_DENIED, "address_denied")
        now = self._clock.wall()
        if find_ban(tenant.bans, device=device.name, client_id=client_id, address=address, now=now):
            raise _Refused(Reason.BANNED, "banned")

    def _refuse(
        self, shown: Credentials, tenant: TenantRecord | None, refused: _Refused, reply_after_s: float
    ) -> Refusal:
        is_ban = False
        if refused.is_counted:
            source = source_of(shown.address)
            is_ban = self.failures.count(shown.tenant, shown.device, source)
            if is_ban and self._on_ban is not None:
                self._on_ban(shown.tenant, shown.device, source, self.failures.settings.ban_s)
        reason = refused.reason
        if reason is Reason.BAD_CREDENTIALS and self.checks.is_pressed:
            reason = Reason.OVERLOAD  # as for a device whose password would have to be checked now
        refusal = Refusal(reason, refused.cause, reply_after_s, 0 if tenant is None else tenant.id)
        self._observer.refused(shown, refusal, is_ban=is_ban)
        return refusal


@contextmanager
def _refusing_what_is_too_much() -> Iterator[None]:
    try:
        yield
    except PoolFullError:
        raise _Refused(Reason.OVERLOAD, "password_pool_full") from None
    except TooManyGuessesError:
        raise _Refused(Reason.BAD_CREDENTIALS, "too_many_guesses", is_counted=True) from None


def _existing(tenant: TenantRecord | None) -> TenantRecord:
    if tenant is None or tenant.state is TenantState.DELETING:
        raise _Refused(Reason.BAD_CREDENTIALS, "unknown_tenant", is_counted=True)
    return tenant


def _check_active(tenant: TenantRecord) -> None:
    if tenant.state is TenantState.SUSPENDED:
        raise _Refused(Reason.TENANT_SUSPENDED, "tenant_suspended")


def _check_enabled(device: DeviceRecord) -> None:
    if not device.is_enabled:
        raise _Refused(Reason.BAD_CREDENTIALS, "device_disabled", is_counted=True)


def _check_certificate_shown(shown: Credentials, device: DeviceRecord) -> None:
    """A device with a certificate needs a listener that asks for one."""
    if device.credential_kind is CredentialKind.X509 and not shown.certificate_subject:
        raise _wrong_certificate()


def _wrong_certificate() -> _Refused:
    return _Refused(Reason.BAD_CREDENTIALS, "wrong_certificate", is_counted=True)


def _without_row(name: str) -> DeviceRecord:
    """Return what stands for a device that a plug-in lets in and the accounts do not know."""
    return DeviceRecord(name, "")


def _credential(device: DeviceRecord) -> tuple[int, CredentialKind, str]:
    """What must not change under a connected device. Another one of its name may be let in by the same certificate or token."""
    return device.id, device.credential_kind, device.credential
