"""The forms of commands that scripts rely on, one after another on one data directory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.support.in_process.command import Result


def test_exact_forms_work_word_by_word(call: Callable[..., Result], tmp_path: Path) -> None:
    """The list of the first issue, item 8; scripts rely on it."""
    data_dir = tmp_path / "hub"
    assert call("--data-dir", str(data_dir), "init").code == 0
    (tmp_path / "devices.csv").write_text("name,password\nimp1,one\nimp2,two\n")
    forms: list[tuple[list[str], str, int]] = [
        (["tenant", "create", "acme"], "", 0),
        (["tenant", "create", "beta", "--plan", "standard"], "", 0),
        (["tenant", "create", "gamma", "--closed"], "", 0),
        (["tenant", "list"], "", 0),
        (["tenant", "list", "-o", "json"], "", 0),
        (["tenant", "suspend", "acme"], "", 0),
        (["tenant", "show", "acme"], "", 0),
        (["tenant", "resume", "acme"], "", 0),
        (["device", "create", "acme", "dev1", "--password-stdin"], "secret", 0),
        (["device", "create", "acme", "dev2"], "", 0),
        (["device", "import", "acme", str(tmp_path / "devices.csv")], "", 0),
        (["device", "import", "acme", str(tmp_path / "devices.csv")], "", 4),
        (["acl", "allow", "acme", "dev1", "publish", "a/+/#"], "", 0),
        (["acl", "deny", "acme", "*", "subscribe", "a/+/#"], "", 0),
        (["acl", "allow", "acme", "dev1", "both", "a/+/#"], "", 0),
        (["quota", "set", "acme", "connections=100", "publish_messages=50/1s"], "", 0),
        (["tenant", "delete", "beta"], "", 2),
        (["tenant", "delete", "beta", "--confirm", "beta"], "", 0),
        (["init"], "", 4),
    ]
    for words, given, expected in forms:
        done = call("--data-dir", str(data_dir), *words, stdin=given.encode())
        assert done.code == expected, (words, done)
        assert "Traceback" not in done.err
    rows = call("--data-dir", str(data_dir), "tenant", "list", "-o", "json").json
    assert [(row["name"], row["state"]) for row in rows] == [
        ("acme", "active"),
        ("beta", "deleting"),
        ("gamma", "active"),
    ]
