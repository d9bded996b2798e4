"""`iothub tenant export` and `import`: one tenant's accounts as a file."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from tests.support.in_process.command import Cli


@pytest.fixture
def exported(acme: Cli, tmp_path: Path) -> Path:
    path = tmp_path / "acme.json"
    acme("tenant", "export", "acme", "--file", str(path))
    return path


def test_export_to_a_file_is_for_its_owner_alone(exported: Path) -> None:
    """It holds the hashes of passwords."""
    assert stat.S_IMODE(exported.stat().st_mode) == 0o600
    assert json.loads(exported.read_text())["format"] == "iothub-tenant"


def test_export_without_a_file_is_the_output(acme: Cli, exported: Path) -> None:
    assert acme("tenant", "export", "acme").json == json.loads(exported.read_text())


def test_export_overwrites_nothing_unless_forced(acme: Cli, tmp_path: Path) -> None:
    """Then the new file is private, whatever the old one was."""
    path = tmp_path / "old.json"
    path.write_text("old")
    path.chmod(0o644)

    refused = acme("tenant", "export", "acme", "--file", str(path), code=4)
    assert "exists already: name a new file, or use --force to overwrite it" in refused.err
    assert path.read_text() == "old"
    acme("tenant", "export", "acme", "--file", str(path), "--force")

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert json.loads(path.read_text())["format"] == "iothub-tenant"


def test_export_replaces_nothing_but_files(acme: Cli, tmp_path: Path) -> None:
    """Above all no device: root could."""
    for path in (str(tmp_path), "/dev/null"):
        assert "is not a file" in acme("tenant", "export", "acme", "--file", path, "--force", code=4).err


def test_dash_is_the_output(acme: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And ./- a file of that name."""
    monkeypatch.chdir(tmp_path)

    assert acme("tenant", "export", "acme", "--file", "-").json["format"] == "iothub-tenant"
    assert list(tmp_path.glob("-")) == []
    acme("tenant", "export", "acme", "--file", "./-")
    assert json.loads((tmp_path / "-").read_text())["format"] == "iothub-tenant"
    acme("tenant", "import", "./-", "--name", "beta")


def test_import_under_another_name(acme: Cli, exported: Path) -> None:
    imported = acme("tenant", "import", str(exported), "--name", "beta", "-o", "json").json

    assert (imported["name"], imported["devices"], imported["is_imported"]) == ("beta", 1, True)
    assert [row["name"] for row in acme.rows("device", "list", "beta")] == ["dev1"]
    assert len(acme.rows("acl", "list", "beta")) == 1


def test_import_from_standard_input(acme: Cli, exported: Path) -> None:
    acme("tenant", "import", "-", "--name", "beta", stdin=exported.read_bytes())

    acme("tenant", "show", "beta")


def test_dry_run_creates_nothing(acme: Cli, exported: Path) -> None:
    imported = acme("tenant", "import", str(exported), "--name", "beta", "--dry-run", "-o", "json").json

    assert imported["is_imported"] is False
    acme("tenant", "show", "beta", code=3)


def test_taken_name_is_a_conflict(acme: Cli, exported: Path) -> None:
    acme("tenant", "import", str(exported), code=4)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": "other"}', "[" * 100_000])
def test_foreign_file_is_refused_in_one_line(acme: Cli, text: str) -> None:
    result = acme("tenant", "import", "-", stdin=text.encode(), code=2)

    assert result.err.count("\n") == 1


def test_devices_without_a_secret_are_named(acme: Cli, exported: Path) -> None:
    """A generated secret is of the hub that made it."""
    acme("device", "create", "acme", "dev2")
    document = json.loads(acme("tenant", "export", "acme").out)
    document["pepper"] = "of another hub"
    result = acme("tenant", "import", "-", "--name", "beta", stdin=json.dumps(document).encode())

    assert "1 device cannot log in without a new secret (`iothub --data-dir" in result.err
    assert "dev2" in result.err


def test_export_that_cannot_be_written_is_unavailable(acme: Cli, tmp_path: Path) -> None:
    acme("tenant", "export", "acme", "--file", str(tmp_path / "nowhere" / "acme.json"), code=7)
    acme("tenant", "export", "nobody", code=3)
