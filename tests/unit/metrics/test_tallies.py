"""Counts by tenant, device and word: bounded, and complete all the same."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from iothub_services.metrics.tallies import Count, Tally


def test_what_was_counted_is_taken_once() -> None:
    tally = Tally()
    tally.add(1, "d", "expired")
    tally.add(1, "d", "expired", 2)
    tally.add(2, "", "expired")

    assert tally.take_counts() == [Count(1, "d", "expired", 3), Count(2, "", "expired", 1)]
    assert tally.take_counts() == []


def test_devices_beyond_the_bound_share_one_count() -> None:
    """Of a tenant, and of all tenants together; those that are known go on."""
    tally = Tally(devices_per_tenant=2, devices=3)
    for device in ("a", "b", "c", "a", "d"):
        tally.add(1, device, "quota")
    for device in ("e", "f"):
        tally.add(2, device, "quota")

    assert tally.take_counts() == [
        Count(1, "a", "quota", 2),
        Count(1, "b", "quota", 1),
        Count(1, "", "quota", 2),
        Count(2, "e", "quota", 1),
        Count(2, "", "quota", 1),
    ]


happenings = st.lists(
    st.tuples(st.integers(0, 3), st.text("abc", max_size=2), st.sampled_from(["x", "y"]), st.integers(1, 9)),
    max_size=60,
)


@settings(max_examples=100, deadline=None)
@given(happenings)
def test_sums_are_complete_whatever_the_bound(happened: list[tuple[int, str, str, int]]) -> None:
    """A bound costs names, never counts."""
    tally = Tally(devices_per_tenant=2, devices=4)
    expected: dict[tuple[int, str], int] = {}
    for tenant_id, device, word, count in happened:
        tally.add(tenant_id, device, word, count)
        expected[tenant_id, word] = expected.get((tenant_id, word), 0) + count

    taken = tally.take_counts()

    found: dict[tuple[int, str], int] = {}
    for one in taken:
        found[one.tenant_id, one.word] = found.get((one.tenant_id, one.word), 0) + one.times
    assert found == expected
    assert sum(1 for one in taken if one.device) <= 4
