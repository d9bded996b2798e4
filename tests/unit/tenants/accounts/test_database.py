"""Opening an engine: SQLite is durable and shared, other urls are understood or refused in words."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from sqlalchemy import text

from iothub.base.errors import BackendError, ConfigError, UnavailableError
from iothub_tenants.accounts import database


def test_sqlite_connection_is_durable_and_checks_foreign_keys(tmp_path: Path) -> None:
    """A commit survives a power cut: WAL with synchronous FULL (2)."""
    engine = database.open_engine(database.sqlite_url(tmp_path / "x.db"))

    with engine.connect() as connection:
        found = [
            connection.execute(text(f"PRAGMA {name}")).scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        ]

    engine.dispose()
    assert found == ["wal", 2, 1, database.BUSY_MS]


def test_url_of_a_strange_path_leads_back_to_it(tmp_path: Path) -> None:
    """Blanks, question marks and percent signs in a directory's name."""
    path = tmp_path / "a b?c%d#e" / "accounts.db"

    assert database.file_of(database.sqlite_url(path)) == path


def test_accounts_are_in_the_data_directory_unless_a_file_says_where(tmp_path: Path) -> None:
    """The hub and the command ask the same function, so they work on the same accounts."""
    url_file = tmp_path / "url"
    url_file.write_text("mysql+pymysql://hub@db/iothub\n")

    assert database.accounts_url(None, tmp_path / "a.db") == database.sqlite_url(tmp_path / "a.db")
    assert database.accounts_url(url_file, tmp_path / "a.db") == "mysql+pymysql://hub@db/iothub"


@pytest.mark.parametrize(("content", "problem"), [(b" \n", "is empty"), (b"\xff\xfe", "is not UTF-8 text")])
def test_url_file_without_a_url_is_named(tmp_path: Path, content: bytes, problem: str) -> None:
    """In one line, with what was expected."""
    url_file = tmp_path / "url"
    url_file.write_bytes(content)

    with pytest.raises(ConfigError, match=f"{problem}, expected a SQLAlchemy URL"):
        database.accounts_url(url_file, tmp_path / "a.db")


def test_url_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    """`sql.url_file` is checked at the start; it may be gone since."""
    with pytest.raises(UnavailableError, match="cannot be read: No such file"):
        database.accounts_url(tmp_path / "gone", tmp_path / "a.db")


@pytest.mark.parametrize("url", ["", "accounts.db", "nosuch://host/name"])
def test_unreadable_url_is_refused_with_an_example(url: str) -> None:
    """The url itself is not shown: it may hold a password."""
    with pytest.raises(ConfigError, match="expected for example sqlite:///"):
        database.open_engine(url)


@pytest.mark.parametrize("password", ["hunter@2", "hunter@2:3", "hunter@2/3"])
def test_password_with_unescaped_signs_is_told_to_nobody(password: str) -> None:
    """Its end would be taken for the host, which errors name."""
    with pytest.raises(ConfigError, match="written as %40") as caught:
        database.open_engine(f"mysql+pymysql://iothub:{password}@db.example.com:3306/iothub")

    assert "2" not in str(caught.value).partition("%")[0]
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("url", ["mysql+pymysql://u@h:port/n", "mysql+pymysql://u@h/n?connect_timeout=soon"])
def test_number_that_is_none_is_refused_in_words(url: str) -> None:
    """A port, a parameter."""
    with pytest.raises(ConfigError):
        database.open_engine(url)


def test_memory_has_no_file() -> None:
    """Nothing to create and nothing to look for."""
    assert database.file_of("sqlite://") is None
    assert database.file_of("sqlite:///file:x.db?uri=true") is None


def test_created_file_is_for_its_owner_only(tmp_path: Path) -> None:
    """It will hold hashes of credentials."""
    database.create_file(tmp_path / "x.db")

    assert stat.S_IMODE((tmp_path / "x.db").stat().st_mode) == 0o600


def test_file_in_no_directory_is_refused_in_words(tmp_path: Path) -> None:
    """The system's own words, no traceback."""
    with pytest.raises(BackendError, match="cannot be created: No such file or directory"):
        database.create_file(tmp_path / "none" / "x.db")


def test_reads_of_a_server_see_one_moment() -> None:
    """SQLite does so by itself."""
    memory = database.open_engine("sqlite://")

    assert database.read_options(memory) == {}
    memory.dispose()


def test_restored_accounts_are_their_owners_alone_again(tmp_path: Path) -> None:
    """A copy made under another umask: the hashes are nobody else's to read."""
    path = tmp_path / "accounts.db"
    path.touch(0o644)
    path.chmod(0o644)

    database.open_engine(database.sqlite_url(path)).dispose()

    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("kind", ["oracle", "mssql"])
def test_kind_of_database_that_is_not_known_is_said_with_those_that_are(kind: str) -> None:
    """SQLAlchemy knows it: what would be missing is not its driver alone."""
    with pytest.raises(ConfigError, match=f"of kind {kind}, expected one of sqlite, mysql\\+pymysql, mariadb"):
        database.open_engine(f"{kind}://user:secret@host/name")
