"""Authentication: who gets in, what the others are told, and what a dead store means."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from twisted.internet.defer import Deferred, fail, succeed

from iothub.base.errors import BackendError
from iothub.base.reasons import Reason
from iothub.testing.clock import ManualClock
from iothub_services.auth import passwords
from iothub_services.auth.authenticator import (
    Authenticated,
    Authenticator,
    AuthSettings,
    Credentials,
    Refusal,
)
from iothub_services.auth.check_pool import FAILED_REPLY_S, CheckSettings
from iothub_services.auth.directory import DirectorySettings, StoreDownError
from iothub_services.auth.failures import FailureSettings
from iothub_services.auth.port import Ban, BanKind, CredentialKind, DeviceRecord, TenantRecord, TenantState
from iothub_services.auth.secrets import hash_generated

PEPPER = bytes(32)
SECRET = b"correct"


@dataclass
class MemoryAccounts:
    """One tenant, some devices, and a count of questions."""

    tenant: TenantRecord = field(default_factory=lambda: TenantRecord(1, "acme"))
    devices: dict[str, DeviceRecord] = field(default_factory=dict)
    questions: list[str] = field(default_factory=list)
    is_down: bool = False

    def find_tenant(self, name: str) -> TenantRecord | None:
        self._ask(name)
        return self.tenant if name == self.tenant.name else None

    def find_device(self, tenant_id: int, name: str) -> DeviceRecord | None:
        self._ask(f"{tenant_id}/{name}")
        return self.devices.get(name) if tenant_id == self.tenant.id else None

    def find_devices(self, tenant_id: int, names: Collection[str]) -> dict[str, DeviceRecord]:
        self._ask(f"{tenant_id}/{','.join(names)}")
        known = self.devices if tenant_id == self.tenant.id else {}
        return {name: known[name] for name in names if name in known}

    def _ask(self, question: str) -> None:
        if self.is_down:
            raise BackendError("down", retryable=True)
        self.questions.append(question)


@dataclass
class Threads:
    """A pool that runs at once, or when `finish` is called."""

    is_held: bool = False
    held: list[tuple[Callable[[], Any], Deferred[Any]]] = field(default_factory=list)

    def __call__(self, name: str, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Deferred[Any]:
        if not self.is_held:
            try:
                return succeed(call(*args, **kwargs))
            except Exception:
                return fail()
        answer: Deferred[Any] = Deferred()
        self.held.append((lambda: call(*args, **kwargs), answer))
        return answer

    def finish(self) -> None:
        call, answer = self.held.pop(0)
        answer.callback(call())


@dataclass
class Recorder:
    """An observer that remembers."""

    refusals: list[tuple[str, bool]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    proofs: list[str] = field(default_factory=list)

    def proven(self, who: Authenticated) -> None:
        self.proofs.append(who.device.name)

    def refused(self, shown: Credentials, refusal: Refusal, *, is_ban: bool) -> None:
        self.refusals.append((refusal.cause, is_ban))

    def store_failed(self, call: str, error: Exception) -> None:
        self.failures.append(call)


class Harness:
    """An Authenticator with everything around it."""

    def __init__(self, **settings: Any) -> None:
        self.clock = ManualClock()
        self.accounts = MemoryAccounts()
        self.threads = Threads()
        self.recorder = Recorder()
        self.auth = Authenticator(
            self.accounts, self.threads, self.clock, PEPPER, self.recorder, AuthSettings(**settings)
        )
        self.add("dev1", hash_generated(SECRET, PEPPER))

    def add(self, name: str, credential: str, **fields: Any) -> None:
        self.accounts.devices[name] = DeviceRecord(name, credential, **fields)

    def change(self, **fields: Any) -> None:
        self.accounts.tenant = replace(self.accounts.tenant, **fields)
        self.auth.invalidate(1)

    def begin(self, device: str = "dev1", secret: bytes | None = SECRET, **fields: Any) -> list[Any]:
        shown = {"tenant": "acme", "address": "192.0.2.1", **fields}
        return collect(self.auth.authenticate(Credentials(device=device, secret=secret, **shown)))

    def connect(self, device: str = "dev1", secret: bytes | None = SECRET, **fields: Any) -> Any:
        (outcome,) = self.begin(device, secret, **fields)
        return outcome


def collect(coroutine: Any) -> list[Any]:
    results: list[Any] = []
    Deferred.fromCoroutine(coroutine).addCallbacks(results.append, lambda failure: results.append(failure.value))
    return results


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passwords, "verify_password", lambda password, stored: stored == f"is {password.decode()}")


def test_right_secret_gets_in_and_is_answered_from_memory_afterwards() -> None:
    """Two questions to the store for the first CONNECT, none for the next."""
    harness = Harness()

    first = harness.connect()
    second = harness.connect()

    assert isinstance(first, Authenticated)
    assert first.device.name == "dev1"
    assert harness.auth.is_current(second)
    assert harness.accounts.questions == ["acme", "1/dev1"]


def test_chosen_password_is_proven_in_the_pool() -> None:
    """And a wrong one is not."""
    harness = Harness()
    harness.add("human", "is pw")

    assert isinstance(harness.connect("human", b"pw"), Authenticated)
    assert harness.connect("human", b"no").reason is Reason.BAD_CREDENTIALS


def test_malformed_username_is_told_without_what_it_says() -> None:
    """Nobody is asked, nothing is counted for a ban: it names nobody. It may be a secret in the wrong place, so it is in no log."""
    harness = Harness(failures=FailureSettings(failures=1))
    for _ in range(3):
        harness.auth.refuse_nameless(Credentials("", "", None, "192.0.2.1", client_id="c"))

    assert harness.recorder.refusals == [("malformed_username", False)] * 3
    assert harness.accounts.questions == []


def test_unknown_tenant_device_wrong_secret_and_disabled_are_indistinguishable() -> None:
    """One Refusal for all; only the log knows the cause, and the tenant, if there is one."""
    harness = Harness()
    harness.add("off", hash_generated(SECRET, PEPPER), is_enabled=False)
    harness.add("human", "is pw")
    harness.add("cert", "CN=cert", credential_kind=CredentialKind.X509)

    refusals = [
        harness.connect(tenant="nobody"),
        harness.connect("nobody"),
        harness.connect(secret=b"wrong"),
        harness.connect(secret=None),
        harness.connect(secret=b""),
        harness.connect(secret=b"x" * 2000),
        harness.connect("off"),
        harness.connect("human", b"wrong"),
        harness.connect("cert", SECRET),
    ]

    assert {(refusal.reason, refusal.reply_after_s) for refusal in refusals} == {
        (Reason.BAD_CREDENTIALS, FAILED_REPLY_S)
    }
    assert [refusal.tenant_id for refusal in refusals] == [0] + [1] * 8
    assert [cause for cause, _ in harness.recorder.refusals] == [
        "unknown_tenant",
        "unknown_device",
        "wrong_secret",
        "no_secret",
        "no_secret",
        "no_secret",
        "device_disabled",
        "wrong_secret",
        "wrong_certificate",
    ]


def test_absent_secret_proves_nothing_even_for_an_empty_credential() -> None:
    """Absent is not empty (CVE-2016-9877)."""
    harness = Harness()
    harness.add("none", "")

    for secret in (None, b"", b"x"):
        assert isinstance(harness.connect("none", secret), Refusal)


def test_certificate_subject_must_be_equal() -> None:
    """Byte by byte; a secret does not replace it."""
    harness = Harness()
    harness.add("cert", "CN=cert,O=acme", credential_kind=CredentialKind.X509)

    assert isinstance(harness.connect("cert", None, certificate_subject="CN=cert,O=acme"), Authenticated)
    for subject in (None, "", "CN=cert", "CN=cert,O=acme\0", "cn=cert,o=acme"):
        assert isinstance(harness.connect("cert", None, certificate_subject=subject), Refusal)


def test_common_name_is_compared_alone() -> None:
    """Whatever else the subject says, and when only the common name is known; several names are none."""
    harness = Harness()
    harness.add("cert", "dev1", credential_kind=CredentialKind.X509)

    for subject in ("CN=dev1", "CN=dev1,O=Acme", "=dev1"):
        assert isinstance(harness.connect("cert", None, certificate_subject=subject), Authenticated)
    for subject in ("dev1", "CN=dev2", "O=dev1", "CN=dev1,CN=dev2", "=dev2", "=", "CN=dev1\0", "CN=O\\=dev1"):
        assert isinstance(harness.connect("cert", None, certificate_subject=subject), Refusal)


def test_whole_subject_is_not_proven_by_a_common_name() -> None:
    """A proxy that tells a common name may tell anything after it."""
    harness = Harness()
    harness.add("cert", "CN=dev1,O=Acme", credential_kind=CredentialKind.X509)

    for subject in ("=dev1", "=CN=dev1,O=Acme", "CN=dev1\\,O\\=Acme", "O=Acme,CN=dev1"):
        assert isinstance(harness.connect("cert", None, certificate_subject=subject), Refusal)


def test_suspended_tenant_says_so_only_to_a_proven_device() -> None:
    """Nobody learns from outside that a tenant exists."""
    harness = Harness()
    harness.change(state=TenantState.SUSPENDED)

    assert harness.connect().reason is Reason.TENANT_SUSPENDED
    assert harness.connect(secret=b"wrong").reason is Reason.BAD_CREDENTIALS
    harness.change(state=TenantState.DELETING)
    assert harness.connect().reason is Reason.BAD_CREDENTIALS


def test_networks_and_bans_keep_a_proven_device_out() -> None:
    """By address, device and Client Identifier."""
    harness = Harness()
    harness.change(denied_networks=("192.0.2.0/24",))
    assert harness.connect().reason is Reason.ADDRESS_DENIED
    harness.change(denied_networks=(), bans=(Ban(BanKind.CLIENT_ID, "evil"),))
    assert harness.connect(client_id="evil").reason is Reason.BANNED
    assert isinstance(harness.connect(client_id="good"), Authenticated)
    harness.change(bans=(Ban(BanKind.DEVICE, "dev1", until=harness.clock.wall() + 5),))
    assert harness.connect().reason is Reason.BANNED


def test_repeated_failures_ban_even_the_right_secret_for_a_while() -> None:
    """The tenth failure is told as a ban; unknown names count alike; others are not touched."""
    harness = Harness(failures=FailureSettings(failures=3))
    for _ in range(3):
        harness.connect(secret=b"wrong")
        harness.connect("nobody")

    assert harness.connect().reason is Reason.BAD_CREDENTIALS
    assert [is_ban for _, is_ban in harness.recorder.refusals[:6]] == [False] * 4 + [True] * 2
    assert [cause for cause, _ in harness.recorder.refusals[6:]] == ["failure_ban"]
    assert isinstance(harness.connect(address="192.0.2.2"), Authenticated)
    harness.clock.advance(900)
    assert isinstance(harness.connect(), Authenticated)


@pytest.mark.parametrize("plan", ["standard", "unlimited", "small"])
def test_failures_ban_on_every_plan(plan: str) -> None:
    """A plan says how much somebody may use, not how often a password may be guessed."""
    harness = Harness(failures=FailureSettings(failures=1))
    harness.change(plan=plan, plan_limits="")
    harness.connect(secret=b"wrong")

    assert harness.connect().reason is Reason.BAD_CREDENTIALS


def test_success_clears_failures() -> None:
    """Typing errors of the past do not add up."""
    harness = Harness(failures=FailureSettings(failures=2))
    for _ in range(5):
        harness.connect(secret=b"wrong")
        assert isinstance(harness.connect(), Authenticated)


def test_dead_store_refuses_who_is_not_in_memory() -> None:
    """Cached records live out their age; everything else is unavailable."""
    harness = Harness()
    harness.add("dev2", hash_generated(SECRET, PEPPER))
    harness.connect()
    harness.accounts.is_down = True

    assert isinstance(harness.connect(), Authenticated)
    assert harness.connect("dev2").reason is Reason.SERVER_UNAVAILABLE
    assert harness.connect(tenant="other").reason is Reason.SERVER_UNAVAILABLE
    assert harness.recorder.failures == ["accounts.device", "accounts.tenant"]
    harness.clock.advance(61)
    assert harness.connect().reason is Reason.SERVER_UNAVAILABLE
    harness.accounts.is_down = False
    assert isinstance(harness.connect(), Authenticated)


def test_dead_store_neither_counts_nor_bans() -> None:
    """An outage is nobody's failure."""
    harness = Harness(failures=FailureSettings(failures=1))
    harness.accounts.is_down = True
    harness.connect()
    harness.accounts.is_down = False

    assert isinstance(harness.connect(), Authenticated)


def test_change_is_applied_at_once() -> None:
    """A revoked secret ends with `invalidate`, not with the age of a record; so does an absence."""
    harness = Harness()
    harness.connect()
    harness.connect("dev2")
    harness.add("dev1", hash_generated(b"new", PEPPER))
    harness.add("dev2", hash_generated(SECRET, PEPPER))
    assert isinstance(harness.connect(), Authenticated)

    harness.auth.invalidate(1, "dev1")
    assert isinstance(harness.connect(), Refusal)
    assert isinstance(harness.connect(secret=b"new"), Authenticated)
    assert isinstance(harness.connect("dev2"), Refusal)
    harness.auth.invalidate(1)
    assert isinstance(harness.connect("dev2"), Authenticated)


def test_change_during_a_check_is_not_missed() -> None:
    """A password proven against a credential that was replaced meanwhile does not get in."""
    harness = Harness()
    harness.add("human", "is pw")
    harness.connect("human", b"no")
    harness.threads.is_held = True
    outcome = harness.begin("human", b"pw")
    harness.add("human", "is other")
    harness.auth.invalidate(1, "human")

    harness.threads.is_held = False
    harness.threads.finish()

    assert isinstance(outcome[0], Refusal)


def test_record_read_before_a_change_is_not_kept() -> None:
    """The answer of a question asked before a change is neither used nor cached."""
    harness = Harness()
    harness.threads.is_held = True
    outcome = harness.begin(secret=b"new")
    call, answer = harness.threads.held.pop()
    old = call()
    harness.accounts.tenant = replace(harness.accounts.tenant, state=TenantState.SUSPENDED)
    harness.add("dev1", hash_generated(b"new", PEPPER))
    harness.auth.invalidate(1)
    harness.threads.is_held = False
    answer.callback(old)

    assert outcome[0].reason is Reason.TENANT_SUSPENDED


def test_accounts_that_never_stop_changing_let_nobody_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every answer is old when it comes: that is nobody's failure, and the client may try again."""
    harness = Harness(failures=FailureSettings(failures=1))
    find = harness.accounts.find_device

    def find_and_change(tenant_id: int, name: str) -> DeviceRecord | None:
        harness.auth.invalidate(tenant_id, name)
        return find(tenant_id, name)

    monkeypatch.setattr(harness.accounts, "find_device", find_and_change)

    assert harness.connect().reason is Reason.SERVER_UNAVAILABLE
    assert harness.recorder.refusals == [("accounts_changing", False)]


def test_device_that_a_plug_in_proved_is_not_let_in_by_what_was_read_before_a_change() -> None:
    """The tenant was suspended while its record was on its way: the old one decides nothing."""
    harness = Harness()
    harness.threads.is_held = True
    outcome = collect(harness.auth.vouch(Credentials("acme", "dev1", None, "192.0.2.1")))
    call, answer = harness.threads.held.pop()
    old = call()
    harness.threads.is_held = False
    harness.change(state=TenantState.SUSPENDED)

    answer.callback(old)

    assert outcome[0].reason is Reason.TENANT_SUSPENDED


def test_stamp_of_a_proven_device_ends_with_the_next_change() -> None:
    """The caller asks again before it touches a session."""
    harness = Harness()
    proven = harness.connect()
    harness.auth.invalidate(2)
    assert harness.auth.is_current(proven)
    harness.auth.invalidate(1, "other")
    assert not harness.auth.is_current(proven)


def test_full_password_pool_refuses_known_and_unknown_alike() -> None:
    """While checks cannot be taken on, every failure is told as overload; proven ones still get in."""
    harness = Harness(checks=CheckSettings(pending=1))
    harness.add("human", "is pw")
    harness.connect()
    harness.connect("human", b"x")
    harness.connect("nobody")
    harness.threads.is_held = True
    harness.begin("human", b"pw")

    refusals = [harness.connect("human", b"y"), harness.connect("nobody"), harness.connect(secret=b"wrong")]

    assert {refusal.reason for refusal in refusals} == {Reason.OVERLOAD}
    assert [refusal.cause for refusal in refusals] == ["password_pool_full", "unknown_device", "wrong_secret"]
    assert isinstance(harness.connect(), Authenticated)


def test_one_guess_too_many_at_once_counts_as_a_failure() -> None:
    """It is refused without a check, and is told from a wrong password in the log alone."""
    harness = Harness(checks=CheckSettings(guesses=1), failures=FailureSettings(failures=2))
    harness.add("human", "is pw")
    harness.connect("human", b"x")
    harness.threads.is_held = True
    harness.begin("human", b"y")

    refusal = harness.connect("human", b"z")

    assert refusal.reason is Reason.BAD_CREDENTIALS
    assert harness.recorder.refusals == [("wrong_secret", False), ("too_many_guesses", True)]


def test_review_tells_who_may_stay() -> None:
    """After a change: credential, state, ban; a dead store changes nothing."""
    harness = Harness()
    proven = harness.connect()

    def review() -> Any:
        (outcome,) = collect(harness.auth.review(proven, client_id="c1", address="192.0.2.1"))
        return outcome

    harness.change(version=2)
    assert review().tenant.version == 2
    harness.change(state=TenantState.SUSPENDED)
    assert review().reason is Reason.TENANT_SUSPENDED
    harness.change(state=TenantState.ACTIVE, bans=(Ban(BanKind.CLIENT_ID, "c1"),))
    assert review().reason is Reason.BANNED
    harness.change(bans=())
    harness.accounts.is_down = True
    assert isinstance(review(), StoreDownError)
    harness.accounts.is_down = False
    harness.add("dev1", hash_generated(SECRET, PEPPER))
    harness.auth.invalidate(1, "dev1")
    assert review().reason is Reason.CREDENTIAL_REVOKED
    harness.change(id=9)
    assert review().reason is Reason.CREDENTIAL_REVOKED


def test_too_many_that_wait_for_the_accounts_have_a_cause_of_their_own() -> None:
    """The accounts answer: whoever reads the log need not look for what is wrong with them."""
    harness = Harness(directory=DirectorySettings(loads=1, few_loads=0))
    harness.connect()
    harness.threads.is_held = True
    harness.begin("made-up")

    refusal = harness.connect("nobody")

    assert (refusal.reason, refusal.cause) == (Reason.SERVER_UNAVAILABLE, "accounts_busy")
    assert harness.recorder.failures == []


def test_review_waits_for_no_flood_of_other_questions() -> None:
    """Whoever asks for made-up names must not keep a revoked device connected."""
    harness = Harness(directory=DirectorySettings(loads=1, asked=1))
    proven = harness.connect()
    harness.threads.is_held = True
    harness.begin("made-up")
    harness.threads.is_held = False
    harness.change(state=TenantState.SUSPENDED)

    (outcome,) = collect(harness.auth.review(proven, client_id="c1", address="192.0.2.1"))

    assert outcome.reason is Reason.TENANT_SUSPENDED


def test_review_closes_the_predecessor_of_a_device_that_shows_the_same() -> None:
    """Deleted and made anew between two looks: a certificate or a token lets in both."""
    harness = Harness()
    harness.add("dev2", "CN=dev2", credential_kind=CredentialKind.X509, id=4)
    proven = harness.connect("dev2", None, certificate_subject="CN=dev2")
    harness.add("dev2", "CN=dev2", credential_kind=CredentialKind.X509, id=5)
    harness.auth.invalidate(1, "dev2")

    (outcome,) = collect(harness.auth.review(proven, client_id="c1", address="192.0.2.1"))

    assert outcome.reason is Reason.CREDENTIAL_REVOKED


def test_secrets_do_not_show_in_a_log() -> None:
    """A record that is printed by mistake tells nothing."""
    shown = Credentials("acme", "dev1", b"hush-hush", "192.0.2.1")

    assert "hush" not in repr(shown)
    assert "hush" not in repr(DeviceRecord("dev1", "hush"))
