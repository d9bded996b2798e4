"""Events for statistics: their facts are part of the format, so they are written down here as bytes."""

from __future__ import annotations

import pytest

from iothub.records import analytics
from iothub.records.analytics import Metered, Period, Sample
from iothub.records.events import Event, Topic, decode_event, encode_event

PERIOD = Period("hub-1/17", 4, 1_700_000_000_000, 1_700_000_060_000)

GOLDEN_USAGE_V1 = (
    b'{"v":1,"type":"usage.counted","tenant":7,"client":"","epoch":0,"at":1700000060000,'
    b'"facts":{"incarnation":"hub-1/17","sequence":4,"from_ms":1700000000000,"messages_in":1,"messages_out":2,'
    b'"blocks_in":3,"blocks_out":4,"bytes_in":5,"bytes_out":6,"connection_ms":7,"fanout":8}}'
)
GOLDEN_SAMPLE_V1 = (
    b'{"v":1,"type":"tenant.sampled","tenant":7,"client":"","epoch":0,"at":1700000060000,'
    b'"facts":{"incarnation":"hub-1/17","sequence":4,"from_ms":1700000000000,"sessions":1,"connected":2,'
    b'"subscriptions":3,"queued_messages":4,"queued_bytes":5,"retained_messages":6,"retained_bytes":7}}'
)


def test_golden_bytes_of_version_1_are_written() -> None:
    """What a job has learned to read stays so."""
    usage = analytics.usage_counted(7, PERIOD, Metered(1, 2, 3, 4, 5, 6, 7, 8))
    sample = analytics.tenant_sampled(7, PERIOD, Sample(1, 2, 3, 4, 5, 6, 7))

    assert (encode_event(usage), encode_event(sample)) == (GOLDEN_USAGE_V1, GOLDEN_SAMPLE_V1)


@pytest.mark.parametrize(
    ("event", "facts"),
    [
        (analytics.message_dropped(7, PERIOD, reason="expired", count=3, device="d"), {"reason": "expired"}),
        (analytics.quota_refused(7, PERIOD, quota="connections", count=3, device="d"), {"quota": "connections"}),
        (analytics.auth_failed(7, PERIOD, cause="wrong_secret", count=3, device="d"), {"cause": "wrong_secret"}),
    ],
)
def test_counts_say_what_how_often_and_whose(event: Event, facts: dict[str, str]) -> None:
    """One event for each reason and device of a period, on the log for statistics."""
    shared = {"incarnation": "hub-1/17", "sequence": 4, "from_ms": 1_700_000_000_000, "count": 3, "device": "d"}

    assert dict(event.facts) == {**shared, **facts}
    assert (event.key, event.epoch, event.at_ms) == ("7/", 0, PERIOD.to_ms)
    assert event.type.topic is Topic.ANALYTICS
    assert decode_event(encode_event(event)) == event


def test_figures_add_up_and_know_when_they_are_nothing() -> None:
    """A period in which nothing happened is not written."""
    some, more = Metered(messages_in=2, fanout=5), Metered(messages_in=1, bytes_out=9)

    assert some + more == Metered(messages_in=3, bytes_out=9, fanout=5)
    assert some + more - more == some
    assert some
    assert not some - some
