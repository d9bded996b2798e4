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


class Desk:
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
def desk() -> Desk:
    return Desk()


def test_token_is_checked_in_the_threads_of_passwords(desk: Desk) -> None:
    """Right and wrong ones."""
    assert isinstance(desk.check(desk.token()), TokenProof)
    assert desk.check(desk.token("dev2")) is TokenFault.SUBJECT
    assert desk.threads.names == ["auth.token"] * 2


def test_same_token_is_checked_once_at_a_time(desk: Desk) -> None:
    shown = desk.token()
    results = [desk.begin(shown, source=f"s{number}") for number in range(5)]

    assert len(desk.threads.calls) == 1
    desk.threads.finish()
    assert all(isinstance(result[0], TokenProof) for result in results)


def test_proven_token_is_not_checked_again(desk: Desk) -> None:
    """Another token, device, tenant or version of the tenant is."""
    shown = desk.token()
    desk.check(shown)

    assert isinstance(desk.begin(shown)[0], TokenProof)
    for asked in (
        {"device": "dev2"},
        {"tenant": replace(ACME, id=2)},
        {"tenant": replace(ACME, version=2)},
    ):
        assert desk.begin(shown, **asked) == []
    assert desk.begin(desk.token(lasts_s=61.0)) == []


def test_remembered_token_ends_when_it_ends(desk: Desk) -> None:
    """To the moment, by the wall clock, without a thread; and begins no earlier if the clock is set back."""
    shown = desk.token(nbf=desk.clock.wall())
    desk.check(shown)

    desk.clock.jump_wall(-1)
    assert desk.begin(shown) == [TokenFault.NOT_YET_VALID]
    desk.clock.jump_wall(60.9)
    assert isinstance(desk.begin(shown)[0], TokenProof)
    desk.clock.advance(0.1)
    assert desk.begin(shown) == [TokenFault.EXPIRED]
    assert not desk.threads.calls


def test_removed_issuer_is_forgotten_with_the_version(desk: Desk) -> None:
    """The cache opens no door that was closed."""
    shown = desk.token()
    desk.check(shown)

    assert desk.check(shown, tenant=replace(ACME, version=2, token_issuers=())) is TokenFault.ALGORITHM


def test_wrong_token_is_never_remembered_as_proven(desk: Desk) -> None:
    wrong = desk.token("dev2")
    desk.check(wrong)

    assert desk.begin(wrong) == []


def test_huge_token_is_not_even_hashed(desk: Desk) -> None:
    assert desk.begin(b"x" * (MAX_TOKEN_BYTES + 1)) == [TokenFault.TOO_LARGE]
    assert not desk.threads.calls


def test_tokens_and_passwords_share_one_room() -> None:
    """A full pool is full for both; a source that guesses at one device is bounded whatever it shows."""
    desk = Desk(pending=2)
    passwords = PasswordChecks(desk.pool)
    desk.begin(desk.token())
    Deferred.fromCoroutine(passwords.check(Asker(1, "human", "s"), "$argon2id$", b"pw"))

    assert desk.pool.is_pressed
    assert isinstance(desk.begin(desk.token("dev3"), device="dev3")[0], PoolFullError)


def test_one_source_cannot_try_many_tokens_at_once(desk: Desk) -> None:
    for lasts_s in (1.0, 2.0):
        desk.begin(desk.token(lasts_s=lasts_s))

    assert isinstance(desk.begin(desk.token(lasts_s=3.0))[0], TooManyGuessesError)
    assert desk.begin(desk.token(lasts_s=3.0), source="other") == []


def test_proof_stands_while_its_issuer_says_the_same(desk: Desk) -> None:
    """Another key beside it changes nothing; its own key gone, other conditions or another name do."""
    proof = desk.check(desk.token())
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
