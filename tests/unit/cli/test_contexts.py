"""Contexts: the APIs that `--context` speaks to, their keys, and what an API answers that is none or refuses.

iothub.cli.contexts, iothub.cli.context, iothub.cli.remote_api.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from iothub.cli import contexts, remote_api
from iothub.cli.contexts import Context
from iothub.cli.remote_api import Reply
from tests.support.in_process.command import Cli


@pytest.fixture
def user(call: object, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Somebody without a context."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return cli


def test_context_is_added_used_and_removed(user: Cli) -> None:
    added = user.call(
        "context", "add", "prod", "https://iothub.example.com/", "--key-stdin", "--use", stdin=b"secret\n"
    )

    assert added.code == 0
    assert "secret" not in added.out + added.err
    assert contexts.path().stat().st_mode & 0o777 == 0o600
    (row,) = user.call("context", "list", "-o", "json").json
    assert row == {
        "name": "prod",
        "url": "https://iothub.example.com",
        "key_from": "stored here",
        "ca_file": None,
        "is_current": True,
    }
    assert user.call("context", "add", "prod", "https://a", "--key-env", "K").code == 4
    assert user.call("context", "use", "--none").code == 0
    assert contexts.load().current == ""
    assert user.call("context", "use", "test").code == 3
    assert user.call("context", "remove", "prod").code == 0
    assert user.call("context", "list", "-o", "json").json == []


def test_context_in_use_gives_way_to_a_data_directory(user: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def send(context: Context, _method: str, target: str, _body: bytes | None, _key: str) -> Reply:
        asked.append(f"{context.name} {target}")
        return Reply(200, "", b'{"items": []}')

    monkeypatch.setattr(remote_api, "send", send)
    user.call("context", "add", "prod", "https://a.example", "--key-stdin", "--use", stdin=b"k")

    assert user.rows("tenant", "list") == []
    assert asked == []
    assert user.call("tenant", "list", "-o", "json").json == []
    assert asked == ["prod /api/v1/tenants?limit=1000"]
    assert user.call("--data-dir", str(user.data_dir), "--context", "prod", "tenant", "list").code == 2
    assert user.call("--context", "nobody", "tenant", "list").code == 3


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["a/b", "https://a"], 2),
        (["a", "ftp://a"], 2),
        (["a", "https://"], 2),
        (["a", "https://user:pw@a"], 2),
        (["a", "https://a:x"], 2),
        (["a", "https://a", "--key-stdin", "--key-env", "K"], 2),
        (["a", "https://a"], 2),
        (["a", "https://a", "--key-file", "/no/such/file"], 7),
    ],
)
def test_context_that_is_none_is_refused(user: Cli, words: list[str], code: int) -> None:
    result = user.call("context", "add", *words)

    assert (result.code, result.out) == (code, "")
    assert not contexts.path().exists()


def test_key_in_plain_text_is_warned_of(user: Cli) -> None:
    assert "plain text" in user.call("context", "add", "a", "http://hub.example", "--key-env", "K").err
    assert "plain text" not in user.call("context", "add", "b", "http://127.0.0.1:1", "--key-env", "K").err


def test_key_of_two_lines_is_refused_and_not_shown(user: Cli) -> None:
    result = user.call("context", "add", "a", "http://127.0.0.1:1", "--key-stdin", stdin=b"iothub_one\rtwo")

    assert result.code == 2
    assert "holds no key" in result.err
    assert "iothub_one" not in result.err


def test_key_file_that_others_can_read_is_warned_of(user: Cli, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("k")
    file.chmod(0o644)
    assert "others can read the key" in user.call("context", "add", "a", "https://a", "--key-file", str(file)).err
    file.chmod(0o600)
    assert "others" not in user.call("context", "add", "b", "https://a", "--key-file", str(file)).err


def test_file_that_others_can_read_is_refused(user: Cli) -> None:
    user.call("context", "add", "a", "https://a", "--key-stdin", stdin=b"k")
    contexts.path().chmod(0o644)
    assert "others can read" in user.call("--context", "a", "tenant", "list").err
    contexts.path().chmod(0o600)
    contexts.path().write_text("[]")
    result = user.call("--context", "a", "tenant", "list")
    assert (result.code, "damaged" in result.err) == (2, True)


def test_key_comes_from_a_file_or_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "key"
    file.write_text("k1\n")
    monkeypatch.setenv("K", "k2")

    assert Context("a", "https://a", key_file=str(file)).read_key() == "k1"
    assert Context("a", "https://a", key_env="K").read_key() == "k2"


def test_api_that_does_not_answer_is_named(user: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_given: object) -> None:
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(remote_api, "_connection", refuse)
    user.call("context", "add", "a", "http://127.0.0.1:1", "--key-stdin", stdin=b"k")

    result = user.call("--context", "a", "tenant", "list")

    assert result.code == 7
    assert "the API of context a does not answer at http://127.0.0.1:1: Connection refused" in result.err


@pytest.mark.parametrize(
    ("status", "content", "code", "text"),
    [
        (401, {"code": "unauthenticated", "detail": "no"}, 5, "does not accept the key"),
        (403, {"code": "forbidden", "detail": "the key x has the role viewer"}, 5, "the role viewer"),
        (429, {"code": "limit_exceeded", "detail": "too many"}, 6, "too many"),
        (503, {"code": "busy", "detail": "busy"}, 7, "busy"),
        (500, {"code": "defect", "detail": "a defect"}, 1, "a defect"),
        (404, "no JSON", 7, "is this the address of the API?"),
        (302, "", 7, "answers 302"),
        (200, "<html>", 7, "does not answer with JSON"),
        (200, {"x": 1}, 7, "is this the address of the API"),
        (200, [1], 7, "is this the address of the API"),
    ],
)
def test_refusal_of_an_api_has_its_exit_code(
    user: Cli, monkeypatch: pytest.MonkeyPatch, status: int, content: object, code: int, text: str
) -> None:
    raw = content.encode() if isinstance(content, str) else json.dumps(content).encode()
    monkeypatch.setattr(remote_api, "send", lambda *_given: Reply(status, "", raw))
    user.call("context", "add", "a", "http://127.0.0.1:1", "--key-stdin", stdin=b"k")

    result = user.call("--context", "a", "tenant", "list")

    assert (result.code, text in result.err, result.out) == (code, True, "")


def test_answer_that_has_secrets_is_waited_for() -> None:
    """Devices take milliseconds each; other requests end soon where nobody answers."""
    usual = remote_api.patience_s("/api/v1/tenants?after=:apply")

    for path in ("/api/v1/tenants:apply?prune=false", "/api/v1/tenants/acme:import?dry_run=false"):
        assert remote_api.patience_s(path) > 30 * usual
    assert remote_api.patience_s("/api/v1/tenants/acme/devices:import?dry_run=false") > 5 * usual
