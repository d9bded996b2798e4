"""What `insights` has found, as plain values by tenant: what a page shows.

Knows no frame and no HTML.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

Cells = Mapping[str, object]

CONNECTED = (
    "connected",
    "brief_connected",
)  # words of `transforms.insights.churn`: of sessions that are kept, and of others


@dataclass(slots=True)
class TenantFindings:
    """One tenant. Days are the keys of every inner mapping."""

    tenant_id: int
    name: str
    churn: dict[str, Counter[str]] = field(default_factory=dict)
    disconnects: Counter[str] = field(default_factory=Counter)
    refusals: Counter[tuple[str, str]] = field(default_factory=Counter)
    devices: list[dict[str, object]] = field(default_factory=list)
    growth: dict[str, dict[str, int]] = field(default_factory=dict)
    traffic: dict[str, dict[str, int]] = field(default_factory=dict)

    def has(self, day: str) -> bool:
        """Say whether there are events of a day: a hub that is on samples each of its tenants."""
        return any(day in by_day for by_day in (self.churn, self.growth, self.traffic))


@dataclass(frozen=True, slots=True)
class Change:
    """A figure of the last whole day and of the day before. `percent` is None when there was nothing before and there is something now."""

    name: str
    before: int
    now: int

    @property
    def percent(self) -> float | None:
        if self.before == self.now:
            return 0.0
        return None if self.before == 0 else 100.0 * (self.now - self.before) / self.before


@dataclass(slots=True)
class Findings:
    """All of a run, by the tenant's number. Invariant: `days` are ascending and have no gap. `days_with_events`: those of which there are events."""

    days: list[str]
    tenants: dict[int, TenantFindings]
    days_with_events: list[str] = field(default_factory=list)

    def of(self, tenant_id: int, names: Mapping[int, str]) -> TenantFindings:
        found = self.tenants.get(tenant_id)
        if found is None:
            name = names.get(tenant_id) or (
                "logins without a tenant" if tenant_id == 0 else f"deleted tenant {tenant_id}"
            )
            found = self.tenants[tenant_id] = TenantFindings(tenant_id, name)
        return found

    def changes(self, tenant: TenantFindings) -> list[Change]:
        """Compare the last whole day with the one before it; the last day of all is not over. Empty where either has no events."""
        if len(self.days) < 3:
            return []
        before, now = self.days[-3], self.days[-2]
        if not (tenant.has(before) and tenant.has(now)):
            return []
        figures = [("messages in", tenant.traffic, "messages_in"), ("messages out", tenant.traffic, "messages_out")]
        figures += [("sessions", tenant.growth, "sessions"), ("queued bytes", tenant.growth, "queued_bytes")]
        changes = [
            Change(word, by_day.get(before, {}).get(name, 0), by_day.get(now, {}).get(name, 0))
            for word, by_day, name in figures
        ]
        connects = [sum(tenant.churn.get(day, Counter())[word] for word in CONNECTED) for day in (before, now)]
        return [*changes, Change("connects", *connects)]


def gathered(days: list[str], names: Mapping[int, str], **frames: Sequence[Cells]) -> Findings:
    """Take the rows of the transforms of the same names, each of a known day, apart by tenant."""
    with_events = {row.get("day") for rows in frames.values() for row in rows}
    found = Findings(days, {}, [day for day in days if day in with_events])
    for row in frames["churn"]:
        tenant = found.of(_number(row["tenant_id"]), names)
        tenant.churn.setdefault(str(row["day"]), Counter())[str(row["happening"])] += _number(row["times"])
    for row in frames["disconnects"]:
        found.of(_number(row["tenant_id"]), names).disconnects[str(row["reason"])] += _number(row["times"])
    for row in frames["refusals"]:
        key = str(row["kind"]), str(row["reason"])
        found.of(_number(row["tenant_id"]), names).refusals[key] += _number(row["times"])
    for row in sorted(frames["devices"], key=lambda row: _number(row["rank"])):
        found.of(_number(row["tenant_id"]), names).devices.append(dict(row))
    for row in frames["growth"]:
        found.of(_number(row["tenant_id"]), names).growth[str(row["day"])] = _figures(row)
    for row in frames["traffic"]:
        found.of(_number(row["tenant_id"]), names).traffic[str(row["day"])] = _figures(row)
    return found


def _figures(row: Cells) -> dict[str, int]:
    return {name: _number(value) for name, value in row.items() if name not in ("tenant_id", "day")}


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0
