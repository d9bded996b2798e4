"""Limits that a SUBSCRIBE can hit: SUBACK 0x80 or 0x97 (0x8F for the filter itself), Topic Filter by Topic Filter; the connection stays."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.clients.packets import DISCONNECT
from tests.support.clients.raw import RawClient
from tests.support.hubs.quota_harness import REFUSED_3X, REFUSED_5, Tenancy, closing_packets

Make = Callable[..., Tenancy]


def one_by_one(client: RawClient, *filters: str) -> list[int]:
    return [code for each in filters for code in client.subscribe((each, 1)).codes]


def at_once(client: RawClient, *filters: str) -> list[int]:
    return client.subscribe(*((each, 1) for each in filters)).codes


def refused(version: int) -> int:
    return REFUSED_3X if version == 4 else REFUSED_5


@pytest.mark.parametrize("ask", [one_by_one, at_once])
@pytest.mark.parametrize("quota", ["subscriptions", "session_subscriptions"])
def test_counts_of_subscriptions(tenant: Make, version: int, quota: str, ask: Callable[..., list[int]]) -> None:
    """In one packet as in six; an UNSUBSCRIBE makes room; the same filter again needs none."""
    here = tenant(f"{quota}=4")
    client = here.connect(version)

    assert ask(client, "a", "b", "c", "d", "e", "f") == [1, 1, 1, 1, refused(version), refused(version)]
    assert here.refused(quota) == 2
    assert here.used("subscriptions") == 4
    assert ask(client, "a", "a") == [1, 1]
    client.unsubscribe("a", "b", "never")
    assert here.used("subscriptions") == 2
    assert ask(client, "e", "e", "f", "g") == [1, 1, 1, refused(version)]
    assert (here.refused(quota), here.used("subscriptions")) == (3, 4)
    client.disconnect()
    here.comes_to_use("subscriptions", 0)


def test_device_may_have_more_or_fewer_subscriptions(tenant: Make, version: int) -> None:
    """Plan, tenant, device: the device's word counts, and a change of it holds for the live session."""
    here = tenant("session_subscriptions=2", device=("session_subscriptions=4",))
    client, other = here.connect(version), here.connect(version, device="dev2")

    assert one_by_one(client, "a", "b", "c", "d", "e", "f") == [1] * 4 + [refused(version)] * 2
    assert one_by_one(other, "a", "b", "c") == [1, 1, refused(version)]
    here.set("session_subscriptions=5", device="dev1")
    assert one_by_one(client, "e", "f") == [1, refused(version)]
    here.set("session_subscriptions=3", device="dev2")
    assert one_by_one(other, "c", "d") == [1, refused(version)]


def test_subscriptions_of_kept_sessions_are_counted(tenant: Make, version: int) -> None:
    """While nobody is connected too, and until the session ends."""
    here = tenant("subscriptions=4")
    here.keep(version, "kept").subscribe(("a", 1), ("b", 1))
    here.clients[-1].disconnect()
    client = here.connect(version, device="dev2")

    assert at_once(client, "a", "b", "c") == [1, 1, refused(version)]
    here.connect(version, "kept", clean=True)
    assert here.used("subscriptions") == 2


def test_shared_groups(tenant: Make, version: int) -> None:
    """A group is a name and a filter; who joins one that exists needs no place."""
    here = tenant("shared_groups=4")
    client, other = here.connect(version), here.connect(version)

    assert at_once(client, *(f"$share/g{number}/t" for number in range(6))) == [1] * 4 + [refused(version)] * 2
    assert one_by_one(other, "$share/g0/t", "$share/g0/u", "plain") == [1, refused(version), 1]
    assert (here.refused("shared_groups"), here.used("shared_groups")) == (3, 4)
    client.unsubscribe("$share/g0/t")
    assert here.used("shared_groups") == 4  # the other member is still there
    client.unsubscribe("$share/g1/t")
    assert one_by_one(other, "$share/g0/u") == [1]


def test_group_members(tenant: Make, version: int) -> None:
    """Counted per group."""
    here = tenant("group_members=4")

    codes = [here.connect(version).subscribe(("$share/g/t", 1)).codes[0] for _ in range(6)]

    assert codes == [1] * 4 + [refused(version)] * 2
    assert here.refused("group_members") == 2
    assert one_by_one(here.clients[-1], "$share/h/t") == [1]
    assert here.used("shared_groups") == 2


def test_subscribes(tenant: Make, version: int) -> None:
    """The rate counts Topic Filters, the same one again too."""
    here = tenant("subscribes=4/1m")
    client = here.connect(version)

    assert at_once(client, "a", "a", "b") == [1, 1, 1]
    assert at_once(client, "c", "d", "e") == [1, refused(version), refused(version)]
    assert (here.refused("subscribes"), here.used("subscriptions")) == (2, 3)


def test_filter_levels_and_bytes(tenant: Make, version: int) -> None:
    """SUBACK 0x80 or 0x8F; levels are those of the filter, not of `$share/name/`."""
    here = tenant("filter_levels=3 topic_bytes=20", device=("filter_levels=4",))
    client = here.connect(version)
    invalid = 0x80 if version == 4 else 0x8F

    codes = at_once(client, "a/b/c/d", "$share/g/a/b/c/d", "a/b/c/d/e", "a/b/c/d/e/f", "x" * 20, "x" * 30)
    assert codes == [1, 1, invalid, invalid, 1, invalid]
    assert at_once(here.connect(version, device="dev2"), "a/b/c", "a/b/c/d") == [1, invalid]
    assert (here.refused("filter_levels"), here.refused("topic_bytes")) == (3, 1)
    client.ping()


def test_subscribe_filters(tenant: Make, version: int) -> None:
    """More Topic Filters than one packet may have: close, or DISCONNECT 0x97; nothing of it is granted."""
    here = tenant("subscribe_filters=2", device=("subscribe_filters=4",))
    client, other = here.connect(version), here.connect(version, device="dev2")

    assert at_once(client, "a", "b", "c", "d") == [1] * 4
    client.send_packet(
        0x82, b"\0\1" + (b"\0" if version == 5 else b"") + b"".join(b"\0\1" + bytes((each, 1)) for each in b"uvwxyz")
    )
    other.send_packet(0xA2, b"\0\1" + (b"\0" if version == 5 else b"") + b"\0\1a\0\1b\0\1c")

    for each in (client, other):
        assert closing_packets(each) == ([] if version == 4 else [(DISCONNECT, 0x97)])
    assert here.refused("subscribe_filters") == 2
    here.comes_to_use("subscriptions", 0)


def test_lowered_count_takes_nothing_away(tenant: Make, version: int) -> None:
    """Who has more keeps it; nothing new until it fits."""
    here = tenant()
    client = here.connect(version)
    assert at_once(client, "a", "b", "c") == [1, 1, 1]

    here.set("subscriptions=2")

    assert one_by_one(client, "a", "d") == [1, refused(version)]
    client.unsubscribe("a", "b")
    assert one_by_one(client, "d", "e") == [1, refused(version)]
