"""`iothub acl import`: many rules in one command."""

from __future__ import annotations

from pathlib import Path

from tests.support.in_process.command import Cli


def test_rules_are_imported_and_listed(acme: Cli) -> None:
    """What `acl list -o csv` writes can be read again, and adds nothing."""
    acme(
        "acl",
        "import",
        "acme",
        "-",
        stdin=b"subject,effect,action,filter\ndev1,deny,publish,config/#\n*,allow,both,a/{device}\n",
    )
    listed = acme("acl", "list", "acme", "-o", "csv").out

    again = acme("acl", "import", "acme", "-", "-o", "json", stdin=listed.encode())

    assert "dev1,deny,publish,config/#" in listed
    assert '"rules": 0' in again.out


def test_acl_file_of_mosquitto_is_tried_then_imported(acme: Cli, tmp_path: Path) -> None:
    """A trial changes nothing."""
    (tmp_path / "acl").write_text("user dev1\ntopic read news/#\n")
    words = ("acl", "import", "acme", str(tmp_path / "acl"), "--from", "mosquitto")
    before = acme("acl", "list", "acme", "-o", "csv").out

    trial = acme(*words, "--dry-run")

    assert "would import 1 rule" in trial.err
    assert acme("acl", "list", "acme", "-o", "csv").out == before
    assert "imported 1 rule" in acme(*words).err
    assert "dev1,allow,subscribe,news/#" in acme("acl", "list", "acme", "-o", "csv").out


def test_bad_lines_are_named_with_their_numbers(acme: Cli) -> None:
    """Exit code 4, and nothing is written."""
    result = acme("acl", "import", "acme", "-", stdin=b"subject,effect,action,filter\nghost,allow,both,a\n", code=4)

    assert "nothing was imported (bad lines: 1)" in result.err
    assert "line 2: tenant acme has no device" in result.err


def test_missing_file_is_one_line(acme: Cli) -> None:
    assert acme("acl", "import", "acme", "/no/such", code=2).err.count("\n") == 1
