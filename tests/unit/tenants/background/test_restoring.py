"""A session from its state: routes, terms, Will, counts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from iothub.engine.state import Place
from iothub.records.state import SessionState, SubscriptionState, WillState
from iothub_services.quota.names import Quota
from iothub_services.sessions.port import HERE, SessionControl
from iothub_tenants.background.restoring import restore, subscription_of, will_of
from tests.support.in_process.control_harness import Harness

STATE = SessionState(
    7,
    "c",
    5 << 24,
    "dev1",
    queue_id=5,
    protocol_version=5,
    session_expiry_s=60,
    subscriptions={("g", "a/#"): SubscriptionState(1, identifier=3), (None, "b"): SubscriptionState(2, no_local=True)},
    will=WillState("w", b"bye", 1, True, b"", 7, 9),
    device_id=4,
)


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    made = Harness(tmp_path)
    yield made
    made.close()


def test_restored_session_is_known_counted_and_offline(harness: Harness) -> None:
    """With what its state says, and nothing else."""
    control = restore(harness.hub, harness.acme, STATE)

    session = harness.session("c")
    assert session.control is control
    assert (session.queue_id, session.epoch, session.device, session.connection) == (5, 5 << 24, "dev1", None)
    assert (control.version, control.expiry_s, control.device_id, control.is_elsewhere) == (5, 60, 4, False)
    assert set(session.subscriptions) == {(b"g", b"a/#"), (None, b"b")}
    assert (harness.used(Quota.SESSIONS), harness.used(Quota.SUBSCRIPTIONS)) == (1, 2)


def test_options_of_a_subscription_and_of_a_will_are_kept(harness: Harness) -> None:
    restore(harness.hub, harness.acme, STATE)
    session = harness.session("c")

    shared = subscription_of(session, ("g", "a/#"), STATE.subscriptions["g", "a/#"])
    will = will_of(STATE)

    assert (shared.group, shared.filter, shared.qos, shared.identifier) == (b"g", b"a/#", 1, 3)
    assert will is not None
    assert (will.topic, will.payload, will.qos, will.retain, will.delay_s, will.expiry_s) == (
        b"w",
        b"bye",
        1,
        True,
        7,
        9,
    )
    assert will_of(SessionState(7, "c", 1)) is None


def test_a_client_is_online_elsewhere_while_the_log_says_so() -> None:
    """Not when the session is here, and not when it is offline there."""
    control = SessionControl(5, 60, None)
    answers = [control.is_online_elsewhere]
    for place in (Place(HERE, 1, is_online=True), Place(2, 1), Place(2, 1, is_online=True)):
        control.place = place
        answers.append(control.is_online_elsewhere)

    assert answers == [False, False, False, True]
