"""`iothub db`: the state of the accounts database, and which installation it is of."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from iothub.config.datadir import DataDir
from iothub.config.sections import Config
from iothub.hub.stores.installation import installation_of
from iothub_migrations import schema
from iothub_tenants.accounts import copying
from iothub_tenants.accounts.database import sqlite_url
from tests.support.in_process.command import Cli

OTHER = "0123456789abcdef" * 2


def test_status_tells_the_installation(cli: Cli) -> None:
    found = cli("db", "status", "-o", "json").json

    assert found["state"] == "current"
    assert len(bytes.fromhex(str(found["installation"]))) == 16


def test_status_of_an_old_schema_shows_the_version_of_the_database(cli: Cli) -> None:
    """Beside the program's, which `db upgrade` brings it to."""
    current = cli("db", "status", "-o", "json").json["schema_version"]
    with closing(sqlite3.connect(DataDir(cli.data_dir).accounts)) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '0005'")
        connection.execute("UPDATE schema_info SET value = 5")

    found = cli("db", "status", "-o", "json").json

    assert current == schema.SCHEMA_VERSION
    assert (found["state"], found["schema_version"], found["program_schema_version"]) == ("old", 5, current)


def test_accounts_may_be_said_to_be_anothers(acme: Cli) -> None:
    """What a refused start names; the way back is the same."""
    before = acme("db", "status", "-o", "json").json["installation"]

    assert acme("db", "adopt", OTHER, "-o", "json").json == {
        "name": "accounts",
        "before": before,
        "installation": OTHER,
    }
    assert acme("db", "status", "-o", "json").json["installation"] == OTHER


def test_files_beside_go_along_with_the_accounts_that_made_them(acme: Cli) -> None:
    """Else the next start is refused, whichever of the two is adopted."""
    data_dir = DataDir(acme.data_dir)
    installation_of(Config(), data_dir).note(data_dir)

    acme("db", "adopt", OTHER)

    installation_of(Config(), data_dir).check_directory(data_dir)
    assert data_dir.read_installation() == OTHER


def test_files_of_others_stay_theirs(acme: Cli) -> None:
    """Accounts were put beside them: that these are of a third installation says nothing of the files."""
    data_dir = DataDir(acme.data_dir)
    data_dir.write_installation("b" * 32)

    acme("db", "adopt", OTHER)

    assert data_dir.read_installation() == "b" * 32


def test_directory_that_no_hub_has_used_is_not_noted(acme: Cli) -> None:
    acme("db", "adopt", OTHER)

    assert DataDir(acme.data_dir).read_installation() is None


def test_nothing_is_adopted_by_accounts_without_tenants(cli: Cli) -> None:
    """Exit code 4, and 2 for what is no id."""
    data_dir = DataDir(cli.data_dir)
    installation_of(Config(), data_dir).note(data_dir)
    assert "these accounts have no tenant" in cli("db", "adopt", OTHER, code=4).err
    assert "expected the 32 hexadecimal digits" in cli("db", "adopt", "mine", code=2).err
    installation_of(Config(), data_dir).check_directory(data_dir)


def test_nothing_is_adopted_while_a_hub_runs(acme: Cli) -> None:
    lock = DataDir(acme.data_dir).lock("iothub serve")
    try:
        assert "is in use by" in acme("db", "adopt", OTHER, code=4).err
    finally:
        lock.release()


def _url_file(tmp_path: Path, url: str) -> str:
    file = tmp_path / "target.url"
    file.write_text(f"{url}\n")
    return str(file)


def test_copy_says_what_comes_next_and_afterwards_that_it_is_done(acme: Cli, tmp_path: Path) -> None:
    """The same command again finds its own work, and says so."""
    file = _url_file(tmp_path, sqlite_url(tmp_path / "target.db"))

    assert f"next: set sql.url_file to {file}" in acme("db", "copy", "--to-url-file", file).err

    again = acme("db", "copy", "--to-url-file", file, code=4).err
    assert f"{file}: is a finished copy of these accounts" in again
    assert "name the file in sql.url_file" in again


def test_copy_says_how_far_it_is_while_it_compares_too(
    acme: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In lines, where there is no terminal; here without the ten seconds between two."""
    monkeypatch.setattr("iothub.cli.progress.LOG_INTERVAL_S", 0.0)
    file = _url_file(tmp_path, sqlite_url(tmp_path / "target.db"))

    said = acme("db", "copy", "--to-url-file", file).err.splitlines()

    copied = [number for number, line in enumerate(said) if " rows copied, " in line]
    compared = [number for number, line in enumerate(said) if " rows compared on both sides, " in line]
    assert copied
    assert compared
    assert max(copied) < min(compared)


def test_copy_into_accounts_of_others_names_the_file(acme: Cli, tmp_path: Path) -> None:
    """They are of another installation."""
    other = Cli(tmp_path / "other", acme.call)
    other("init")
    other("tenant", "create", "theirs")
    file = _url_file(tmp_path, sqlite_url(tmp_path / "other" / "accounts.db"))

    assert (
        f"{file}: the target has accounts already (tenants: 1)" in acme("db", "copy", "--to-url-file", file, code=4).err
    )


def test_copy_that_begins_anew_says_so(acme: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not that it has completed an earlier one."""
    file = _url_file(tmp_path, sqlite_url(tmp_path / "target.db"))

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr(copying.schema, "end_copying", die)
        acme("db", "copy", "--to-url-file", file, code=130)
    with monkeypatch.context() as there:
        there.setenv("IOTHUB_SQL__URL_FILE", file)
        refused = Cli(tmp_path / "third", acme.call)("init", code=4).err
    assert "run the same `db copy --to-url-file` again, with the same data directory" in refused
    acme("tenant", "create", "beta")

    output = acme("db", "copy", "--to-url-file", file).err

    assert "copied from the beginning, because the accounts changed after an earlier copy was interrupted" in output


@pytest.mark.parametrize(
    ("content", "code", "problem"),
    [
        (None, 2, "cannot be read: No such file"),
        (b" ", 2, "is empty, expected a SQLAlchemy URL"),
        (b"\xff", 2, "is not UTF-8 text"),
        (b"accounts.db", 2, "expected for example sqlite:///"),
        (b"mysql+pymysql://u@127.0.0.1:1/x?ssl_ca=/nowhere", 2, "a file for TLS cannot be used"),
        (b"mysql+pymysql://u@127.0.0.1:1/x", 7, "does not answer"),
    ],
)
def test_copy_names_the_file_that_is_wrong(
    acme: Cli, tmp_path: Path, content: bytes | None, code: int, problem: str
) -> None:
    """And not the setting, which says something else here, or nothing."""
    file = tmp_path / "target.url"
    if content is not None:
        file.write_bytes(content)

    output = acme("db", "copy", "--to-url-file", str(file), code=code).err

    assert problem in output
    assert f"{file}: " in output
    assert "sql.url_file" not in output
