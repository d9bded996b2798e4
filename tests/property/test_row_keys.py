"""Row keys for all ids: nothing collides, everything comes back, bytes sort as numbers do."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from iothub.records import keys
from tests.support.night import by_day

TENANTS = st.integers(0, (1 << 32) - 1)
IDS = st.integers(0, (1 << 64) - 1)


@settings(max_examples=by_day(100, 200))
@given(IDS, TENANTS, IDS)
def test_queue_keys_round_trip(queue_id: int, tenant_id: int, position: int) -> None:
    """Bits turned twice are as before."""
    queue = keys.queue_key(queue_id, tenant_id)

    assert keys.split_queue_key(queue) == (queue_id, tenant_id)
    assert keys.reverse_bits(queue_id) == int(f"{queue_id:064b}"[::-1], 2).to_bytes(8, "big")


@settings(max_examples=by_day(100, 200))
@given(st.lists(st.tuples(TENANTS, IDS), max_size=20))
def test_index_sorts_by_tenant_and_queue(pairs: list[tuple[int, int]]) -> None:
    """One scan per tenant, oldest session first."""
    ordered = [keys.queue_of_index(key) for key in sorted(keys.index_key(*pair) for pair in pairs)]

    assert ordered == sorted(pairs)


@settings(max_examples=by_day(100, 200))
@given(st.binary(max_size=12), st.binary(max_size=12))
def test_prefix_bounds_exactly_its_keys(prefix: bytes, rest: bytes) -> None:
    """Every key with the prefix is below the end, and the end has it not."""
    end = keys.prefix_end(prefix)

    assert not end or prefix + rest < end
    assert not end or not end.startswith(prefix)
