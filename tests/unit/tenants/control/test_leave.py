"""DISCONNECT: what the client says in it is applied when its connection closes."""

from __future__ import annotations

import pytest

from iothub.base.reasons import Reason
from tests.support import property_names as names
from tests.support.control_house import House
from tests.support.packets import DISCONNECT, Properties, properties

KEPT: Properties = [(names.SESSION_EXPIRY, 100)]
WILL = ("w", b"gone", 0, False)


@pytest.mark.parametrize(("code", "keeps_will"), [(None, False), (0x00, False), (0x04, True), (0x81, True)])
def test_code_says_whether_the_will_stays(house: House, code: int | None, keeps_will: bool) -> None:
    """[MQTT-3.14.4-3]."""
    watcher = house.join("watcher")
    watcher.subscribe(("w", 0))
    house.join(will=WILL).disconnect(code)

    assert bool(watcher.fence()) is keeps_will


def test_disconnect_of_3_1_1_withdraws_the_will(house: House) -> None:
    """[MQTT3-3.14.4-3]."""
    watcher = house.join("watcher")
    watcher.subscribe(("w", 0))
    house.join(version=4, will=WILL).disconnect()

    assert watcher.fence() == []


@pytest.mark.parametrize(("asked", "kept_s"), [(0, 0), (30, 30), (500, 200)])
def test_expiry_is_changed_up_to_the_limit(house: House, asked: int, kept_s: int) -> None:
    house.limit("session_expiry_s=200")
    house.join(props=KEPT).disconnect(0, props=[(names.SESSION_EXPIRY, asked)])
    house.pass_time(kept_s - 0.1 if kept_s else 0.0)
    assert ("c" in house.acme.plane.sessions) is (kept_s > 0)

    house.pass_time(0.2)
    assert "c" not in house.acme.plane.sessions


def test_session_that_ends_with_its_connection_gets_no_longer_life(house: House) -> None:
    """§3.14.2.2.2: 0x82."""
    guest = house.join()
    guest.send_packet(0xE0, b"\x00" + properties(KEPT))

    assert [each.code for each in guest.expect_closed() if each.kind == DISCONNECT] == [0x82]


def test_place_is_given_back(house: House) -> None:
    guest = house.join()
    connection = house.session("c").connection
    assert connection is not None
    control = connection.control
    guest.disconnect()

    assert (control.is_gone, control.is_counted, control.session) == (True, False, None)
    control.detach(Reason.NETWORK)  # idempotent
    assert house.acme.plane.sessions == {}
