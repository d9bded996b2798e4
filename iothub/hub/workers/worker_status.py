"""What several workers say of themselves, as what their hub says: plain data in, plain data out.

Knows no link. A worker is named by its number; one without an answer is `silent`, with the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from iothub.records.admin_commands import Json

_MODES = ("local", "shared", "initialising", "degraded")  # of the quota ledger, the worst one last


@dataclass(frozen=True, slots=True)
class WorkerFacts:
    """The answer of one worker. `silence`: why there is none. `brief`, `page`: of `iothub.hub.monitoring.health.Health`; JSON."""

    worker: int
    node: int
    silence: str = ""
    brief: Json = field(default_factory=dict)
    page: Json = field(default_factory=dict)

    @property
    def reasons(self) -> Sequence[str]:
        """Why it is not ready."""
        if self.silence:
            return [f"it does not answer: {self.silence}"]
        reasons = self.brief.get("reasons")
        return [str(reason) for reason in reasons] if isinstance(reasons, list) else []

    @property
    def state(self) -> str:
        if self.silence:
            return "silent"
        return "not ready" if self.reasons else "ready"


def readyz_of(workers: Sequence[WorkerFacts]) -> Json:
    """Say that the hub is ready while one worker is: the others' listeners are closed, or a client's next attempt comes to another one."""
    not_ready = {str(each.worker): list(each.reasons) for each in workers if each.reasons}
    is_ready = len(not_ready) < len(workers)
    return {"ready": is_ready, "reasons": [] if is_ready else _all_reasons(workers), "workers_not_ready": not_ready}


def brief_of(own: WorkerFacts, workers: Sequence[WorkerFacts]) -> Json:
    """Return what the hub answers to `iothub status`. `own`: of the worker that was asked, one of all."""
    nodes = {each.node for each in workers}
    ready = readyz_of(workers)
    others = own.brief.get("other_hubs")
    return {
        **own.brief,
        "node": min(nodes),
        "other_hubs": [node for node in others if node not in nodes] if isinstance(others, list) else [],
        "links": _links(own.brief.get("links"), workers),
        "quota": _worst(each.brief.get("quota") for each in workers),
        "ready": ready["ready"],
        "reasons": ready["reasons"],
        "connections": _sum(each.brief.get("connections") for each in workers),
        "connections_limit": _sum(each.brief.get("connections_limit") for each in workers),
        "tenants": max(_number(each.brief.get("tenants")) for each in workers),
        "alarms": _alarms(each.brief.get("alarms") for each in workers),
        "worker_states": _states(workers),
    }


def page_of(own: WorkerFacts, workers: Sequence[WorkerFacts]) -> Json:
    """Return the page of `/status`."""
    pages = [each.page for each in workers]
    measured = ("connections", "buffered_bytes", "unstored_bytes")
    return {
        **own.page,
        **{name: _measured(page.get(name) for page in pages) for name in measured},
        "tenants": max(_number(page.get("tenants")) for page in pages),
        "quota": _worst(page.get("quota") for page in pages),
        "alarms": _alarms(page.get("alarms") for page in pages),
        "worker_states": _states(workers),
    }


def _states(workers: Iterable[WorkerFacts]) -> list[Json]:
    return [
        {
            "worker": each.worker,
            "node": each.node,
            "state": each.state,
            "connections": each.brief.get("connections"),
            "reasons": list(each.reasons),
        }
        for each in workers
    ]


def _all_reasons(workers: Iterable[WorkerFacts]) -> list[str]:
    """Name those together that say the same."""
    by_reason: dict[str, list[str]] = {}
    for each in workers:
        for reason in each.reasons:
            by_reason.setdefault(reason, []).append(str(each.worker))
    return [f"worker {', '.join(numbers)}: {reason}" for reason, numbers in by_reason.items()]


def _links(links: object, workers: Sequence[WorkerFacts]) -> Json | None:
    """Count the links to other machines' hubs alone: a worker that has no link to the one that was asked is `silent`."""
    if not isinstance(links, Mapping):
        return None
    answered = sum(not each.silence for each in workers) - 1
    up, hubs = _number(links.get("up")) - answered, _number(links.get("hubs")) - (len(workers) - 1)
    return {"up": max(up, 0), "hubs": hubs} if hubs > 0 else None


def _worst(modes: Iterable[object]) -> str:
    return max((str(mode) for mode in modes if mode in _MODES), key=_MODES.index, default="local")


def _alarms(lists: Iterable[object]) -> list[Json]:
    """Return each alarm once, as the worker says it that raised it first."""
    found: dict[tuple[object, object], Json] = {}
    for alarms in lists:
        for alarm in alarms if isinstance(alarms, list) else ():
            key = alarm.get("name"), alarm.get("subject")
            if key not in found or _seconds(alarm.get("since")) < _seconds(found[key].get("since")):
                found[key] = alarm
    return list(found.values())


def _measured(parts: Iterable[object]) -> Json:
    found = [part for part in parts if isinstance(part, Mapping)]
    return {name: _sum(part.get(name) for part in found) for name in ("used", "limit")}


def _sum(numbers: Iterable[object]) -> int:
    return sum(_number(number) for number in numbers)


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


def _seconds(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
