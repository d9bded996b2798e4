"""What is counted while the rooms work, for the hub and for each tenant."""

from __future__ import annotations

import inspect
import re

import pytest

from iothub.base.reasons import Drop, Reason
from iothub.engine.state import Session, TenantPlane
from iothub.hub.monitoring.telemetry import AuthTelemetry, ByTenant, Telemetry
from iothub.records.events import Event, EventType
from iothub.testing.clock import ManualClock
from iothub_services.auth import authenticator
from iothub_services.auth.authenticator import Authenticated, Credentials, Refusal
from iothub_services.auth.directory import StoreDownError, TooManyWaitError
from iothub_services.auth.port import DeviceRecord, TenantRecord
from iothub_services.auth.token_proof import TokenFault
from iothub_services.metrics import metrics
from iothub_services.metrics.alarms import Alarms
from iothub_services.metrics.tallies import Count
from iothub_services.quota.names import Quota


@pytest.fixture
def telemetry() -> Telemetry:
    return Telemetry(Alarms(ManualClock()))


def page_of(telemetry: Telemetry) -> list[str]:
    return telemetry.registry.render().decode().splitlines()


def refuse(telemetry: Telemetry, cause: str, tenant_id: int) -> None:
    shown = Credentials("acme", "dev1", None, "192.0.2.1")
    AuthTelemetry(telemetry).refused(shown, Refusal(Reason.BAD_CREDENTIALS, cause, 0.0, tenant_id), is_ban=False)


def test_logins_are_counted_by_result_and_by_known_tenant(telemetry: Telemetry) -> None:
    """A name that no tenant has is a client's choice: it is counted, but never kept."""
    AuthTelemetry(telemetry).proven(Authenticated(TenantRecord(7, "acme"), DeviceRecord("dev1", ""), 0))
    refuse(telemetry, "wrong_secret", 7)
    refuse(telemetry, "unknown_tenant", 0)
    refuse(telemetry, "malformed_username", 0)

    assert 'iothub_authentications_total{result="malformed_username"} 1' in page_of(telemetry)
    assert 'iothub_authentications_total{result="accepted"} 1' in page_of(telemetry)
    assert 'iothub_authentications_total{result="wrong_secret"} 1' in page_of(telemetry)
    assert 'iothub_authentications_total{result="unknown_tenant"} 1' in page_of(telemetry)
    assert telemetry.tenant_logins.of(7) == {"accepted": 1, "refused": 1}
    assert telemetry.tenant_logins.of(0) == {}


def test_events_of_sessions_are_counted(telemetry: Telemetry) -> None:
    for kind in (EventType.SESSION_CREATED, EventType.SESSION_SUBSCRIBED, EventType.SESSION_EXPIRED):
        telemetry.happened(Event(kind, 1, "c", 1, 0))

    page = page_of(telemetry)
    assert 'iothub_session_events_total{event="created"} 1' in page
    assert 'iothub_session_events_total{event="expired"} 1' in page
    assert 'iothub_session_events_total{event="discarded"} 0' in page
    assert not [line for line in page if "subscribed" in line]


def test_commits_are_counted_per_store(telemetry: Telemetry) -> None:
    telemetry.committed("queues", 0.004)
    telemetry.committed("queues", 0.004)

    assert telemetry.commits() == {"queues": 2, "retained": 0, "events": 0}
    assert 'iothub_store_commit_duration_seconds_bucket{store="queues",le="0.005"} 2' in page_of(telemetry)


def test_reload_that_fails_keeps_the_time_of_the_good_one(telemetry: Telemetry) -> None:
    telemetry.reloaded(10.0, is_successful=True)
    telemetry.reloaded(20.0, is_successful=False)

    assert (telemetry.reloaded_at, telemetry.is_reload_good) == (10.0, False)


def test_deleted_tenant_is_forgotten(telemetry: Telemetry) -> None:
    telemetry.refused(7, Quota.CONNECTIONS)
    telemetry.would_refuse(7, Quota.CONNECTIONS)
    telemetry.denied(7, "publish")
    refuse(telemetry, "wrong_secret", 7)
    telemetry.forget_tenant(7)

    counts = (telemetry.tenant_rejections, telemetry.tenant_trials, telemetry.tenant_denials, telemetry.tenant_logins)
    assert [count.of(7) for count in counts] == [{}, {}, {}, {}]


def test_counts_of_one_tenant_are_its_own() -> None:
    counts = ByTenant()
    counts.add(1, "publish", 2)
    counts.add(2, "publish")

    assert (counts.of(1), counts.of(2), counts.of(3)) == ({"publish": 2}, {"publish": 1}, {})


def test_every_cause_of_a_refused_login_is_a_known_label() -> None:
    """The list in the metric begins at 0; a cause that is missing there would come out of nowhere."""
    causes = set(re.findall(r'_Refused\(Reason\.\w+, "(\w+)"', inspect.getsource(authenticator)))
    causes -= {"credential_changed", "token_issuer_changed"}  # of a review: no login, and nobody is told
    causes |= {StoreDownError.cause, TooManyWaitError.cause}
    causes |= {fault.value for fault in TokenFault}
    assert causes == set(metrics.LOGIN_CAUSES)


def test_drops_and_refusals_are_tallied_by_device(telemetry: Telemetry) -> None:
    """For the events of a period; messages for nobody may be all that come, and are read from the plane's counter."""
    plane = TenantPlane(7, "acme")
    session = Session(plane, "c", "dev1", False)
    telemetry.dropped(plane, session, Drop.QUEUE_FULL, 2)
    telemetry.dropped(plane, None, Drop.EXPIRED, 1)
    telemetry.dropped(plane, session, Drop.NO_SUBSCRIBERS, 1)
    telemetry.limited(plane, session, "inbound_messages", 3)
    telemetry.refused(7, Quota.CONNECTIONS)

    assert telemetry.drops.take_counts() == [Count(7, "dev1", "queue_full", 2), Count(7, "", "expired", 1)]
    assert telemetry.refusals.take_counts() == [Count(7, "dev1", "publish_messages", 3), Count(7, "", "connections", 1)]


def test_failed_logins_keep_no_name_that_a_client_has_made_up(telemetry: Telemetry) -> None:
    """A device that its tenant has; else anybody could fill the log with names."""
    refuse(telemetry, "wrong_secret", 7)
    refuse(telemetry, "unknown_device", 7)
    refuse(telemetry, "unknown_tenant", 0)

    assert telemetry.failed_logins.take_counts() == [
        Count(7, "dev1", "wrong_secret", 1),
        Count(7, "", "unknown_device", 1),
        Count(0, "", "unknown_tenant", 1),
    ]
