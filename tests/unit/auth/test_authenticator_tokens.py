"""Devices that show a token: whom it lets in and until when, why one is refused, and what a change of its issuer ends."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from iothub.base.reasons import Reason
from iothub_services.auth.authenticator import Authenticated
from iothub_services.auth.check_pool import FAILED_REPLY_S
from iothub_services.auth.port import CredentialKind
from tests.support.tokens import issuer, token
from tests.unit.auth.test_authenticator import SECRET, Harness, collect


def jwt_harness() -> Harness:
    """Device `robot` shows tokens of the tenant's issuer."""
    harness = Harness()
    harness.add("robot", "", credential_kind=CredentialKind.JWT)
    harness.change(token_issuers=(issuer(),))
    return harness


def test_token_of_a_trusted_issuer_lets_its_device_in() -> None:
    """Until it ends: by the wall clock now, by the monotonic one from now on."""
    harness = jwt_harness()
    harness.clock.jump_wall(500.0)

    proven = harness.connect("robot", token(sub="robot", exp=harness.clock.wall() + 60))

    assert isinstance(proven, Authenticated)
    assert proven.token is not None
    assert proven.ends_at == harness.clock.monotonic() + 60
    assert harness.connect().ends_at == math.inf


def test_device_for_tokens_takes_nothing_else() -> None:
    """And a device with a secret takes no token."""
    harness = jwt_harness()
    shown = token(sub="dev1", exp=harness.clock.wall() + 60)

    causes = [
        harness.connect("robot", secret, certificate_subject="robot").cause
        for secret in (SECRET, b"", None, b"\0", b"x" * 9000)
    ]

    assert causes == ["token_malformed", "no_secret", "no_secret", "token_malformed", "token_too_large"]
    assert harness.connect("dev1", shown).cause == "wrong_secret"
    assert harness.connect("robot", shown).cause == "token_subject"


def test_refused_token_is_like_any_other_refusal() -> None:
    """The peer is told nothing, at the same time; the log has the cause, and never the token."""
    harness = jwt_harness()
    good = {"sub": "robot", "exp": harness.clock.wall() + 60}
    wrong = [
        token(**good | {"sub": "other"}),
        token(**good, number=1),
        token(**good | {"exp": 1}),
        token(**good, nbf=harness.clock.wall() + 9),
        token(**good, aud="other"),
        b"garbage",
    ]

    refusals = [harness.connect("robot", shown) for shown in wrong]

    assert {(refusal.reason, refusal.reply_after_s) for refusal in refusals} == {
        (Reason.BAD_CREDENTIALS, FAILED_REPLY_S)
    }
    assert [refusal.cause for refusal in refusals] == [
        "token_subject",
        "token_signature",
        "token_expired",
        "token_not_yet_valid",
        "token_audience",
        "token_malformed",
    ]
    assert harness.connect("nobody", wrong[0]).reason is Reason.BAD_CREDENTIALS


def test_old_token_does_not_ban_its_device() -> None:
    """A device that tries its expired token until it gets a new one is no guesser, nor is one whose issuer's clock is fast; a forged one is."""
    harness = jwt_harness()
    for _ in range(20):
        assert harness.connect("robot", token(sub="robot", exp=1)).cause == "token_expired"
        early = token(sub="robot", exp=harness.clock.wall() + 60, nbf=harness.clock.wall() + 9)
        assert harness.connect("robot", early).cause == "token_not_yet_valid"
    assert isinstance(harness.connect("robot", token(sub="robot", exp=harness.clock.wall() + 60)), Authenticated)

    for _ in range(10):
        harness.connect("robot", token(sub="robot", exp=1, number=1))
    assert harness.connect("robot", token(sub="robot", exp=harness.clock.wall() + 60)).cause == "failure_ban"


def test_token_of_another_tenants_issuer_is_refused() -> None:
    """Keys are a tenant's own."""
    harness = jwt_harness()
    harness.accounts.tenant = replace(harness.accounts.tenant, token_issuers=(issuer(number=1),))
    harness.auth.invalidate(1)

    assert harness.connect("robot", token(sub="robot", exp=harness.clock.wall() + 60)).cause == "token_signature"


def test_review_closes_what_a_removed_issuer_has_let_in() -> None:
    """A new key beside the old one keeps it; the moment at which it ends stays the same."""
    harness = jwt_harness()
    proven = harness.connect("robot", token(sub="robot", exp=harness.clock.wall() + 60))
    secret = harness.connect()
    harness.clock.jump_wall(1000.0)

    def review(who: Authenticated) -> Any:
        (outcome,) = collect(harness.auth.review(who, client_id="c1", address="192.0.2.1"))
        return outcome

    harness.change(version=2, token_issuers=(replace(issuer(), keys=(*issuer(number=1).keys, *issuer().keys)),))
    assert (review(proven).token, review(proven).ends_at) == (proven.token, proven.ends_at)
    harness.change(version=3, token_issuers=())
    assert review(proven).reason is Reason.CREDENTIAL_REVOKED
    assert isinstance(review(secret), Authenticated)
