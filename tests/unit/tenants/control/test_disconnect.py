"""DISCONNECT: what the client says in it is applied when its connection closes."""

from __future__ import annotations

import pytest

from iothub.base.reasons import Reason
from tests.support.clients import property_names as names
from tests.support.clients.packets import DISCONNECT, Properties, properties
from tests.support.in_process.control_harness import Harness

KEPT: Properties = [(names.SESSION_EXPIRY, 100)]
WILL = ("w", b"gone", 0, False)


@pytest.mark.parametrize(("code", "keeps_will"), [(None, False), (0x00, False), (0x04, True), (0x81, True)])
def test_code_says_whether_the_will_stays(harness: Harness, code: int | None, keeps_will: bool) -> None:
    """[MQTT-3.14.4-3]."""
    watcher = harness.join("watcher")
    watcher.subscribe(("w", 0))
    harness.join(will=WILL).disconnect(code)

    assert bool(watcher.fence()) is keeps_will


def test_disconnect_of_3_1_1_withdraws_the_will(harness: Harness) -> None:
    """[MQTT3-3.14.4-3]."""
    watcher = harness.join("watcher")
    watcher.subscribe(("w", 0))
    harness.join(version=4, will=WILL).disconnect()

    assert watcher.fence() == []


@pytest.mark.parametrize(("asked", "kept_s"), [(0, 0), (30, 30), (500, 200)])
def test_expiry_is_changed_up_to_the_limit(harness: Harness, asked: int, kept_s: int) -> None:
    harness.limit("session_expiry_s=200")
    harness.join(props=KEPT).disconnect(0, props=[(names.SESSION_EXPIRY, asked)])
    harness.pass_time(kept_s - 0.1 if kept_s else 0.0)
    assert ("c" in harness.acme.plane.sessions) is (kept_s > 0)

    harness.pass_time(0.2)
    assert "c" not in harness.acme.plane.sessions


def test_session_that_ends_with_its_connection_gets_no_longer_life(harness: Harness) -> None:
    """§3.14.2.2.2: 0x82."""
    client = harness.join()
    client.send_packet(0xE0, b"\x00" + properties(KEPT))

    assert [each.code for each in client.expect_closed() if each.kind == DISCONNECT] == [0x82]


def test_place_is_given_back(harness: Harness) -> None:
    client = harness.join()
    connection = harness.session("c").connection
    assert connection is not None
    control = connection.control
    client.disconnect()

    assert (connection.is_closed, control.is_counted, control.session) == (True, False, None)
    control.detach(Reason.NETWORK)  # idempotent
    assert harness.acme.plane.sessions == {}
