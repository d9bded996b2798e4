"""Whose the stores are: those of these accounts, nobody's, or somebody else's, who is named with what to do."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from iothub.base.errors import BackendError, ConflictError, NotOursError
from iothub.config.datadir import DataDir
from iothub.config.sections import Config, Node
from iothub.hub.stores.installation import Installation, installation_of
from iothub.records.owner import Owner
from iothub.testing.clock import ManualClock
from iothub_services.hbase.administration import claim, owner_columns
from iothub_services.hbase.tables import Tables
from iothub_tenants.accounts import installations
from iothub_tenants.accounts.database import sqlite_url
from iothub_tenants.accounts.initial import init_store
from tests.support.hbase.hbase_calls import FakeCaller
from tests.support.hbase.timed_gateway import TimedGateway

COLUMNS = owner_columns(Tables("t"))
OURS, THEIRS = "a" * 32, "b" * 32


class FakeTopics:
    """Topics of a prefix, and who came first."""

    def __init__(self, first: Owner | None = None) -> None:
        self.first = first

    def owner(self) -> Owner | None:
        return self.first

    def claim(self, owner: Owner) -> Owner:
        self.first = self.first or owner
        return self.first


@pytest.fixture
def ours() -> Installation:
    return Installation(Config(node=Node(name="one")), OURS, ManualClock())


def test_stores_of_nobody_are_taken_and_stay(ours: Installation) -> None:
    """A first start takes them; the next one, and another hub of the same accounts, find their own."""
    caller, topics = FakeCaller(TimedGateway(*COLUMNS)), FakeTopics()
    for owned in (ours.tables(caller, COLUMNS), ours.topics(topics)):
        owned.check()
        owned.claim()

    sister = Installation(Config(node=Node(name="two")), OURS, ManualClock())
    for owned in (sister.tables(caller, COLUMNS), sister.topics(topics)):
        owned.check()
        owned.claim()
    assert topics.first == ours.owner
    assert (ours.owner.hub, ours.owner.installation) == ("one", OURS)


def test_tables_of_others_are_refused_with_what_to_do(ours: Installation) -> None:
    """Exit code 4; whose they are, whose these accounts are, and the three ways out."""
    caller = FakeCaller(TimedGateway(*COLUMNS))
    claim(caller, {b"t:retained": COLUMNS[b"t:retained"]}, Owner(THEIRS, "far", 1_790_000_000_000))

    for ask in (ours.tables(caller, COLUMNS).check, ours.tables(caller, COLUMNS).claim):
        with pytest.raises(ConflictError) as caught:
            ask()
        assert caught.value.exit_code == 4
        assert str(caught.value) == (
            f"HBase's table t:retained: belongs to installation {THEIRS} (hub 'far' took it 2026-09-21 14:13 UTC), these accounts are of "
            f"installation {OURS}: use the accounts that it was made with (sql.url_file, --data-dir), or choose another hbase.namespace; "
            "for accounts that were restored see `iothub db adopt --help`"
        )


def test_topics_of_others_are_refused(ours: Installation) -> None:
    topics = FakeTopics(Owner(THEIRS, "far", 0))

    for ask in (ours.topics(topics).check, ours.topics(topics).claim):
        with pytest.raises(NotOursError, match=r"^Kafka's topics iothub\.\*: .*choose another kafka\.topic_prefix"):
            ask()


def test_tables_that_keep_nothing_are_asked_again(ours: Installation) -> None:
    """The start waits, as for a server that does not answer."""
    caller = FakeCaller(TimedGateway(*COLUMNS))
    caller.gateway.verbs["checkAndPut"] = lambda _request: (2, b"\0")

    with pytest.raises(BackendError, match="did not store the owner"):
        ours.tables(caller, COLUMNS).claim()


def test_directory_of_other_accounts_is_refused(ours: Installation, tmp_path: Path) -> None:
    """Queues in files beside them are of tenants with the same numbers."""
    directory = DataDir(tmp_path)
    ours.check_directory(directory)
    ours.note(directory)
    ours.check_directory(directory)
    theirs = Installation(Config(), THEIRS, ManualClock())
    theirs.note(directory)  # changes nothing

    with pytest.raises(
        ConflictError, match=f"belong to installation {OURS}, these accounts are of installation {THEIRS}"
    ):
        theirs.check_directory(directory)


def test_installation_is_that_of_the_accounts(tmp_path: Path) -> None:
    directory = DataDir(tmp_path)
    with closing(init_store(sqlite_url(directory.accounts))) as store:
        expected = installations.own(store)

    assert installation_of(Config(), directory).id == expected
