"""Which installation accounts are of: an id made with them, and taken over only by accounts that have something."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from iothub.base.errors import ConfigError, ConflictError
from iothub_tenants.accounts import installations, tenants
from iothub_tenants.accounts.initial import init_store
from iothub_tenants.accounts.store import AccountStore

OTHER = "0123456789abcdef" * 2


@pytest.fixture
def store(url: str) -> Iterator[AccountStore]:
    """On the system's clock."""
    with closing(init_store(url)) as opened:
        yield opened


def test_accounts_have_an_id_that_stays(store: AccountStore) -> None:
    """Also when `init` is repeated."""
    first = installations.own(store)
    init_store(store.url).close()

    assert installations.own(store) == first
    assert len(bytes.fromhex(first)) == 16


def test_accounts_with_tenants_may_take_another_id(store: AccountStore) -> None:
    tenants.create(store, "acme")
    first = installations.own(store)

    assert installations.adopt(store, OTHER) == first
    assert installations.own(store) == OTHER


def test_accounts_without_tenants_take_nobodys_stores(store: AccountStore) -> None:
    """A fresh `init` beside kept servers: its first tenant would have the sessions of a stranger."""
    first = installations.own(store)
    with pytest.raises(ConflictError, match="have no tenant"):
        installations.adopt(store, OTHER)

    assert installations.own(store) == first


@pytest.mark.parametrize("text", ["", "abc", OTHER.upper(), OTHER + "0", "'; drop table tenant; --"])
def test_what_is_no_id_is_refused(store: AccountStore, text: str) -> None:
    with pytest.raises(ConfigError, match="expected the 32 hexadecimal digits"):
        installations.adopt(store, text)
