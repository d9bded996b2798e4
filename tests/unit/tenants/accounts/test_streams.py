"""Streams in the accounts: names, filters, the tenant's limit, rules of their own, and how they travel and go."""

from __future__ import annotations

import pytest

from iothub.base.errors import ConfigError, ConflictError, NotFoundError, TenantLimitError
from iothub_services.streams.port import Direction
from iothub_tenants.accounts import acl_rules, devices, quotas, streams, tenants, transfer
from iothub_tenants.accounts.changes import ChangeWatcher
from iothub_tenants.accounts.store import AccountStore, ChangeKind
from iothub_tenants.accounts.streams import Wanted


@pytest.fixture(autouse=True)
def _tenant(store: AccountStore) -> None:
    tenants.create(store, "acme", is_closed=True)


def test_stream_is_created_listed_and_deleted(store: AccountStore) -> None:
    """Each change is a line for running hubs, and leaves the tenant's own version as it is."""
    watcher, before = ChangeWatcher(store), tenants.show(store, "acme")

    made = streams.create(store, "acme", Wanted("telemetry", "sensors/#", partitions=3))
    listed = streams.list_all(store, "acme")
    streams.remove(store, "acme", "telemetry")

    assert (
        listed
        == [made]
        == [streams.Stream(made.id, before.id, "acme", "telemetry", Direction.OUT, "sensors/#", 3, 604_800_000)]
    )
    assert streams.list_all(store, "acme") == []
    assert [(change.kind, change.subject) for change in watcher.poll()] == [(ChangeKind.STREAM, "telemetry")] * 2
    assert tenants.show(store, "acme") == before


def test_streams_of_a_suspended_tenant_are_not_active_and_keep_their_topics(store: AccountStore) -> None:
    """What was on its way when it was suspended is written; those of a tenant that is being deleted are wanted by nobody."""
    streams.create(store, "acme", Wanted("telemetry", "#"))

    found = {}
    for change in (tenants.suspend, tenants.delete):
        change(store, "acme")
        found[change.__name__] = (len(streams.active(store)), len(streams.living(store)))

    assert found == {"suspend": (0, 1), "delete": (0, 0)}


def test_a_stream_and_a_device_never_share_their_rules(store: AccountStore) -> None:
    """The end of one would take the other's denials with it."""
    devices.create(store, "acme", "stream:first")
    streams.create(store, "acme", Wanted("second", "#"))

    with pytest.raises(ConflictError, match="has a device stream:first"):
        streams.create(store, "acme", Wanted("first", "#"))
    with pytest.raises(ConflictError, match="cannot be named stream:second"):
        devices.create(store, "acme", "stream:second")
    devices.create(store, "acme", "stream:third")


def test_topics_are_named_by_prefix_tenant_and_stream(store: AccountStore) -> None:
    """Those to devices end in `.in`."""
    out = streams.create(store, "acme", Wanted("a", "#"))
    inward = streams.create(store, "acme", Wanted("b", "#", Direction.IN))

    assert (out.topic("iothub"), inward.topic("iothub")) == ("iothub.acme.a", "iothub.acme.b.in")


@pytest.mark.parametrize(
    "wanted",
    [
        Wanted("1st", "#"),
        Wanted("a.b", "#"),
        Wanted("a", ""),
        Wanted("a", "$SYS/#"),
        Wanted("a", "$share/g/x"),
        Wanted("a", "x/#/y"),
        Wanted("a", "x#"),
        Wanted("a", "x+/y"),
        Wanted("a", "#", partitions=0),
        Wanted("a", "#", retention_ms=5),
    ],
    ids=str,
)
def test_malformed_wishes_are_refused(store: AccountStore, wanted: Wanted) -> None:
    """Exit code 2, and nothing is made."""
    with pytest.raises(ConfigError):
        streams.create(store, "acme", wanted)
    assert streams.list_all(store, "acme") == []


def test_a_name_is_taken_once_and_missing_ones_are_named(store: AccountStore) -> None:
    """Exit codes 4 and 3."""
    streams.create(store, "acme", Wanted("a", "#"))

    with pytest.raises(ConflictError, match="a already"):
        streams.create(store, "acme", Wanted("a", "x"))
    with pytest.raises(NotFoundError, match="no stream 'b'"):
        streams.remove(store, "acme", "b")


def test_limit_of_streams_says_no(store: AccountStore) -> None:
    """Exit code 6."""
    quotas.set_limits(store, "acme", "streams=1")
    streams.create(store, "acme", Wanted("a", "#"))

    with pytest.raises(TenantLimitError, match="has 1 streams, its limit is 1"):
        streams.create(store, "acme", Wanted("b", "#"))


def test_a_stream_has_rules_of_its_own_which_go_with_it(store: AccountStore) -> None:
    """The subject is `stream:NAME`; without the stream there is no such subject."""
    with pytest.raises(NotFoundError):
        acl_rules.deny(store, "acme", "stream:a", "publish", "secret")
    streams.create(store, "acme", Wanted("a", "#", Direction.IN))
    acl_rules.deny(store, "acme", "stream:a", "publish", "secret")

    [found] = streams.active(store)
    streams.remove(store, "acme", "a")

    assert [rule.filter for rule in found.rules] == ["secret"]
    assert acl_rules.list_all(store, "acme") == []


def test_streams_of_a_suspended_tenant_are_not_active(store: AccountStore) -> None:
    """They stand still until it is resumed."""
    streams.create(store, "acme", Wanted("a", "#"))

    tenants.suspend(store, "acme")
    stopped = streams.active(store)
    tenants.resume(store, "acme")

    assert (stopped, len(streams.active(store))) == ([], 1)


def test_streams_travel_with_their_tenant(store: AccountStore) -> None:
    """With their rules; the hub that runs there hears of them."""
    streams.create(store, "acme", Wanted("a", "x/#", Direction.IN, 2, 60_000))
    acl_rules.allow(store, "acme", "stream:a", "publish", "x/1")

    transfer.import_tenant(store, transfer.export_tenant(store, "acme"), name="other")

    [found] = streams.list_all(store, "other")
    assert (found.name, found.filter, found.direction, found.partitions, found.retention_ms) == (
        "a",
        "x/#",
        Direction.IN,
        2,
        60_000,
    )


def test_a_deleted_tenants_streams_are_known_until_its_topics_are_gone(store: AccountStore) -> None:
    """The hub that finishes the deletion must know them."""
    streams.create(store, "acme", Wanted("a", "#"))

    deletion = tenants.delete(store, "acme")
    left = streams.of_tenant(store, deletion.tenant_id, "acme")
    assert streams.owners(store) == {deletion.tenant_id}
    tenants.finish_deletion(store, deletion.tenant_id)

    assert ([stream.name for stream in left], streams.active(store)) == (["a"], [])
    assert (streams.of_tenant(store, deletion.tenant_id, "acme"), streams.owners(store)) == ([], frozenset())
