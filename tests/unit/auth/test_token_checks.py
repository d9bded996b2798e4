"""Checks of tokens: in threads, shared, bounded, remembered as long as they last."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from iothub.testing.clock import ManualClock
from iothub_services.auth.check_pool import Asker, CheckPool, CheckSettings, PoolFullError, TooManyGuessesError
from iothub_services.auth.passwords import PasswordChecks
from iothub_services.auth.port import TenantRecord
from iothub_services.auth.token_checks import TokenChecks
from iothub_services.auth.token_proof import MAX_TOKEN_BYTES, TokenFault, TokenProof
from tests.support.tokens import issuer, token

PEPPER = bytes(32)
ACME = TenantRecord(1, "acme", token_issuers=(issuer(),))


@dataclass
class Threads:
    """A pool whose calls run when the test says so."""

    calls: list[tuple[Callable[[], Any], Deferred[Any]]] = field(default_factory=list)
    names: list[str] = field(default_factory=list)

    def __call__(self, name: str, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Deferred[Any]:
        answer: Deferred[Any] = Deferred()
        self.names.append(name)
        self.calls.append((lambda: call(*args, **kwargs), answer))
        return answer

    def finish(self) -> None:
        call, answer = self.calls.pop(0)
        answer.callback(call())


class Harness:
    """Token checks and the pool behind them."""

    def __init__(self, **settings: Any) -> None:
        self.clock = ManualClock()
        self.threads = Threads()
        self.pool = CheckPool(self.threads, self.clock, CheckSettings(**settings))
        self.checks = TokenChecks(self.pool, PEPPER)

    def token(self, device: str = "dev1", lasts_s: float = 60.0, **claims: Any) -> bytes:
        return token(sub=device, exp=self.clock.wall() + lasts_s, **claims)

    def begin(self, shown: bytes, device: str = "dev1", tenant: TenantRecord = ACME, source: str = "s") -> list[Any]:
        results: list[Any] = []
        check = self.checks.check(Asker(tenant.id, device, source), tenant, shown)
        Deferred.fromCoroutine(check).addCallbacks(results.append, lambda failure: results.append(failure.value))
        return results

    def check(self, shown: bytes, **asked: Any) -> Any:
        """The answer, with a thread if one is asked for."""
        results = self.begin(shown, **asked)
        while self.threads.calls:
            self.threads.finish()
        return results[0]


@pytest.fixture
def harness() -> Harness:
    return Harness()


def test_token_is_checked_in_the_threads_of_passwords(harness: Harness) -> None:
    """Right and wrong ones."""
    assert isinstance(harness.check(harness.token()), TokenProof)
    assert harness.check(harness.token("dev2")) is TokenFault.SUBJECT
    assert harness.threads.names == ["auth.token"] * 2


def test_same_token_is_checked_once_at_a_time() -> None:
    """Who shares a check takes no place: the pool may be full."""
    harness = Harness(pending=1)
    shown = harness.token()
    results = [harness.begin(shown, source=f"s{number}") for number in range(5)]

    assert len(harness.threads.calls) == 1
    harness.threads.finish()
    assert all(isinstance(result[0], TokenProof) for result in results)


def test_proven_token_is_not_checked_again(harness: Harness) -> None:
    """Another token, device, tenant or version of the tenant is."""
    shown = harness.token()
    harness.check(shown)

    assert isinstance(harness.begin(shown)[0], TokenProof)
    for asked in (
        {"device": "dev2"},
        {"tenant": replace(ACME, id=2)},
        {"tenant": replace(ACME, version=2)},
    ):
        assert harness.begin(shown, **asked) == []
    assert harness.begin(harness.token(lasts_s=61.0)) == []


def test_remembered_token_ends_when_it_ends(harness: Harness) -> None:
    """To the moment, by the wall clock, without a thread; and begins no earlier if the clock is set back."""
    shown = harness.token(nbf=harness.clock.wall())
    harness.check(shown)

    harness.clock.jump_wall(-1)
    assert harness.begin(shown) == [TokenFault.NOT_YET_VALID]
    harness.clock.jump_wall(60.9)
    assert isinstance(harness.begin(shown)[0], TokenProof)
    harness.clock.advance(0.1)
    assert harness.begin(shown) == [TokenFault.EXPIRED]
    assert not harness.threads.calls


def test_removed_issuer_is_forgotten_with_the_version(harness: Harness) -> None:
    """The cache accepts nothing that was refused without it."""
    shown = harness.token()
    harness.check(shown)

    assert harness.check(shown, tenant=replace(ACME, version=2, token_issuers=())) is TokenFault.ALGORITHM


def test_wrong_token_is_never_remembered_as_proven(harness: Harness) -> None:
    wrong = harness.token("dev2")
    harness.check(wrong)

    assert harness.begin(wrong) == []


def test_huge_token_is_not_even_hashed(harness: Harness) -> None:
    """One that just fits is read."""
    assert harness.begin(b"x" * (MAX_TOKEN_BYTES + 1)) == [TokenFault.TOO_LARGE]
    assert not harness.threads.calls
    assert harness.check(b"x" * MAX_TOKEN_BYTES) is TokenFault.MALFORMED


def test_tokens_and_passwords_share_one_room() -> None:
    """A full pool is full for both; a source that guesses at one device is bounded whatever it shows."""
    harness = Harness(pending=2)
    passwords = PasswordChecks(harness.pool)
    harness.begin(harness.token())
    Deferred.fromCoroutine(passwords.check(Asker(1, "human", "s"), "$argon2id$", b"pw"))

    assert harness.pool.is_pressed
    assert isinstance(harness.begin(harness.token("dev3"), device="dev3")[0], PoolFullError)


def test_one_source_cannot_try_many_tokens_at_once(harness: Harness) -> None:
    for lasts_s in (1.0, 2.0):
        harness.begin(harness.token(lasts_s=lasts_s))

    assert isinstance(harness.begin(harness.token(lasts_s=3.0))[0], TooManyGuessesError)
    assert harness.begin(harness.token(lasts_s=3.0), source="other") == []


def test_proof_stands_while_its_issuer_says_the_same(harness: Harness) -> None:
    """Another key beside it changes nothing; its own key gone, other conditions or another name do."""
    proof = harness.check(harness.token())
    trusted = ACME.token_issuers[0]
    more = replace(trusted, keys=(*issuer(number=1).keys, *trusted.keys))

    assert proof.stands((trusted,))
    assert proof.stands((issuer(name="other"), more))
    for others in (
        (),
        (replace(trusted, name="other"),),
        (replace(trusted, keys=issuer(number=1).keys),),
        (replace(trusted, audience="iothub"),),
        (replace(trusted, issuer="https://login.example"),),
        (replace(trusted, leeway_s=1.0),),
    ):
        assert not proof.stands(others)
