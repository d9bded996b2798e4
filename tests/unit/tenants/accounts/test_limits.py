"""How limits lie in rows: one per name, in the grammar's canonical form."""

from __future__ import annotations

import pytest

from iothub.base.errors import ConfigError
from iothub_services.quota.grammar import parse_limits
from iothub_tenants.accounts import limits
from iothub_tenants.accounts.store import AccountStore
from iothub_tenants.accounts.tables import plan_quota


def test_limits_come_back_as_they_were_put_in(store: AccountStore) -> None:
    """Whatever their order."""
    parsed = parse_limits("publish_messages=500/1s,10/1m connections=3 dry-run:connects=1/1s will_bytes=unlimited")

    with store.write() as writer:
        limits.merge(writer.connection, plan_quota, {"plan": "unlimited"}, parsed)
        found = limits.load(writer.connection, plan_quota, plan_quota.c.plan == "unlimited")

    assert found == parsed


def test_limits_are_removed_by_name(store: AccountStore) -> None:
    """An unknown name is refused before anything is removed."""
    with store.write() as writer:
        limits.merge(writer.connection, plan_quota, {"plan": "unlimited"}, parse_limits("connections=3 connects=1/1s"))

        with pytest.raises(ConfigError, match="unknown quota"):
            limits.remove(writer.connection, plan_quota, {"plan": "unlimited"}, ["connections", "nosuch"])
        removed = limits.remove(writer.connection, plan_quota, {"plan": "unlimited"}, ["connections", "will_bytes"])

        assert removed == 1
        assert limits.load_text(writer.connection, plan_quota, plan_quota.c.plan == "unlimited") == "connects=1/1s"
