"""`overload.session_backlog_bytes`: what waits in memory for the window of one session, of every tenant, also after a reload."""

from __future__ import annotations

from dataclasses import replace

from iothub_services.auth.port import TenantRecord
from tests.support.in_process.control_harness import Harness, now


def reload(harness: Harness, backlog_bytes: int) -> None:
    settings = harness.hub.settings
    harness.hub.apply(replace(settings, overload=replace(settings.overload, session_backlog_bytes=backlog_bytes)))


def test_reload_reaches_tenants_that_are_there_and_those_that_come(harness: Harness) -> None:
    there = harness.acme.plane

    reload(harness, 70_000)

    came = now(harness.hub.brokers.broker(TenantRecord(8, "other"))).plane
    assert (there.limits.backlog_bytes, came.limits.backlog_bytes) == (70_000, 70_000)


def test_change_of_a_tenants_limits_leaves_the_setting_in_force(harness: Harness) -> None:
    reload(harness, 70_000)

    harness.acme.allowance.apply_limits(harness.acme.record, {})

    assert harness.acme.plane.limits.backlog_bytes == 70_000
