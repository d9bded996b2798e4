"""The table of reactions is complete, agrees with the list of reasons, and each quota has the reaction that the tests name."""

from __future__ import annotations

import pytest

from iothub.base.reasons import Reason
from iothub_services.quota.names import Quota
from iothub_services.quota.reactions import (
    HITS,
    REACTIONS,
    Answer,
    Effect,
    Hit,
    describe,
    markdown_table,
    reaction,
)


def test_table_has_every_row_and_every_name() -> None:
    """No limit without a reaction."""
    assert set(REACTIONS) == set(Hit)
    assert set(HITS) == set(Quota)


@pytest.mark.parametrize(
    ("hit", "old", "new"),
    [
        (Hit.CONNECTIONS, "CONNACK 3, close", "CONNACK 0x97, close"),
        (Hit.CONNECT_RATE, "CONNACK 3, close", "CONNACK 0x9F, close"),
        (Hit.SESSIONS, "CONNACK 3, close", "CONNACK 0x97, close"),
        (Hit.INBOUND_WINDOW, "QoS 0 dropped; QoS 1/2 close", "QoS 0 dropped; QoS 1/2 PUBACK/PUBREC 0x97"),
        (Hit.SUBSCRIPTIONS, "SUBACK 0x80", "SUBACK 0x97"),
        (Hit.PACKET_BYTES, "close", "DISCONNECT 0x95, close"),
        (Hit.TOPIC_FILTER, "SUBACK 0x80", "SUBACK 0x8F"),
        (Hit.RECEIVE_MAXIMUM, "not read until earlier ones are answered", "DISCONNECT 0x93, close"),
        (Hit.DENIED_CONNECT, "CONNACK 5, close", "CONNACK 0x87, close"),
        (Hit.DENIED_SUBSCRIBE, "SUBACK 0x80", "SUBACK 0x87"),
    ],
)
def test_rows_read_as_documented(hit: Hit, old: str, new: str) -> None:
    """Each quota has exactly these reactions."""
    assert (describe(reaction(hit, 4)), describe(reaction(hit, 5))) == (old, new)
    assert reaction(hit, 3) is reaction(hit, 4)


def test_inbound_rate_is_back_pressure_first() -> None:
    """Then 3.x is closed, 5.0 answered by QoS."""
    for version in (4, 5):
        assert reaction(Hit.INBOUND_RATE, version).steps[0].effect is Effect.PAUSED
    assert reaction(Quota.PUBLISH_MESSAGES, 4).step(1).is_closed
    assert reaction(Quota.PUBLISH_MESSAGES, 5).step(1).code == 0x97
    assert reaction(Quota.PUBLISH_MESSAGES, 5).step(0).code == 0x96
    assert reaction(Quota.PUBLISH_MESSAGES, 5).step(0).is_closed


def test_denied_publish_keeps_the_connection() -> None:
    """Acknowledged and dropped in 3.x, told by code in 5.0."""
    for version, code in ((4, 0), (5, 0x87)):
        for qos in (1, 2):
            step = reaction(Hit.DENIED_PUBLISH, version).step(qos)
            assert (step.answer, step.code, step.is_closed) == (Answer.PUBACK, code, False)
        assert reaction(Hit.DENIED_PUBLISH, version).step(0).answer is Answer.NONE


@pytest.mark.parametrize(
    ("hit", "reason"),
    [
        (Hit.CONNECTIONS, Reason.QUOTA),
        (Hit.CONNECT_RATE, Reason.CONNECTION_RATE),
        (Hit.OVERLOAD, Reason.OVERLOAD),
        (Hit.DENIED_CONNECT, Reason.NOT_AUTHORIZED),
        (Hit.DENIED_CONNECT, Reason.BAD_CREDENTIALS),
    ],
)
def test_codes_are_those_of_the_reasons(hit: Hit, reason: Reason) -> None:
    """What the control plane sends by name is what the table says."""
    assert reaction(hit, 5).step().code == reason.code
    assert reaction(hit, 4).step().code == reason.connack


def test_table_for_the_documentation_is_whole() -> None:
    """One line per row, no cell empty."""
    lines = markdown_table().splitlines()

    assert len(lines) == len(Hit) + 2
    assert all(cell.strip() for line in lines for cell in line.strip("|").split("|"))
