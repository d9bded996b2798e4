"""Many devices at once: all of them or none, bad lines by number, secrets that are generated in bulk."""

from __future__ import annotations

import csv
import sqlite3
import stat
from pathlib import Path

import pytest

from iothub.base.errors import UnavailableError
from iothub.config.datadir import DataDir
from iothub_services.auth.secrets import verify_generated, verify_password
from tests.support.foreign_hashes import EMQX, EMQX_PBKDF2, EMQX_SALT, PBKDF2
from tests.support.in_process.command import Cli


def credential(cli: Cli, device: str) -> str:
    with sqlite3.connect(cli.data_dir / "accounts.db") as connection:
        found = connection.execute("SELECT credential FROM device WHERE name = ?", (device,)).fetchone()[0]
    connection.close()
    return str(found)


def test_devices_are_imported(acme: Cli, tmp_path: Path) -> None:
    (tmp_path / "devices.csv").write_text('name,password\nimp1,one\nimp2,"two, with comma"\n')

    acme("device", "import", "acme", str(tmp_path / "devices.csv"))

    assert [device["name"] for device in acme.rows("device", "list", "acme")] == ["dev1", "imp1", "imp2"]
    assert verify_password("two, with comma", credential(acme, "imp2"))


def test_import_is_all_or_nothing_with_line_numbers(acme: Cli, tmp_path: Path) -> None:
    (tmp_path / "devices.csv").write_text("name,password\nnew1,x\ndev1,x\nbad name,x\nnew1,y\n")

    result = acme("device", "import", "acme", str(tmp_path / "devices.csv"), code=4)

    assert "line 3: device dev1 exists already" in result.err
    assert "line 4:" in result.err
    assert "line 5:" in result.err
    assert [device["name"] for device in acme.rows("device", "list", "acme")] == ["dev1"]


def test_import_brings_groups_and_limits(acme: Cli) -> None:
    acme("group", "create", "acme", "sensors")
    rows = b'name,password,groups,limits\nimp1,one,sensors,"device_publish_messages=5/1s,9/1d"\n'

    acme("device", "import", "acme", "-", stdin=rows)

    assert acme("device", "show", "acme", "imp1", "-o", "json").json["groups"] == ["sensors"]
    (limit,) = acme.rows("quota", "list", "acme", "--device", "imp1")
    assert limit["limits"] == {"device_publish_messages": ["5/1s", "9/1d"]}


def test_import_can_be_tried(acme: Cli, tmp_path: Path) -> None:
    """No device, no secret, no file; the exit code says what the import would."""
    target = tmp_path / "secrets.csv"
    words = ("device", "import", "acme", "-", "--secrets-to", str(target), "--dry-run")

    assert acme(*words, stdin=b"name\nimp1\nimp2\n").err == "would import 2 devices\n"
    would = acme(*words, "-o", "json", stdin=b"name\nimp1\n").json
    assert would == {"name": "acme", "devices": ["imp1"], "is_imported": False}
    assert "line 2: device dev1 exists already" in acme(*words, stdin=b"name\ndev1\n", code=4).err
    assert not target.exists()
    assert [device["name"] for device in acme.rows("device", "list", "acme")] == ["dev1"]


def test_import_reads_standard_input(acme: Cli) -> None:
    acme("device", "import", "acme", "-", stdin=b"name,password\nimp1,one\n")

    acme("device", "show", "acme", "imp1")


def test_import_of_a_missing_file_is_one_line(acme: Cli) -> None:
    assert acme("device", "import", "acme", "/no/such.csv", code=2).err.count("\n") == 1
    assert acme("tenant", "import", "/no/such.json", code=2).err.count("\n") == 1


def test_import_of_another_text_names_the_line(acme: Cli) -> None:
    """Wrong content is 4 with line numbers, whatever is wrong."""
    for given, fault in (
        (b"a;b\n", "line 1: not the header: expected name,password[,groups][,limits]"),
        (b"", "line 1: not the header"),
        (b'name,password\ndev9,x\ndev8,"x\n', "line 3: not CSV"),
        (b"name,password\ndev9,\xff\n", "line 2: not UTF-8 text"),
        (b"\xff\xfen\0a\0", "line 1: not UTF-8 text"),
        (b"name\ndev9\n", "line 1: there is no column password: give one, or have secrets generated with --secrets-to"),
    ):
        result = acme("device", "import", "acme", "-", stdin=given, code=4)
        assert fault in result.err.splitlines()[1], given


def test_import_lists_twenty_bad_lines_each_on_its_own(acme: Cli) -> None:
    rows = "".join(f"bad{number}!,x y\n" for number in range(100_000))

    lines = acme("device", "import", "acme", "-", stdin=f"name,password\n{rows}".encode(), code=4).err.splitlines()

    assert lines[0] == "iothub: nothing was imported (bad lines: 100000):"
    assert lines[1].startswith("line 2: not a device name 'bad0!': character 5 ")
    assert (len(lines), lines[-1]) == (22, "and 99980 more")


def test_import_generates_secrets_into_a_file(acme: Cli, tmp_path: Path) -> None:
    """The bulk way to what fleets should have: for its owner alone, readable back, and each secret is right."""
    target = tmp_path / "secrets.csv"
    result = acme("device", "import", "acme", "-", "--secrets-to", str(target), stdin=b"name\nimp1\nimp2\n")

    rows = list(csv.DictReader(target.read_text().splitlines()))
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert [(row["name"], row["username"]) for row in rows] == [("imp1", "acme/imp1"), ("imp2", "acme/imp2")]
    pepper = DataDir(acme.data_dir).pepper()
    assert all(verify_generated(row["secret"], credential(acme, row["name"]), pepper) for row in rows)
    assert rows[0]["secret"] not in result.err + result.out
    assert str(target) in result.err


def test_import_generates_only_where_there_is_no_password(acme: Cli, tmp_path: Path) -> None:
    target = tmp_path / "secrets.csv"
    acme("device", "import", "acme", "-", "--secrets-to", str(target), stdin=b"name,password\nimp1,own\nimp2,\n")

    assert [line.split(",")[0] for line in target.read_text().splitlines()] == ["name", "imp2"]
    assert verify_password("own", credential(acme, "imp1"))
    assert "--secrets-to" in acme("device", "import", "acme", "-", stdin=b"name,password\nimp3,\n", code=4).err


def test_import_that_fails_leaves_no_secrets_and_no_file_is_overwritten(acme: Cli, tmp_path: Path) -> None:
    target = tmp_path / "secrets.csv"
    acme("device", "import", "acme", "-", "--secrets-to", str(target), stdin=b"name\nimp1\ndev1\n", code=4)
    assert not target.exists()

    target.write_text("mine")
    acme("device", "import", "acme", "-", "--secrets-to", str(target), stdin=b"name\nimp1\n", code=4)

    assert target.read_text() == "mine"
    assert [device["name"] for device in acme.rows("device", "list", "acme")] == ["dev1"]
    acme("device", "import", "acme", "-", "--secrets-to", "/no/such/secrets.csv", stdin=b"name\nimp1\n", code=7)


def test_import_that_fails_at_the_very_end_leaves_no_secrets(
    acme: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were written before the accounts; without those they are void."""

    def fail(*_arguments: object) -> None:
        assert target.read_text().count("\n") == 2, "whole before the accounts are touched"
        raise UnavailableError("the disk is full")

    target = tmp_path / "secrets.csv"
    monkeypatch.setattr("iothub_tenants.accounts.imports.insert_devices", fail)
    acme("device", "import", "acme", "-", "--secrets-to", str(target), stdin=b"name\nimp1\n", code=7)

    assert not target.exists()


def test_password_file_of_mosquitto_is_imported(acme: Cli, tmp_path: Path) -> None:
    """A trial changes nothing; then the device has the password that it had."""
    (tmp_path / "passwd").write_text(f"old1:{PBKDF2}\n")
    words = ("device", "import", "acme", str(tmp_path / "passwd"), "--from", "mosquitto")

    trial = acme(*words, "--dry-run")

    assert "would import 1 device" in trial.err
    assert [device["name"] for device in acme.rows("device", "list", "acme")] == ["dev1"]
    acme(*words)
    assert verify_password("secret", credential(acme, "old1"))


def test_users_of_emqx_are_imported(acme: Cli) -> None:
    """With the place of the salt that its authenticator has."""
    rows = f"user_id,password_hash,salt,is_superuser\nold1,{EMQX},{EMQX_SALT},false\n".encode()

    acme("device", "import", "acme", "-", "--from", "emqx", "--salt", "prefix", stdin=rows)

    assert verify_password("mypassword3", credential(acme, "old1"))


def test_users_of_emqx_with_pbkdf2_are_imported(acme: Cli) -> None:
    """The file does not say how they were made: the command does."""
    rows = f"user_id,password_hash,salt,is_superuser\nold1,{EMQX_PBKDF2},salt,false\n".encode()

    acme("device", "import", "acme", "-", "--from", "emqx", "--pbkdf2", "sha256:1", stdin=rows)

    assert verify_password("passwd", credential(acme, "old1"))


@pytest.mark.parametrize("text", ["", "sha256", "md5:1", "sha256:x", "sha256:-1", "sha256:" + "9" * 5000])
def test_settings_of_pbkdf2_are_checked_before_the_file_is_read(acme: Cli, text: str) -> None:
    words = ("device", "import", "acme", "/no/such/file", "--pbkdf2", text, "--from")

    assert "expected sha256:ITERATIONS or sha512:ITERATIONS" in acme(*words, "emqx", code=2).err
    assert "--pbkdf2 is for users of EMQX" in acme(*words, "mosquitto", code=2).err


def test_secrets_are_not_generated_beside_the_passwords_of_others(acme: Cli, tmp_path: Path) -> None:
    """Every row has one already."""
    words = ("device", "import", "acme", "-", "--from", "mosquitto", "--secrets-to", str(tmp_path / "s"))

    assert "--secrets-to is for CSV files" in acme(*words, stdin=b"", code=2).err


def test_dry_run_of_an_import_leaves_no_file(acme: Cli, tmp_path: Path) -> None:
    """No secret is generated either."""
    words = ("device", "import", "acme", "-", "--secrets-to", str(tmp_path / "s"), "--dry-run")

    acme(*words, stdin=b"name\nnew1\n")

    assert not (tmp_path / "s").exists()
    assert [device["name"] for device in acme.rows("device", "list", "acme")] == ["dev1"]
