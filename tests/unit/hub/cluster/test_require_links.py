"""A hub does not start beside another one that it cannot be linked to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from iothub.base.errors import ConfigError
from iothub.hub.cluster.require_links import require_links
from iothub.testing.clock import ManualClock
from iothub_tenants.accounts import hubs
from iothub_tenants.accounts.database import sqlite_url
from iothub_tenants.accounts.store import AccountStore, create_schema
from iothub_tenants.background.membership import GONE_S, Members
from tests.support.in_process.control_harness import now


class Accounts:
    """Hubs that join one accounts database; those in `living` send a heartbeat whenever somebody waits."""

    def __init__(self, store: AccountStore) -> None:
        self.store, self.clock = store, ManualClock()
        self.living: list[Members] = []
        self.waited_s = 0.0

    async def run(self, _name: str, call: Callable[..., Any], *args: Any) -> Any:
        return call(*args)

    async def pause(self, seconds: float) -> None:
        self.waited_s += seconds
        self.clock.advance(seconds)
        for members in self.living:
            await members.refresh()

    def join(self, number: int, address: str) -> Members:
        members = Members(self.store, cast("Any", self.run), self.clock, number, f"hub-{number}")
        now(members.join(None, self.pause, address))
        return members

    def ended(self, number: int) -> bool:
        return next(row.is_gone for row in hubs.read(self.store).rows if row.number == number)


@pytest.fixture
def accounts(tmp_path: Path) -> Iterator[Accounts]:
    url = sqlite_url(tmp_path / "accounts.db")
    create_schema(url)
    store = AccountStore(url)
    yield Accounts(store)
    store.close()


def test_hub_that_is_alone_needs_no_links(accounts: Accounts) -> None:
    now(require_links(accounts.join(1, ""), has_links=False, pause=accounts.pause))

    assert accounts.waited_s == 0


def test_hubs_with_links_start_beside_each_other(accounts: Accounts) -> None:
    accounts.living.append(accounts.join(2, "hub-2:7883"))

    now(require_links(accounts.join(1, "hub-1:7883"), has_links=True, pause=accounts.pause))

    assert accounts.waited_s == 0


@pytest.mark.parametrize(
    ("own", "others", "text"),
    [
        ("", "hub-2:7883", "set cluster.listen and cluster.advertise here"),
        ("", "", "set cluster.listen and cluster.advertise here"),
        ("hub-1:7883", "", "set cluster.listen there, and restart that hub first"),
    ],
)
def test_hub_does_not_start_beside_one_that_it_cannot_be_linked_to(
    accounts: Accounts, own: str, others: str, text: str
) -> None:
    """It says which hub, and what to do; its row is gone at once, so nobody waits for it."""
    accounts.living.append(accounts.join(2, others))
    members = accounts.join(1, own)

    with pytest.raises(ConfigError, match=rf"another hub \(hub-2, number 2\) uses the same stores: {text}"):
        now(require_links(members, has_links=bool(own), pause=accounts.pause))

    assert accounts.ended(1)
    assert not accounts.ended(2)


def test_hub_with_files_does_not_start_beside_one_of_another_directory(accounts: Accounts) -> None:
    """Its workers have links over sockets of the directory, where nobody else is; the other one would wait for it in vain."""
    accounts.living += [accounts.join(2, "unix:/here/run/peer-2.sock"), accounts.join(3, "unix:/there/run/peer-1.sock")]
    members = accounts.join(1, "unix:/here/run/peer-1.sock")

    with pytest.raises(
        ConfigError, match=r"\(hub-3, number 3\) uses the same accounts, and the stores of this one are files"
    ):
        now(require_links(members, has_links=True, pause=accounts.pause, beside=range(1, 3)))

    assert accounts.ended(1)
    assert not accounts.ended(3)


def test_row_of_a_hub_that_was_killed_keeps_no_other_one_from_starting(accounts: Accounts) -> None:
    """It is watched until it is gone."""
    accounts.join(2, "")

    now(require_links(accounts.join(1, ""), has_links=False, pause=accounts.pause))

    assert GONE_S <= accounts.waited_s <= GONE_S + 2
