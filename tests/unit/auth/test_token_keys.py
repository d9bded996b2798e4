"""Keys of token issuers: what is taken, what is refused by name, and how a secret is kept."""

from __future__ import annotations

from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed448, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from iothub.base.errors import ConfigError
from iothub_services.auth import token_keys
from iothub_services.auth.port import TokenAlgorithm, TokenKey
from tests.support.tokens import EDDSA, ES256, HS256, PUBLIC, RS256, jwk, pem_of, private_pem, public_pem

PEPPER = bytes(32)


@pytest.mark.parametrize("word", PUBLIC)
def test_public_key_says_its_algorithm(word: str) -> None:
    """Whoever names another one is told."""
    algorithm, key = token_keys.read_public_key(public_pem(word))

    assert (algorithm, key) == (TokenAlgorithm(word), TokenKey("", public_pem(word)))
    assert token_keys.read_public_key(public_pem(word), algorithm) == (algorithm, key)
    for other in set(TokenAlgorithm) - {algorithm}:
        with pytest.raises(ConfigError, match=f"one for {word}, not for {other.value}"):
            token_keys.read_public_key(public_pem(word), other)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not a public key"),
        ("secret", "not a public key"),
        ("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", "not a public key"),
        ("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "x509 -pubkey"),
        ("-----BEGIN RSA PRIVATE KEY-----\n", "stays with the issuer"),
        ("-----BEGIN PUBLIC KEY-----\n" + "é" * 9, "not a public key"),
    ],
)
def test_text_that_is_no_public_key_is_refused(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        token_keys.read_public_key(text)


@pytest.mark.parametrize("word", PUBLIC)
def test_private_key_is_refused(word: str) -> None:
    """We must not have it: who has it makes tokens."""
    with pytest.raises(ConfigError, match="stays with the issuer"):
        token_keys.read_public_key(private_pem(word))


def weak_keys() -> list[Any]:
    return [
        ec.generate_private_key(ec.SECP384R1()).public_key(),
        ec.generate_private_key(ec.SECP256K1()).public_key(),
        ed448.Ed448PrivateKey.generate().public_key(),
        rsa.generate_private_key(65537, 1024).public_key(),
        rsa.RSAPublicNumbers(
            (1 << 64) + 1, rsa.generate_private_key(65537, 2048).public_key().public_numbers().n
        ).public_key(),
    ]


@pytest.mark.parametrize("key", weak_keys(), ids=["P-384", "secp256k1", "Ed448", "RSA-1024", "exponent"])
def test_key_that_is_weak_slow_or_unknown_is_refused(key: Any) -> None:
    with pytest.raises(ConfigError, match="expected"):
        token_keys.read_public_key(pem_of(key))
    assert token_keys.ready_key(TokenAlgorithm.ES256, pem_of(key), PEPPER) is None


def test_set_gives_the_keys_of_its_algorithm() -> None:
    """Those for encryption, and those of kinds that we do not verify, are left out."""
    other = ec.generate_private_key(ec.SECP384R1()).public_key()
    document = {
        "keys": [
            jwk(ES256, "a"),
            jwk(ES256, "b", 1, alg="ES256", use="sig"),
            jwk(ES256, "c", 2, use="enc"),
            ECAlgorithm.to_jwk(other, as_dict=True) | {"kid": "d"},
            jwk(RS256, "e", alg="RSA-OAEP"),
            jwk(RS256, "f", alg="PS256"),
            {"kty": "AKP", "kid": "g"},
        ]
    }

    algorithm, keys = token_keys.read_jwks(document)

    assert algorithm is TokenAlgorithm.ES256
    assert keys == (TokenKey("a", public_pem(ES256)), TokenKey("b", public_pem(ES256, 1)))


@pytest.mark.parametrize("word", PUBLIC)
def test_single_key_is_a_set_of_one(word: str) -> None:
    assert token_keys.read_jwks(jwk(word)) == (TokenAlgorithm(word), (TokenKey("", public_pem(word)),))


def test_set_for_several_algorithms_needs_to_be_told_which() -> None:
    document = {"keys": [jwk(ES256, "a"), jwk(RS256, "b"), jwk(EDDSA, "c")]}

    with pytest.raises(ConfigError, match=r"ES256, EdDSA, RS256.*--algorithm"):
        token_keys.read_jwks(document)
    assert token_keys.read_jwks(document, TokenAlgorithm.RS256)[1] == (TokenKey("b", public_pem(RS256)),)
    with pytest.raises(ConfigError, match="no public key to verify HS256"):
        token_keys.read_jwks(document, TokenAlgorithm.HS256)


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ([], "not a JSON Web Key Set"),
        ({}, "not a JSON Web Key Set"),
        ({"keys": {}}, "not a JSON Web Key Set"),
        ({"keys": []}, "no public key"),
        ({"keys": ["x"]}, r"keys\[0\]: expected an object"),
        ({"keys": [jwk(ES256, "a"), jwk(ES256, "a", 1)]}, "same kid"),
        ({"keys": [jwk(ES256), jwk(ES256, None, 1)]}, "both have none"),
        ({"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}, "does not belong into a key set"),
        ({"keys": [jwk(ES256, "a") | {"d": "AAAA"}]}, "stays with the issuer"),
        ({"keys": [jwk(ES256, "a") | {"x": "AAAA"}]}, "damaged"),
        ({"keys": [jwk(ES256, "a") | {"x": 7}]}, "damaged"),
        ({"keys": [{"kty": "EC", "crv": "P-256"}]}, "damaged"),
        ({"keys": [{"kty": "RSA", "n": "AQ", "e": "AQAB"}]}, "keys"),
        ({"keys": [jwk(RS256, "a") | {"alg": "ES256"}]}, "alg is ES256"),
        ({"keys": [jwk(ES256, "a\n")]}, "kid"),
        ({"keys": [jwk(ES256, "a" * 257)]}, "kid"),
        ({"keys": [jwk(ES256) | {"kid": 7}]}, "kid"),
        ({"keys": [jwk(ES256) | {"alg": ["ES256"]}]}, "no public key"),
    ],
)
def test_damaged_or_foreign_set_is_refused(document: object, words: str) -> None:
    """One line that names the place."""
    with pytest.raises(ConfigError, match=words) as raised:
        token_keys.read_jwks(document)
    assert "\n" not in str(raised.value)


def test_weak_key_of_a_set_is_named() -> None:
    weak = rsa.generate_private_key(65537, 1024).public_key()

    with pytest.raises(ConfigError, match=r"keys\[0\]: the RSA key has 1024 bits"):
        token_keys.read_jwks({"keys": [RSAAlgorithm.to_jwk(weak, as_dict=True)]})


def test_secret_is_sealed_with_the_pepper() -> None:
    """What is stored does not hold it, differs each time, and opens only here."""
    secret = "s" * 32
    one, two = token_keys.read_shared_secret(secret, PEPPER), token_keys.read_shared_secret(secret, PEPPER)

    assert secret not in one.material
    assert one.material != two.material
    assert token_keys.unseal(one.material, PEPPER) == secret.encode()
    assert token_keys.unseal(one.material, b"q" * 32) is None
    assert token_keys.unseal(one.material[:-4] + "AAAA", PEPPER) is None
    assert token_keys.unseal(one.material, b"") is None
    for damaged in ("", "s1$", "s1$!", "s1$AAAA", "s2$" + one.material[3:], secret):
        assert token_keys.unseal(damaged, PEPPER) is None


@pytest.mark.parametrize(
    ("secret", "words"),
    [
        ("short", "5 bytes"),
        ("s" * 31, "at least 32"),
        (public_pem(ES256), "public or private key"),
        ("ssh-ed25519 " + "A" * 60, "public or private key"),
        ('{"kty": "oct", "k": "' + "A" * 60, "public or private key"),
    ],
)
def test_secret_that_is_short_or_looks_public_is_refused(secret: str, words: str) -> None:
    """HS256 with a public key as its secret is the oldest trick."""
    with pytest.raises(ConfigError, match=words) as raised:
        token_keys.read_shared_secret(secret, PEPPER)
    assert secret not in str(raised.value)


def test_secret_needs_the_pepper() -> None:
    with pytest.raises(ConfigError, match="pepper"):
        token_keys.read_shared_secret("s" * 32, b"")


def test_stored_key_is_looked_at_before_it_is_believed() -> None:
    """An imported document may say anything."""
    sealed = token_keys.seal(b"s" * 32, PEPPER)
    token_keys.check_stored(TokenAlgorithm.HS256, TokenKey("", sealed))
    token_keys.check_stored(TokenAlgorithm.ES256, TokenKey("k", public_pem(ES256)))

    for word, key in (
        (HS256, TokenKey("", public_pem(ES256))),
        (HS256, TokenKey("", "s1$" + "A" * 9000)),
        (ES256, TokenKey("", sealed)),
        (ES256, TokenKey("", public_pem(RS256))),
        (ES256, TokenKey("\n", public_pem(ES256))),
        (ES256, TokenKey("", public_pem(ES256) + public_pem(ES256, 1))),
    ):
        with pytest.raises(ConfigError):
            token_keys.check_stored(TokenAlgorithm(word), key)
