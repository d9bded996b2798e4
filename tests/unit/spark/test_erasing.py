"""`iothub_spark.erasing`: only a tenant that is named by its number and is gone may be erased."""

from __future__ import annotations

from pathlib import Path

import pytest

from iothub.base.errors import ConfigError, ConflictError
from iothub_spark.erasing import require_gone, tenant_of
from iothub_spark.stores.accounts import opened_accounts
from tests.support.jobs.spark import sqlite_spec
from tests.support.jobs.statistics import harness


@pytest.mark.parametrize("options", [{}, {"tenant_id": 0}, {"tenant_id": True}])
def test_tenant_is_named_by_its_number(tmp_path: Path, options: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=r"options\.tenant_id is missing"):
        tenant_of(sqlite_spec(tmp_path, "erase", **options))
    assert tenant_of(sqlite_spec(tmp_path, "erase", tenant_id=7)) == 7


def test_tenant_that_is_there_is_named(tmp_path: Path) -> None:
    acme = harness(tmp_path, "acme")["acme"]

    with opened_accounts(tmp_path / "accounts.url") as accounts:
        require_gone(accounts, acme + 1)
        with pytest.raises(ConflictError, match=r"tenant acme \(number 1\) still exists"):
            require_gone(accounts, acme)
