"""`iothub token-issuer`: every way to bring a key, and what each mistake is told (iothub.admin.issuers)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from iothub_tenants.accounts.database import sqlite_url
from iothub_tenants.accounts.registry import Registry
from iothub_tenants.accounts.store import AccountStore
from tests.support.in_process.command import Cli
from tests.support.tokens import EDDSA, ES256, PUBLIC, RS256, jwk, private_pem, public_pem

SECRET = "s" * 32


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "file"


def written(path: Path, content: object) -> str:
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(path)


@pytest.mark.parametrize("word", PUBLIC)
def test_public_key_file(acme: Cli, file: Path, word: str) -> None:
    """The key says the algorithm; naming it as well is fine."""
    path = written(file, public_pem(word))
    acme("token-issuer", "add", "acme", "fleet", "--public-key-file", path)
    acme("token-issuer", "add", "acme", "again", "--public-key-file", path, "--algorithm", word)

    again, fleet = acme.rows("token-issuer", "list", "acme")

    assert (fleet["name"], fleet["algorithm"], fleet["issuer"], fleet["audience"]) == ("fleet", word, "", "")
    assert fleet["leeway_s"] == 0
    assert len(fleet["keys"][0]["sha256"]) == 64
    assert again["keys"] == fleet["keys"]


def test_key_set_with_demands(acme: Cli, file: Path) -> None:
    document = {"keys": [jwk(RS256, "a"), jwk(RS256, "b", 1), jwk(EDDSA, "c")]}
    options = ("--algorithm", RS256, "--issuer", "https://login.example", "--audience", "iothub", "--leeway", "30s")
    made = acme(
        "token-issuer", "add", "acme", "login", "--jwks-file", written(file, document), *options, "-o", "json"
    ).json

    assert [key["kid"] for key in made["keys"]] == ["a", "b"]
    assert (made["issuer"], made["audience"], made["leeway_s"]) == ("https://login.example", "iothub", 30)
    assert acme("token-issuer", "show", "acme", "login", "-o", "json").json == made


@pytest.mark.parametrize("source", ["--secret-stdin", "--secret-file"])
def test_shared_secret_is_nowhere_to_be_seen(acme: Cli, file: Path, source: str) -> None:
    """Not in the answer, not in the database, not in an export."""
    words = (source,) if source == "--secret-stdin" else (source, written(file, SECRET))
    made = acme("token-issuer", "add", "acme", "shared", *words, "-o", "json", stdin=SECRET.encode())

    assert made.json["algorithm"] == "HS256"
    seen = [made.out, acme("token-issuer", "show", "acme", "shared").out, acme("tenant", "export", "acme").out]
    assert not any(SECRET in text for text in seen)
    assert SECRET.encode() not in b"".join(path.read_bytes() for path in acme.data_dir.iterdir() if path.is_file())


def test_table_is_readable(acme: Cli, file: Path) -> None:
    acme("token-issuer", "add", "acme", "fleet", "--public-key-file", written(file, public_pem(ES256)))

    table, record = acme("token-issuer", "list", "acme").out, acme("token-issuer", "show", "acme", "fleet").out

    assert table.splitlines()[0].split() == ["NAME", "ALGORITHM", "ISSUER", "AUDIENCE", "LEEWAY", "S", "KEYS"]
    assert "sha256=" in record


@pytest.mark.parametrize(
    ("content", "option", "more", "words"),
    [
        (public_pem(ES256), "--public-key-file", ("--algorithm", RS256), "one for ES256, not for RS256"),
        (private_pem(ES256), "--public-key-file", (), "private key"),
        ("hello", "--public-key-file", (), "not a public key"),
        ("é" * 9, "--public-key-file", (), "not a public key"),
        ("x" * 20_000, "--public-key-file", (), "not a public key"),
        (public_pem(ES256), "--public-key-file", ("--algorithm", "HS256"), "are for HS256 only"),
        (public_pem(ES256), "--secret-file", (), "several lines"),
        ("short", "--secret-file", (), "at least 32"),
        (SECRET, "--secret-file", ("--algorithm", ES256), "are for HS256 only"),
        ("not json", "--jwks-file", (), "expected JSON"),
        ('{"keys": [], "keys": []}', "--jwks-file", (), "`keys` is given twice in one object"),
        ("{}", "--jwks-file", (), "not a JSON Web Key Set"),
        ({"keys": []}, "--jwks-file", (), "no public key"),
        (public_pem(ES256), "--public-key-file", ("--secret-stdin",), "got several"),
        (public_pem(ES256), "--public-key-file", ("--leeway", "1y"), "--leeway"),
        (public_pem(ES256), "--public-key-file", ("--leeway", "1h"), "leeway"),
        (public_pem(ES256), "--public-key-file", ("--audience", "a\nb"), "aud"),
    ],
)
def test_mistake_is_told_in_one_line(
    acme: Cli, file: Path, content: object, option: str, more: tuple[str, ...], words: str
) -> None:
    """Exit code 2, nothing stored, and no secret repeated."""
    result = acme("token-issuer", "add", "acme", "fleet", option, written(file, content), *more, code=2)

    assert words in result.err
    assert result.err.count("\n") == 1
    assert SECRET not in result.err
    assert acme.rows("token-issuer", "list", "acme") == []


def test_no_key_no_issuer(acme: Cli) -> None:
    for words in ((), ("--algorithm", ES256), ("--issuer", "x")):
        acme("token-issuer", "add", "acme", "fleet", *words, code=2)
    acme("token-issuer", "add", "acme", "fleet", "--algorithm", "none", code=2)


def test_unknown_issuer_is_three_missing_file_is_two_and_taken_is_four(acme: Cli, file: Path) -> None:
    path = written(file, public_pem(ES256))
    for words in (
        ("list", "nobody"),
        ("add", "nobody", "fleet", "--public-key-file", path),
        ("show", "acme", "fleet"),
        ("update", "acme", "fleet", "--leeway", "1s"),
        ("remove", "acme", "fleet", "--yes"),
    ):
        acme("token-issuer", *words, code=3)
    acme("token-issuer", "add", "acme", "fleet", "--public-key-file", path + ".missing", code=2)
    acme("token-issuer", "add", "acme", "fleet", "--jwks-file", path + ".missing", code=2)
    acme("token-issuer", "add", "acme", "fleet", "--public-key-file", path)
    acme("token-issuer", "add", "acme", "fleet", "--public-key-file", path, code=4)


def test_update_changes_what_is_given(acme: Cli, file: Path) -> None:
    acme("token-issuer", "add", "acme", "fleet", "--public-key-file", written(file, public_pem(ES256)), "--issuer", "a")
    before = acme("token-issuer", "show", "acme", "fleet", "-o", "json").json
    acme("token-issuer", "update", "acme", "fleet", code=2)
    acme("token-issuer", "update", "acme", "fleet", "--public-key-file", written(file, public_pem(RS256)), code=2)
    acme("token-issuer", "update", "acme", "fleet", "--public-key-file", written(file, public_pem(ES256, 1)))
    acme("token-issuer", "update", "acme", "fleet", "--issuer", "", "--leeway", "2s")
    after = acme("token-issuer", "show", "acme", "fleet", "-o", "json").json

    assert (after["issuer"], after["leeway_s"]) == ("", 2)
    assert after["keys"] != before["keys"]


def test_remove_says_what_it_would_do(acme: Cli, file: Path) -> None:
    acme("token-issuer", "add", "acme", "fleet", "--public-key-file", written(file, public_pem(ES256)))
    assert "would remove" in acme("token-issuer", "remove", "acme", "fleet", "--dry-run").err
    assert acme("tenant", "show", "acme", "-o", "json").json["token_issuers"] == ["fleet"]
    assert acme("tenant", "delete", "acme", "--dry-run", "-o", "json").json["token_issuers"] == 1

    acme("token-issuer", "remove", "acme", "fleet", "--yes")

    assert acme("tenant", "show", "acme", "-o", "json").json["token_issuers"] == []


def test_device_for_tokens_is_visible(acme: Cli) -> None:
    """Created so, or changed; never both a password and a token."""
    made = acme("device", "create", "acme", "robot", "--jwt", "-o", "json").json
    assert (made["credential"], "secret" in made) == ("jwt", False)
    assert acme("device", "create", "acme", "robot2", "--jwt", "--password-stdin", stdin=b"x", code=2).out == ""
    acme("device", "set-jwt", "acme", "dev1")

    assert {row["name"]: row["credential"] for row in acme.rows("device", "list", "acme")} == {
        "dev1": "jwt",
        "robot": "jwt",
    }


def test_foreign_hub_names_issuers_that_need_their_secret(acme: Cli, tmp_path: Path) -> None:
    """Sealed with another pepper: it can be given again."""
    acme("token-issuer", "add", "acme", "shared", "--secret-stdin", stdin=SECRET.encode())
    document = acme("tenant", "export", "acme").json | {"pepper": "another"}
    path = written(tmp_path / "acme.json", document)

    result = acme("tenant", "import", path, "--name", "beta")

    assert "shared" in result.err
    assert acme("token-issuer", "show", "beta", "shared", "-o", "json").json["keys"] == []
    acme("token-issuer", "update", "beta", "shared", "--secret-stdin", stdin=SECRET.encode())
    store = AccountStore(sqlite_url(acme.data_dir / "accounts.db"))
    found = Registry(store).find_tenant("beta")
    store.close()
    assert found is not None
    assert len(found.token_issuers[0].keys) == 1
