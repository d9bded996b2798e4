"""What a tenant's retained messages count: reserved by the payload, corrected to what is stored, given back when they go."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, cast

import pytest

from iothub.engine.state import TenantPlane
from iothub.testing.clock import ManualClock
from iothub.testing.engine import Bench
from iothub_services.quota.ledger import LocalLedger
from iothub_services.quota.names import Quota
from iothub_services.quota.resolve import resolve_texts
from iothub_services.retained.port import RetainedTopic
from iothub_tenants.broker.retaining import Retaining


class Recorder:
    """Nothing may be unbalanced."""

    def __init__(self) -> None:
        self.refusals: list[Quota] = []

    def refused(self, tenant_id: int, quota: Quota) -> None:
        self.refusals.append(quota)

    def would_refuse(self, tenant_id: int, quota: Quota) -> None:
        raise AssertionError(quota)

    def unbalanced(self, tenant_id: int, quota: Quota) -> None:
        raise AssertionError(quota)


class Stored:
    """The store as a start finds it."""

    def __init__(self, expires_at_ms: int) -> None:
        self._expires_at_ms = expires_at_ms

    async def load(self, tenant_id: int) -> list[RetainedTopic]:
        return [RetainedTopic(b"old", 1, self._expires_at_ms, 70)]


def retaining(limits: str, recorder: Recorder, expires_at_ms: int = 0) -> tuple[Retaining, LocalLedger]:
    ledger = LocalLedger(1, resolve_texts(limits), recorder)
    return Retaining(
        TenantPlane(1, "acme"),
        Bench().plane,
        cast("Any", Stored(expires_at_ms)),
        ledger,
        ManualClock(),
        lambda *record: pytest.fail(str(record)),
    ), ledger


def figures(ledger: LocalLedger) -> tuple[int, int]:
    return ledger.used(Quota.RETAINED_MESSAGES), ledger.used(Quota.RETAINED_BYTES)


def test_count_is_what_the_next_start_will_load() -> None:
    """The reservation knows the payload, the store the whole record."""
    recorder = Recorder()
    kept, ledger = retaining("retained_bytes=100", recorder)

    assert kept.may_retain(b"t", 10)
    assert figures(ledger) == (1, 10)
    kept.changed(b"t", 1, 0, 60)
    assert figures(ledger) == (1, 60)
    assert not kept.may_retain(b"u", 41)
    assert figures(ledger) == (1, 60)
    assert kept.may_retain(b"t", 5)
    kept.changed(b"t", 2, 0, 55)
    assert figures(ledger) == (1, 55)
    kept.changed(b"t", 3, 0, 0)
    assert figures(ledger) == (0, 0)
    assert recorder.refusals == [Quota.RETAINED_BYTES]


def test_delete_that_overtakes_a_new_message_is_made_good() -> None:
    """Reserved, deleted by an older write, then stored: counted once in the end."""
    kept, ledger = retaining("", Recorder())
    assert kept.may_retain(b"t", 10)
    kept.changed(b"t", 1, 0, 0)
    kept.changed(b"t", 2, 0, 60)

    assert figures(ledger) == (1, 60)


@pytest.mark.parametrize("way", ["expired", "deleted"])
def test_loaded_message_is_given_back(way: str) -> None:
    """Whichever way it goes."""
    kept, ledger = retaining("", Recorder(), expires_at_ms=1)
    with suppress(StopIteration):
        kept.load().send(None)
    assert figures(ledger) == (1, 70)

    if way == "expired":
        kept.expired(b"old")
    else:
        kept.changed(b"old", 2, 0, 0)
    assert figures(ledger) == (0, 0)


def test_message_that_could_not_be_stored_gives_its_room_back() -> None:
    """The disk was full for too long: nothing is retained, nothing is counted."""
    kept, ledger = retaining("retained_messages=1 retained_bytes=100", Recorder())
    assert kept.may_retain(b"t", 10)

    kept.failed(b"t")

    assert figures(ledger) == (0, 0)
    assert kept.is_empty
    assert kept.may_retain(b"other", 100)


def test_message_that_could_not_be_replaced_is_counted_as_it_is() -> None:
    """The old one is still there."""
    kept, ledger = retaining("", Recorder())
    assert kept.may_retain(b"t", 10)
    kept.changed(b"t", 1, 0, 60)
    assert kept.may_retain(b"t", 500)

    kept.failed(b"t")

    assert figures(ledger) == (1, 60)


def test_room_is_kept_while_another_message_of_the_topic_is_on_its_way() -> None:
    """The first of two fails, the second is stored."""
    kept, ledger = retaining("", Recorder())
    assert kept.may_retain(b"t", 10)
    assert kept.may_retain(b"t", 20)

    kept.failed(b"t")
    assert figures(ledger) == (1, 20)
    kept.changed(b"t", 1, 0, 70)

    assert figures(ledger) == (1, 70)
    assert kept.may_retain(b"t", 500)
    kept.failed(b"t")
    assert figures(ledger) == (1, 70)
