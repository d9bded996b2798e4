"""The contract suite of the count ledger: what every driver must do, as functions that take an empty ledger.

Knows no driver. The ledger given has the limits `LIMITS`; `tests/contract` runs `CASES` over all drivers.
"""

# ruff: noqa: S101 - assertions are what a contract is made of

from __future__ import annotations

from collections.abc import Callable

from iothub_services.quota.names import Quota
from iothub_services.quota.port import CountLedger
from iothub_services.quota.resolve import resolve_texts

LIMITS = "connections=3 retained_bytes=100 group_members=2 subscriptions=0"

Case = Callable[[CountLedger], None]


def a_limit_is_granted_exactly(ledger: CountLedger) -> None:
    assert [ledger.reserve(Quota.CONNECTIONS) for _ in range(5)] == [True, True, True, False, False]
    assert ledger.used(Quota.CONNECTIONS) == 3


def a_refusal_takes_nothing(ledger: CountLedger) -> None:
    assert ledger.reserve(Quota.RETAINED_BYTES, 60)
    assert not ledger.reserve(Quota.RETAINED_BYTES, 41)
    assert ledger.reserve(Quota.RETAINED_BYTES, 40)


def what_is_given_back_can_be_reserved_again(ledger: CountLedger) -> None:
    ledger.reserve(Quota.CONNECTIONS, 3)
    ledger.release(Quota.CONNECTIONS, 2)
    assert ledger.reserve(Quota.CONNECTIONS, 2)
    assert not ledger.reserve(Quota.CONNECTIONS)


def a_count_is_never_negative(ledger: CountLedger) -> None:
    ledger.release(Quota.CONNECTIONS, 5)
    assert ledger.used(Quota.CONNECTIONS) == 0
    assert not ledger.reserve(Quota.CONNECTIONS, 4)


def subjects_are_counted_apart(ledger: CountLedger) -> None:
    assert ledger.reserve(Quota.GROUP_MEMBERS, 2, subject=(b"g", b"a"))
    assert ledger.reserve(Quota.GROUP_MEMBERS, 2, subject=(b"g", b"b"))
    assert not ledger.reserve(Quota.GROUP_MEMBERS, subject=(b"g", b"a"))
    assert ledger.used(Quota.GROUP_MEMBERS) == 0


def zero_is_nothing_and_absent_is_unlimited(ledger: CountLedger) -> None:
    assert not ledger.reserve(Quota.SUBSCRIPTIONS)
    assert ledger.reserve(Quota.SESSIONS, 1_000_000)


def what_exists_is_counted_whatever_the_limit_says(ledger: CountLedger) -> None:
    ledger.restore(Quota.CONNECTIONS, 5)
    assert ledger.used(Quota.CONNECTIONS) == 5
    assert not ledger.reserve(Quota.CONNECTIONS)
    ledger.set_limits(resolve_texts("connections=6"))
    assert ledger.reserve(Quota.CONNECTIONS)


def a_changed_limit_is_applied_at_once(ledger: CountLedger) -> None:
    ledger.reserve(Quota.CONNECTIONS, 3)
    ledger.set_limits(resolve_texts("connections=2"))
    assert not ledger.reserve(Quota.CONNECTIONS)
    ledger.set_limits(resolve_texts("connections=4"))
    assert ledger.reserve(Quota.CONNECTIONS)
    assert not ledger.reserve(Quota.CONNECTIONS)


CASES: tuple[Case, ...] = (
    a_limit_is_granted_exactly,
    a_refusal_takes_nothing,
    what_is_given_back_can_be_reserved_again,
    a_count_is_never_negative,
    subjects_are_counted_apart,
    zero_is_nothing_and_absent_is_unlimited,
    what_exists_is_counted_whatever_the_limit_says,
    a_changed_limit_is_applied_at_once,
)
