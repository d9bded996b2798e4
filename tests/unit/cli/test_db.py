"""`iothub db`: the state of the accounts database, and which installation it is of."""

from __future__ import annotations

from iothub.datadir import DataDir
from iothub.installation import installation_of
from iothub.settings import Config
from tests.support.command import Cli

OTHER = "0123456789abcdef" * 2


def test_status_tells_the_installation(cli: Cli) -> None:
    found = cli("db", "status", "-o", "json").json

    assert found["state"] == "current"
    assert len(bytes.fromhex(str(found["installation"]))) == 16


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
    """Else the next start is refused, whichever of the two is adopted (!)."""
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
    assert "expected 32 hexadecimal digits" in cli("db", "adopt", "mine", code=2).err
    installation_of(Config(), data_dir).check_directory(data_dir)


def test_nothing_is_adopted_while_a_hub_runs(acme: Cli) -> None:
    lock = DataDir(acme.data_dir).lock("iothub serve")
    try:
        assert "is in use by" in acme("db", "adopt", OTHER, code=4).err
    finally:
        lock.release()
