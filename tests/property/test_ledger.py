"""Exact counts against a model: whatever is reserved, refused and given back, in whatever order."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from iothub_services.quota.ledger import LocalLedger
from iothub_services.quota.names import Quota
from iothub_services.quota.resolve import resolve_texts
from tests.support.night import by_day

QUOTAS = (Quota.CONNECTIONS, Quota.RETAINED_BYTES, Quota.GROUP_MEMBERS)
steps = st.tuples(
    st.sampled_from(["reserve", "release", "limit"]),
    st.sampled_from(QUOTAS),
    st.integers(0, 5),
    st.sampled_from([None, "g1", "g2"]),
)


class Silent:
    def refused(self, tenant_id: int, quota: Quota) -> None: ...

    def would_refuse(self, tenant_id: int, quota: Quota) -> None: ...

    def unbalanced(self, tenant_id: int, quota: Quota) -> None: ...


@settings(max_examples=by_day(100, 200), deadline=None)
@given(st.lists(steps, max_size=60))
def test_ledger_equals_its_model(plan: list[tuple[str, Quota, int, str | None]]) -> None:
    """Never above the limit in force at the reservation, never negative, subjects apart."""
    limit = 7
    ledger = LocalLedger(1, resolve_texts(" ".join(f"{quota.value}={limit}" for quota in QUOTAS)), Silent())
    model: dict[tuple[Quota, str | None], int] = {}
    for verb, quota, count, subject in plan:
        key = (quota, subject)
        if verb == "limit":
            limit = count + 1
            ledger.set_limits(resolve_texts(" ".join(f"{each.value}={limit}" for each in QUOTAS)))
        elif verb == "release":
            ledger.release(quota, count, subject=subject)
            model[key] = max(model.get(key, 0) - count, 0)
        else:
            is_granted = model.get(key, 0) + count <= limit
            assert ledger.reserve(quota, count, subject=subject) is is_granted
            model[key] = model.get(key, 0) + count * is_granted
        assert ledger.used(quota, subject=subject) == model.get(key, 0)
