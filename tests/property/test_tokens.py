"""Whatever a stranger sends as a token: one of the known faults, in bounded time, and never a proof."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from iothub_services.auth import tokens
from iothub_services.auth.token_proof import TokenFault, TokenProof
from tests.support.night import by_day
from tests.support.tokens import EDDSA, ES256, RS256, issuer, part, private_key, sharing, signed

PEPPER = bytes(32)
NOW = 1_700_000_000.0
EVERYBODY = (issuer(ES256, "a"), issuer(RS256, "b"), issuer(EDDSA, "c", kid="k"), sharing(PEPPER, "d"))
NAMES = ("dev1", "acme/dev1")

ATOMS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
JSON = st.recursive(
    ATOMS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
HEADERS = st.fixed_dictionaries(
    {},
    optional={"alg": st.sampled_from(["none", "HS256", "ES256", "RS256", "EdDSA"]) | JSON, "kid": JSON, "crit": JSON},
)
TIMES = st.integers(int(NOW) - 100, int(NOW) + 100) | st.floats() | JSON


@settings(max_examples=by_day(100, 200), deadline=None)
@given(st.binary(max_size=200) | st.text(alphabet="ab.=_-{}", max_size=60).map(str.encode))
def test_any_octets_are_a_known_fault(shown: bytes) -> None:
    assert isinstance(tokens.prove(shown, EVERYBODY, NAMES, NOW, PEPPER), TokenFault)


@settings(max_examples=by_day(100, 200), deadline=None)
@given(HEADERS | JSON, JSON | st.binary(max_size=50), st.binary(max_size=70))
def test_any_parts_without_our_signature_prove_nothing(header: object, payload: object, signature: bytes) -> None:
    shown = f"{part(header)}.{part(payload)}.{part(signature)}".encode()

    assert isinstance(tokens.prove(shown, EVERYBODY, NAMES, NOW, PEPPER), TokenFault)


@settings(max_examples=by_day(100, 200), deadline=None)
@given(
    st.fixed_dictionaries(
        {"sub": st.sampled_from(["dev1", "acme/dev1"]) | JSON, "exp": TIMES},
        optional={"nbf": TIMES, "iat": TIMES, "aud": JSON, "iss": JSON},
    )
)
def test_signed_claims_prove_exactly_when_they_say_so(claims: dict[str, object]) -> None:
    """The rules once more, written differently."""
    text = json.dumps(claims)
    answer = tokens.prove(
        signed({"alg": ES256}, text.encode(), ES256, private_key(ES256)), EVERYBODY, NAMES, NOW, PEPPER
    )

    is_in_time = _is_time(claims["exp"]) and claims["exp"] > NOW  # type: ignore[operator]
    for name in ("nbf", "iat"):
        is_in_time = is_in_time and (name not in claims or (_is_time(claims[name]) and claims[name] <= NOW))  # type: ignore[operator]
    is_right = claims["sub"] in NAMES and is_in_time and claims.get("aud") is None
    assert isinstance(answer, TokenProof) == is_right


def _is_time(value: object) -> bool:
    return type(value) in {int, float} and abs(value) < 253_402_300_800  # type: ignore[arg-type]
