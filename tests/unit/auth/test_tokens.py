"""Tokens: what one must have to prove a device, and every kind of wrong one."""

from __future__ import annotations

import hashlib
import hmac
import json
import math
from typing import Any

import pytest

from iothub_services.auth import tokens
from iothub_services.auth.port import TokenAlgorithm, TokenIssuer, TokenKey
from iothub_services.auth.token_proof import TokenFault, TokenProof
from tests.support.tokens import (
    EDDSA,
    ES256,
    HS256,
    PUBLIC,
    RS256,
    SECRET,
    issuer,
    part,
    private_key,
    public_pem,
    sharing,
    signed,
    token,
)

PEPPER = bytes(32)
NOW = 1_700_000_000.0
SOON = int(NOW) + 60


def prove(shown: bytes, *issuers: TokenIssuer, now: float = NOW, device: str = "dev1") -> TokenProof | TokenFault:
    return tokens.prove(shown, issuers, (device, f"acme/{device}"), now, PEPPER)


@pytest.mark.parametrize("algorithm", PUBLIC)
def test_token_of_a_trusted_key_proves_its_device(algorithm: str) -> None:
    """Until its `exp`, which the proof carries."""
    trusted = issuer(algorithm)

    proof = prove(token(algorithm, sub="dev1", exp=SOON), trusted)

    assert proof == TokenProof(trusted, trusted.keys[0], -math.inf, SOON)


def test_shared_secret_proves_too() -> None:
    assert isinstance(prove(token(HS256, sub="dev1", exp=SOON), sharing(PEPPER)), TokenProof)


def test_subject_is_the_device_with_or_without_its_tenant() -> None:
    """Nothing else: another case, another tenant, a list, a blank."""
    for subject in ("dev1", "acme/dev1"):
        assert isinstance(prove(token(sub=subject, exp=SOON), issuer()), TokenProof)
    others: list[object] = [
        "dev2",
        "DEV1",
        "beta/dev1",
        "acme/dev1/",
        " dev1",
        "",
        None,
        ["dev1"],
        {"dev1": 1},
        1,
        True,
    ]
    for other in others:
        assert prove(token(sub=other, exp=SOON), issuer()) is TokenFault.SUBJECT


@pytest.mark.parametrize("algorithm", [*PUBLIC, HS256])
def test_key_of_somebody_else_proves_nothing(algorithm: str) -> None:
    """Another key of the same kind: another tenant's, for one."""
    trusted = issuer(algorithm) if algorithm != HS256 else sharing(PEPPER)

    assert prove(token(algorithm, number=1, secret=b"x" * 32, sub="dev1", exp=SOON), trusted) is TokenFault.SIGNATURE


@pytest.mark.parametrize("algorithm", PUBLIC)
def test_public_key_is_no_shared_secret(algorithm: str) -> None:
    """Algorithm confusion: HS256 with the text, or the octets, of the public key as its secret."""
    text = public_pem(algorithm).encode()
    claims = {"sub": "dev1", "exp": SOON}
    for secret in (text, text.strip(), text.replace(b"\n", b"\r\n"), b"".join(text.split(b"\n")[1:-2])):
        forged = f"{part({'alg': 'HS256'})}.{part(claims)}"
        shown = f"{forged}.{part(mac(secret, forged.encode()))}".encode()

        assert prove(shown, issuer(algorithm)) is TokenFault.ALGORITHM
        assert prove(shown, issuer(algorithm), sharing(PEPPER)) is TokenFault.SIGNATURE
        said_otherwise = signed_as(algorithm, claims, secret)
        assert prove(said_otherwise, issuer(algorithm), sharing(PEPPER)) is TokenFault.SIGNATURE


def mac(secret: bytes, text: bytes) -> bytes:
    return hmac.digest(secret, text, hashlib.sha256)


def signed_as(algorithm: str, claims: object, secret: bytes) -> bytes:
    """A header that names the right algorithm over a signature of HMAC."""
    text = f"{part({'alg': algorithm})}.{part(claims)}"
    return f"{text}.{part(mac(secret, text.encode()))}".encode()


@pytest.mark.parametrize(
    "word", ["none", "None", "NONE", "nOnE", "", "HS384", "HS512", "ES384", "PS256", "es256", "EdDSA "]
)
def test_algorithm_that_nobody_pinned_is_refused(word: str) -> None:
    """However it is spelt, whatever it is signed with."""
    claims = {"sub": "dev1", "exp": SOON}
    everybody = (issuer(ES256, "a"), issuer(RS256, "b"), issuer(EDDSA, "c"), sharing(PEPPER))

    shown = signed({"alg": word}, claims, ES256, private_key(ES256))

    assert prove(shown, *everybody) is TokenFault.ALGORITHM


def test_token_without_a_signature_is_refused() -> None:
    """`none` with nothing behind the last dot, or with two parts."""
    for text in (f"{part({'alg': 'none'})}.{part({'sub': 'dev1', 'exp': SOON})}", token(sub="dev1", exp=SOON).decode()):
        start = ".".join(text.split(".")[:2])
        assert prove(f"{start}.".encode(), issuer()) is TokenFault.MALFORMED
        assert prove(start.encode(), issuer()) is TokenFault.MALFORMED


def test_right_signature_under_another_word_is_refused() -> None:
    """The key's algorithm is the issuer's; a token that says otherwise is not tried with it."""
    shown = signed({"alg": RS256}, {"sub": "dev1", "exp": SOON}, ES256, private_key(ES256))

    assert prove(shown, issuer(ES256)) is TokenFault.ALGORITHM
    assert prove(shown, issuer(ES256), issuer(RS256, "other")) is TokenFault.SIGNATURE


def test_expiry_is_required_and_enforced_to_the_second() -> None:
    for expiry in (None, "later", str(SOON), [SOON], True, {"in": 60}):
        assert prove(token(sub="dev1", exp=expiry), issuer()) is TokenFault.CLAIMS
    assert prove(token(sub="dev1", exp=SOON), issuer(), now=SOON - 0.01) == prove(token(sub="dev1", exp=SOON), issuer())
    for over in (SOON, SOON + 0.5, SOON + 10_000_000):
        assert prove(token(sub="dev1", exp=SOON), issuer(), now=over) is TokenFault.EXPIRED


@pytest.mark.parametrize("text", ["1e400", "-1e400", "NaN", "Infinity", "1" + "0" * 400, "253402300800"])
def test_expiry_that_no_clock_shows_is_refused(text: str) -> None:
    """Numbers that are none, and times beyond the year 9999."""
    payload = f'{{"sub": "dev1", "exp": {text}}}'.encode()

    assert prove(signed({"alg": ES256}, payload, ES256, private_key(ES256)), issuer()) is TokenFault.CLAIMS


@pytest.mark.parametrize("claim", ["nbf", "iat"])
def test_token_of_the_future_is_not_valid_yet(claim: str) -> None:
    begins: dict[str, Any] = {claim: SOON}

    shown = token(sub="dev1", exp=SOON + 60, **begins)

    assert prove(shown, issuer()) is TokenFault.NOT_YET_VALID
    assert isinstance(prove(shown, issuer(), now=SOON), TokenProof)
    assert prove(token(sub="dev1", exp=SOON, **begins | {claim: "now"}), issuer()) is TokenFault.CLAIMS


def test_leeway_widens_both_ends() -> None:
    """For an issuer whose clock is not ours."""
    loose = issuer(leeway_s=30)
    shown = token(sub="dev1", nbf=SOON, exp=SOON + 10)

    assert prove(shown, loose, now=SOON - 31) is TokenFault.NOT_YET_VALID
    assert isinstance(prove(shown, loose, now=SOON - 30), TokenProof)
    assert isinstance(prove(shown, loose, now=SOON + 39), TokenProof)
    assert prove(shown, loose, now=SOON + 40) is TokenFault.EXPIRED


def test_issuer_claim_must_be_the_expected_one() -> None:
    """Where none is expected it is not looked at: the key says who it is."""
    picky = issuer(issuer="https://login.example")

    assert isinstance(prove(token(sub="dev1", exp=SOON, iss="https://login.example"), picky), TokenProof)
    for wrong in (None, "https://login.example/", "https://login", "", ["https://login.example"]):
        assert prove(token(sub="dev1", exp=SOON, iss=wrong), picky) is TokenFault.ISSUER
    assert isinstance(prove(token(sub="dev1", exp=SOON, iss="anybody"), issuer()), TokenProof)


def test_audience_must_name_us() -> None:
    """A token for another service opens nothing here, even where no audience is expected (RFC 7519 §4.1.3)."""
    picky = issuer(audience="iothub")

    for right in ("iothub", ["other", "iothub"]):
        assert isinstance(prove(token(sub="dev1", exp=SOON, aud=right), picky), TokenProof)
    for wrong in (None, "other", [], ["other"], "iothub2", "iot", {"iothub": 1}, 7):
        assert prove(token(sub="dev1", exp=SOON, aud=wrong), picky) is TokenFault.AUDIENCE
    for foreign in ("other", ["other"], [], ""):
        assert prove(token(sub="dev1", exp=SOON, aud=foreign), issuer()) is TokenFault.AUDIENCE


def test_key_id_chooses_among_the_keys() -> None:
    """A name that nobody has is not tried; without one, and for a key without one, every key is."""
    pair = TokenIssuer(
        "pair",
        TokenAlgorithm.ES256,
        (TokenKey("old", public_pem(ES256, 1)), TokenKey("new", public_pem(ES256, 2))),
    )

    for number, kid in ((1, "old"), (2, "new"), (2, None), (1, "")):
        proof = prove(token(number=number, kid=kid, sub="dev1", exp=SOON), pair)
        assert isinstance(proof, TokenProof)
        assert proof.key.id == ("old" if number == 1 else "new")
    assert prove(token(number=2, kid="old", sub="dev1", exp=SOON), pair) is TokenFault.SIGNATURE
    assert prove(token(number=2, kid="../new", sub="dev1", exp=SOON), pair) is TokenFault.UNKNOWN_KEY
    assert isinstance(prove(token(kid="any", sub="dev1", exp=SOON), issuer()), TokenProof)


def test_second_issuer_with_the_same_key_is_asked_too() -> None:
    """One key, two audiences: the one that fits counts, wherever it stands."""
    one, two = issuer(name="one", audience="one"), issuer(name="two", audience="two")

    for order in ((one, two), (two, one)):
        proof = prove(token(sub="dev1", exp=SOON, aud="two"), *order)
        assert isinstance(proof, TokenProof)
        assert proof.issuer is two


def test_tenant_without_issuers_takes_no_token() -> None:
    assert prove(token(sub="dev1", exp=SOON)) is TokenFault.ALGORITHM


def test_issuer_without_its_key_proves_nothing() -> None:
    """Imported from a hub with another pepper, or damaged."""
    keyless = TokenIssuer("a", TokenAlgorithm.ES256, ())
    damaged = TokenIssuer("b", TokenAlgorithm.ES256, (TokenKey("", "-----BEGIN PUBLIC KEY-----"),))
    of_another_kind = TokenIssuer("c", TokenAlgorithm.ES256, (TokenKey("", public_pem(RS256)),))
    foreign = sharing(b"q" * 32)

    assert prove(token(sub="dev1", exp=SOON), keyless) is TokenFault.UNKNOWN_KEY
    assert prove(token(sub="dev1", exp=SOON), damaged, of_another_kind) is TokenFault.SIGNATURE
    assert prove(token(HS256, sub="dev1", exp=SOON), foreign) is TokenFault.SIGNATURE
    assert prove(token(HS256, secret=b"", sub="dev1", exp=SOON), foreign) is TokenFault.SIGNATURE


@pytest.mark.parametrize("place", range(3))
def test_no_character_may_be_another_one(place: int) -> None:
    """Every part is under the signature, and a part has one spelling only."""
    parts = token(sub="dev1", exp=SOON).decode().split(".")
    for at in range(len(parts[place])):
        other = "A" if parts[place][at] != "A" else "B"
        changed = list(parts)
        changed[place] = parts[place][:at] + other + parts[place][at + 1 :]
        assert isinstance(prove(".".join(changed).encode(), issuer()), TokenFault)


@pytest.mark.parametrize(
    "shown",
    [
        b"",
        b".",
        b"..",
        b"...",
        b"a.b.c",
        b"a.b.c.d",
        b"\x00.\x00.\x00",
        b"\xff\xfe.\xff.\xff",
        "é.é.é".encode(),
        b"secret",
        b" " + token(sub="dev1", exp=SOON),
        token(sub="dev1", exp=SOON) + b"\n",
        token(sub="dev1", exp=SOON) + b"=",
        b"Bearer " + token(sub="dev1", exp=SOON),
        f"{part(b'not json')}.{part({})}.{part(b'x')}".encode(),
        f"{part([])}.{part({})}.{part(b'x')}".encode(),
        f"{part({})}.{part({})}.{part(b'x')}".encode(),
        f"{part({'alg': None})}.{part({})}.{part(b'x')}".encode(),
        f"{part({'alg': ['ES256']})}.{part({})}.{part(b'x')}".encode(),
        f"{part({'alg': 'ES256', 'kid': 7})}.{part({})}.{part(b'x')}".encode(),
        f"{part(b'[' * 4000)}.{part({})}.{part(b'x')}".encode(),
        f"{part(b'9' * 5000)}.{part({})}.{part(b'x')}".encode(),
    ],
)
def test_garbage_is_malformed(shown: bytes) -> None:
    """And nothing else happens."""
    assert prove(shown, issuer()) is TokenFault.MALFORMED


@pytest.mark.parametrize(
    "extra",
    [{"crit": ["exp"]}, {"crit": []}, {"b64": False, "crit": ["b64"]}, {"b64": True}, {"crit": ["b64"], "b64": True}],
)
def test_header_that_changes_the_meaning_is_refused(extra: dict[str, object]) -> None:
    """What we do not understand we must not pass over (RFC 7515 §4.1.11)."""
    shown = signed({"alg": ES256} | extra, {"sub": "dev1", "exp": SOON}, ES256, private_key(ES256))

    assert prove(shown, issuer()) is TokenFault.MALFORMED


@pytest.mark.parametrize("name", ["jwk", "jku", "x5u", "x5c"])
def test_key_that_a_token_brings_along_is_not_looked_at(name: str) -> None:
    """A stranger's key in, or behind, the header."""
    header = {"alg": ES256, name: public_pem(ES256, 1)}

    assert (
        prove(signed(header, {"sub": "dev1", "exp": SOON}, ES256, private_key(ES256, 1)), issuer())
        is TokenFault.SIGNATURE
    )


@pytest.mark.parametrize("payload", [b"", b"[]", b"7", b"null", b"\xff", b"{", b"[" * 4000, b'"dev1"'])
def test_signed_payload_that_holds_no_claims_is_refused(payload: bytes) -> None:
    fault = prove(signed({"alg": ES256}, payload, ES256, private_key(ES256)), issuer())

    assert fault is (TokenFault.CLAIMS if payload else TokenFault.MALFORMED)


def test_faults_and_proofs_say_nothing_of_keys() -> None:
    """They are logged."""
    trusted = sharing(PEPPER)
    proof = prove(token(HS256, sub="dev1", exp=SOON), trusted)

    assert SECRET.decode() not in repr(proof)
    assert trusted.keys[0].material not in repr(proof)
    assert json.dumps(TokenFault.SIGNATURE.value)
