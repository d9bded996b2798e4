"""Sessions of other hubs in their thousands: packed, a page at a time, in several turns. iothub_tenants.background.remote_sessions."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from twisted.internet.defer import Deferred

from iothub.records import events
from iothub.records.events import Subject, decode_event, encode_event
from iothub_services.sessions.port import HERE
from iothub_tenants.background import remote_sessions as module
from iothub_tenants.background.remote_sessions import RemoteSessions
from tests.support.in_process.control_harness import now, run
from tests.support.in_process.other_hubs_sessions import ME, OTHER, Scenario, filters

MANY = 1_000
MOST_BYTES = 400  # 379 by a measurement, tables that have just grown included; objects would be 300 more


@pytest.fixture
def scenario(tmp_path: Path) -> Any:
    scenario = Scenario(tmp_path)
    yield scenario
    scenario.harness.close()


def test_many_sessions_are_taken_over_in_several_turns(scenario: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others are served meanwhile, and what ends meanwhile is left alone."""
    monkeypatch.setattr(module, "SLICE", 2)
    for number in range(3):
        subject = Subject(7, f"c{number}", (500 + number) << 24, 0)
        scenario.say(
            events.session_created(
                subject, device="dev1", queue_id=500 + number, protocol_version=5, session_expiry_s=100
            )
        )
    counts: list[int] = []
    Deferred.fromCoroutine(scenario.remote_sessions.take_over(frozenset({2}), 0)).addCallback(counts.append)
    assert counts == []
    scenario.harness.sessions.forget(scenario.harness.acme, scenario.harness.session("c1"))

    scenario.harness.pass_time(0.1)

    assert counts == [2]


def test_session_is_packed_with_each_page_that_is_about_it(tmp_path: Path) -> None:
    """What the log says of it wakes it; what another hub keeps of a client that is gone counts only if it is that hub's."""
    scenario = Scenario(tmp_path)
    sessions = scenario.harness.acme.plane.sessions

    scenario.say(scenario.created(), scenario.subscribed("a"))
    assert (list(sessions.packed), sessions.packed["c"].is_online) == (["c"], False)
    scenario.say(scenario.connected())
    assert list(sessions.awake) == ["c"]  # whoever hears of connected clients has it
    scenario.online.clear()
    scenario.say()
    assert (list(sessions.packed), sessions.packed["c"].is_online) == (["c"], True)
    assert now(scenario.remote_sessions.take_over(frozenset({3}), 0)) == 0
    assert list(sessions.packed) == ["c"]
    assert now(scenario.remote_sessions.take_over(frozenset({2}), 0)) == 1

    assert (list(sessions.awake), filters(scenario.harness)) == (["c"], [b"a"])
    assert sessions["c"].control.place.holder == HERE


def test_session_of_another_hub_costs_little_memory(tmp_path: Path) -> None:
    """Every hub knows every persistent session. As they come from the log: each event with strings and numbers of its own."""
    scenario = Scenario(tmp_path)
    terms = {"device": "dev1", "protocol_version": 5, "session_expiry_s": 86_400}
    options = {"no_local": False, "retain_as_published": False, "retain_handling": 0, "identifier": 0, "group": None}

    def read(numbers: range) -> None:
        page = []
        for number in numbers:
            subject = Subject(7, f"device-{number:012}", number << 24, 1_700_000_000_000 + number)
            created = events.session_created(subject, queue_id=number, **cast("Any", terms))
            subscribed = events.session_subscribed(
                subject, topic_filter=f"devices/{number:012}/commands", qos=1, **cast("Any", options)
            )
            page += [decode_event(encode_event(event.written_by(OTHER))) for event in (created, subscribed)]
        now(scenario.remote_sessions.apply_events(page))

    read(range(1, MANY))
    tracemalloc.start()
    try:
        read(range(MANY, 2 * MANY))
        kept_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert len(scenario.harness.acme.plane.sessions) == 2 * MANY - 1
    assert kept_bytes / MANY <= MOST_BYTES


def test_woken_sessions_of_all_tenants_share_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page packs so many, however many tenants there are."""
    packed: list[int] = []
    monkeypatch.setattr(module, "pack_woken", lambda _plane, at_most: packed.append(at_most))
    brokers = [
        SimpleNamespace(tenant_id=number, plane=SimpleNamespace(sessions=SimpleNamespace(woken={"c": None})))
        for number in range(MANY)
    ]
    hub = SimpleNamespace(brokers=brokers)

    remote = RemoteSessions(cast("Any", hub), cast("Any", None), cast("Any", run), lambda: ME, 1)
    now(remote.apply_events([]))

    assert len(packed) == MANY
    assert sum(packed) <= module.SLICE + MANY
