"""`iothub db`: the state of the accounts database, and which installation it is of."""

from __future__ import annotations

from iothub.datadir import DataDir
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


def test_nothing_is_adopted_by_accounts_without_tenants(cli: Cli) -> None:
    """Exit code 4, and 2 for what is no id."""
    assert "these accounts have no tenant" in cli("db", "adopt", OTHER, code=4).err
    assert "expected 32 hexadecimal digits" in cli("db", "adopt", "mine", code=2).err


def test_nothing_is_adopted_while_a_hub_runs(acme: Cli) -> None:
    lock = DataDir(acme.data_dir).lock("iothub serve")
    try:
        assert "is in use by" in acme("db", "adopt", OTHER, code=4).err
    finally:
        lock.release()
