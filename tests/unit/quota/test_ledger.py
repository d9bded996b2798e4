"""Exact counts: what the observer is told, and figures. All else is in the contract suite."""

from __future__ import annotations

from dataclasses import dataclass, field

from iothub_services.quota.ledger import LocalLedger
from iothub_services.quota.names import Quota
from iothub_services.quota.resolve import resolve_texts


@dataclass
class Recorder:
    said: list[tuple[str, int, Quota]] = field(default_factory=list)

    def refused(self, tenant_id: int, quota: Quota) -> None:
        self.said.append(("refused", tenant_id, quota))

    def would_refuse(self, tenant_id: int, quota: Quota) -> None:
        self.said.append(("would refuse", tenant_id, quota))

    def unbalanced(self, tenant_id: int, quota: Quota) -> None:
        self.said.append(("unbalanced", tenant_id, quota))


def ledger(limits: str) -> tuple[LocalLedger, Recorder]:
    recorder = Recorder()
    return LocalLedger(5, resolve_texts(limits), recorder), recorder


def test_reserve_grants_exactly_the_limit() -> None:
    """Not one more, not one less; a refusal takes nothing."""
    counts, recorder = ledger("connections=3")

    assert [counts.reserve(Quota.CONNECTIONS) for _ in range(5)] == [True] * 3 + [False] * 2
    assert recorder.said == [("refused", 5, Quota.CONNECTIONS)] * 2
    assert counts.used(Quota.CONNECTIONS) == 3
    counts.release(Quota.CONNECTIONS)
    assert counts.reserve(Quota.CONNECTIONS)


def test_count_is_never_negative() -> None:
    """Giving back too much is told as a defect and does not make room for more."""
    counts, recorder = ledger("sessions=1")
    counts.release(Quota.SESSIONS, 3)

    assert recorder.said == [("unbalanced", 5, Quota.SESSIONS)]
    assert counts.reserve(Quota.SESSIONS)
    assert not counts.reserve(Quota.SESSIONS)


def test_dry_run_only_reports() -> None:
    """Above the trial everything is granted and told."""
    counts, recorder = ledger("connections=3 dry-run:connections=1")

    assert [counts.reserve(Quota.CONNECTIONS) for _ in range(3)] == [True] * 3
    assert recorder.said == [("would refuse", 5, Quota.CONNECTIONS)] * 2


def test_figures_show_used_and_limit() -> None:
    """For metrics and `quota explain`."""
    counts, _ = ledger("connections=3")
    counts.reserve(Quota.CONNECTIONS)

    assert counts.figures()[Quota.CONNECTIONS] == (1, 3)
    assert counts.figures()[Quota.SESSIONS] == (0, 0)
