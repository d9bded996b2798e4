"""An import in the face of Ctrl-C, kill and closed pipes: all or nothing, and a person knows which."""

from __future__ import annotations

import csv
import json
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from iothub.base.errors import BackendError
from iothub.cli.bulk import InterruptGuard
from iothub.cli.progress import StagedProgress
from iothub.config.datadir import DataDir
from iothub_services.auth.secrets import verify_generated
from iothub_tenants.accounts import devices as devices_of_accounts
from iothub_tenants.accounts import imports
from tests.support.in_process.command import Cli

ROWS = b"name,password\nimp1,one\nimp2,two\n"


def devices(cli: Cli) -> list[str]:
    return [row["name"] for row in cli.rows("device", "list", "acme")]


def credential(cli: Cli, device: str) -> str:
    with closing(sqlite3.connect(cli.data_dir / "accounts.db")) as connection:
        return str(connection.execute("SELECT credential FROM device WHERE name = ?", (device,)).fetchone()[0])


def interrupt(*_arguments: object) -> None:
    raise KeyboardInterrupt


def test_ctrl_c_works_until_the_shield_is_held() -> None:
    """An interrupted commit may have happened, and its secrets would be gone."""
    before = signal.getsignal(signal.SIGINT)
    with InterruptGuard() as shield:
        assert signal.getsignal(signal.SIGINT) == before
        shield.hold()
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN

    assert signal.getsignal(signal.SIGINT) == before


def test_interrupted_import_says_that_nothing_is_in(acme: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """How far it was, and how to go on."""

    class Stopped(StagedProgress):
        def report(self, what: str, done: int, of: int) -> None:
            super().report(what, done, of)
            if done == of:
                raise KeyboardInterrupt

    monkeypatch.setattr("iothub.cli.bulk.StagedProgress", Stopped)
    result = acme("device", "import", "acme", "-", stdin=ROWS, code=130)

    assert result.err == (
        "iothub: interrupted: no device was imported (2 of 2 passwords hashed); run the same command again\n"
    )
    assert devices(acme) == ["dev1"]


def test_import_cannot_be_interrupted_while_it_is_written(acme: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also without secrets: whether a commit happened that was interrupted, nobody could say."""
    seen: list[object] = []
    insert = devices_of_accounts.insert_devices

    def look(*arguments: object) -> None:
        seen.append(signal.getsignal(signal.SIGINT))
        insert(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr("iothub_tenants.accounts.imports.insert_devices", look)
    acme("device", "import", "acme", "-", stdin=ROWS)

    assert seen == [signal.SIG_IGN]
    assert devices(acme) == ["dev1", "imp1", "imp2"]


def test_interrupted_import_leaves_no_secrets_file(acme: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "secrets.csv"
    monkeypatch.setattr(imports, "_generate", interrupt)

    result = acme("device", "import", "acme", "-", "--secrets-to", str(target), stdin=b"name\nimp1\n", code=130)

    assert "no device was imported; run" in result.err
    assert not target.exists()


def test_secrets_go_to_standard_output(acme: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What `-` means elsewhere; the confirmation is not among them, and no file is made."""
    monkeypatch.chdir(tmp_path)
    result = acme("device", "import", "acme", "-", "--secrets-to", "-", stdin=b"name\nimp1\nimp2\n")

    rows = list(csv.DictReader(result.out.splitlines()))
    assert [(row["name"], row["username"]) for row in rows] == [("imp1", "acme/imp1"), ("imp2", "acme/imp2")]
    assert result.err == "imported 2 devices\n"
    assert list(tmp_path.glob("-")) == []


def test_import_shows_its_progress_beside_the_answer(
    acme: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """On standard error: a script that reads JSON gets JSON. Each stage has a line, which ends before what follows it."""
    monkeypatch.setattr("iothub.cli.progress.LOG_INTERVAL_S", 0.0)
    rows = b"name,password\nimp1,\nown,pw\n"

    result = acme("device", "import", "acme", "-", "--secrets-to", str(tmp_path / "s.csv"), "-o", "json", stdin=rows)

    assert json.loads(result.out)["devices"] == ["imp1", "own"]
    assert [line.partition(",")[0] for line in result.err.splitlines()] == [
        "1 of 1 passwords hashed",
        "1 of 1 secrets made",
        "2 of 2 devices written",
    ]


@pytest.mark.parametrize("form", ["json", "jsonl"])
def test_secrets_on_standard_output_are_part_of_the_one_object(acme: Cli, form: str) -> None:
    """A script reads one JSON text, not CSV and then JSON."""
    command = ("device", "import", "acme", "-", "--secrets-to", "-", "-o", form)
    found = json.loads(acme(*command, stdin=b"name,password\nimp1,\nown,pw\n").out)

    assert (found["name"], found["devices"]) == ("acme", ["imp1", "own"])
    (secret,) = found["secrets"]
    assert (secret["name"], secret["username"]) == ("imp1", "acme/imp1")
    assert verify_generated(secret["secret"], credential(acme, "imp1"), DataDir(acme.data_dir).pepper())


def test_nothing_is_imported_when_the_secrets_cannot_be_written(acme: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader of the pipe is gone: devices whose secrets nobody has are worse than none."""

    def closed(*_arguments: object, **_options: object) -> None:
        raise BrokenPipeError

    with monkeypatch.context() as patched:
        patched.setattr("iothub.cli.main._silence_stdout", lambda: None)
        patched.setattr("iothub.cli.output.write_text", closed)
        result = acme("device", "import", "acme", "-", "--secrets-to", "-", stdin=b"name\nimp1\n", code=7)

    assert "standard output was closed" in result.err
    assert devices(acme) == ["dev1"]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (BackendError("the connection was lost", retryable=True), "maybe after storing the devices"),
        (KeyboardInterrupt(), "printed secrets are void"),
    ],
)
def test_secrets_that_were_written_for_nothing_are_called_so(
    acme: Cli, monkeypatch: pytest.MonkeyPatch, error: BaseException, said: str
) -> None:
    def fail(*_arguments: object) -> None:
        raise error

    monkeypatch.setattr(imports, "insert_devices", fail)
    command = ("device", "import", "acme", "-", "--secrets-to", "-")
    result = acme(*command, stdin=b"name\nimp1\n", code=7 if isinstance(error, BackendError) else 130)

    assert said in result.err
