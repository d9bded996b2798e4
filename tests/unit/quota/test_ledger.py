"""Exact counts."""

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


def test_units_are_taken_whole_or_not_at_all() -> None:
    """Bytes of one message."""
    counts, _ = ledger("retained_bytes=100")

    assert counts.reserve(Quota.RETAINED_BYTES, 60)
    assert not counts.reserve(Quota.RETAINED_BYTES, 41)
    assert counts.reserve(Quota.RETAINED_BYTES, 40)


def test_subjects_are_counted_apart() -> None:
    """Members of one group are not those of another."""
    counts, _ = ledger("group_members=1")

    assert counts.reserve(Quota.GROUP_MEMBERS, subject=(b"g", b"a"))
    assert counts.reserve(Quota.GROUP_MEMBERS, subject=(b"g", b"b"))
    assert not counts.reserve(Quota.GROUP_MEMBERS, subject=(b"g", b"a"))
    counts.release(Quota.GROUP_MEMBERS, subject=(b"g", b"a"))
    assert counts.used(Quota.GROUP_MEMBERS, subject=(b"g", b"a")) == 0


def test_count_is_never_negative() -> None:
    """Giving back too much is told as a defect and does not make room for more."""
    counts, recorder = ledger("sessions=1")
    counts.release(Quota.SESSIONS, 3)

    assert recorder.said == [("unbalanced", 5, Quota.SESSIONS)]
    assert counts.reserve(Quota.SESSIONS)
    assert not counts.reserve(Quota.SESSIONS)


def test_what_exists_is_counted_whatever_the_limit_says() -> None:
    """Stored sessions at start; a limit lowered below them grants nothing more until they fit."""
    counts, _ = ledger("sessions=2")
    counts.restore(Quota.SESSIONS, 5)

    assert counts.excess(Quota.SESSIONS) == 3
    assert not counts.reserve(Quota.SESSIONS)
    counts.set_limits(resolve_texts("sessions=6"))
    assert counts.excess(Quota.SESSIONS) == 0
    assert counts.reserve(Quota.SESSIONS)


def test_zero_is_nothing_and_absent_is_unlimited() -> None:
    """The two must never be mixed up."""
    counts, _ = ledger("connections=0")

    assert not counts.reserve(Quota.CONNECTIONS)
    assert counts.reserve(Quota.SESSIONS, 1_000_000)
    assert counts.excess(Quota.SESSIONS) == 0


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
