"""What the stored rules say to one device; the forms of an answer are the command line's."""

from __future__ import annotations

import pytest

from iothub.base.errors import ConfigError, NotFoundError
from iothub_tenants.accounts import acl_rules, devices, tenants
from iothub_tenants.accounts.store import AccountStore
from iothub_tenants.accounts.verdicts import verdict


@pytest.fixture(autouse=True)
def _acme(store: AccountStore) -> None:
    tenants.create(store, "acme")
    devices.create(store, "acme", "dev1")


def test_verdict_names_the_stored_rule(store: AccountStore) -> None:
    """A device's own rule comes before the tenant's, whatever its number."""
    rule = acl_rules.deny(store, "acme", "dev1", "publish", "config/#")
    found = verdict(store, "acme", "dev1", "publish", "config/x")

    assert (found.is_allowed, found.rule) == (False, rule)


def test_shared_subscription_is_judged_by_the_filter_that_it_shares(store: AccountStore) -> None:
    acl_rules.deny(store, "acme", "dev1", "subscribe", "jobs/#")

    assert not verdict(store, "acme", "dev1", "subscribe", "$share/workers/jobs/#").is_allowed


def test_wrong_questions_are_refused(store: AccountStore) -> None:
    with pytest.raises(ConfigError):
        verdict(store, "acme", "dev1", "publish", "a/+")
    with pytest.raises(ConfigError):
        verdict(store, "acme", "dev1", "subscribe", "a/#/b")
    with pytest.raises(NotFoundError):
        verdict(store, "acme", "dev2", "publish", "a")
    with pytest.raises(NotFoundError):
        verdict(store, "beta", "dev1", "publish", "a")
