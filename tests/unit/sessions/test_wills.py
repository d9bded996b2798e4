"""When the Will of a session is sent, and when not."""

from __future__ import annotations

from dataclasses import replace

from iothub_services.auth.port import Action, Effect, Rule, Scope
from tests.support import property_names as names
from tests.support.control_house import EVERYTHING, House
from tests.support.kept_sessions import WILL, keen_on_wills, keep, payloads
from tests.support.party import Guest

NO_WILLS = Rule(Scope.TENANT, "", Effect.DENY, Action.PUBLISH, "w/#")


def test_will_is_sent_at_once_when_the_connection_breaks(house: House, watcher: Guest) -> None:
    """[MQTT-3.1.2-8]."""
    keep(house, will=WILL).drop()
    house.pass_time(0.1)

    assert payloads(watcher) == [b"gone"]
    assert "will.cleared" in house.journal.words()
    house.pass_time(200)
    assert payloads(watcher) == []


def test_will_is_not_sent_after_a_normal_disconnect(house: House, watcher: Guest) -> None:
    """[MQTT-3.1.2-10]."""
    keep(house, will=WILL).disconnect()
    house.pass_time(200)

    assert payloads(watcher) == []


def test_will_is_sent_when_disconnect_asks_for_it(house: House, watcher: Guest) -> None:
    """Reason Code 0x04 [MQTT-3.14.4-3]."""
    keep(house, will=WILL).disconnect(0x04)
    house.pass_time(0.1)

    assert payloads(watcher) == [b"gone"]


def test_delayed_will_waits(house: House, watcher: Guest) -> None:
    """[MQTT-3.1.3-9]."""
    keep(house, will=WILL, will_props=[(names.WILL_DELAY, 10)]).drop()
    house.pass_time(9)
    assert payloads(watcher) == []

    house.pass_time(1)
    assert payloads(watcher) == [b"gone"]


def test_delayed_will_is_cancelled_by_a_reconnect(house: House, watcher: Guest) -> None:
    """[MQTT-3.1.3-9]."""
    keep(house, will=WILL, will_props=[(names.WILL_DELAY, 10)]).drop()
    house.pass_time(5)
    guest = keep(house)
    house.pass_time(50)
    guest.disconnect()
    house.pass_time(50)

    assert payloads(watcher) == []


def test_delayed_will_comes_with_the_end_of_the_session(house: House, watcher: Guest) -> None:
    """Whichever is first: the delay is longer than the session lives."""
    keep(house, will=WILL, will_props=[(names.WILL_DELAY, 1000)]).drop()
    house.pass_time(100)

    assert payloads(watcher) == [b"gone"]


def test_clean_start_sends_a_will_that_waits(house: House, watcher: Guest) -> None:
    """The session that it belonged to has ended."""
    keep(house, will=WILL, will_props=[(names.WILL_DELAY, 10)]).drop()
    keep(house, clean=True)

    assert payloads(watcher) == [b"gone"]


def test_will_of_a_device_that_may_not_publish_there_any_more_is_dropped(house: House, watcher: Guest) -> None:
    """Checked again when it fires."""
    guest = keep(house, will=WILL, will_props=[(names.WILL_DELAY, 10)])
    guest.drop()
    house.accounts.add(replace(house.accounts.tenants["acme"], rules=(NO_WILLS, EVERYTHING), version=2))
    house.hub.authenticator.invalidate(7)
    house.pass_time(10)

    assert payloads(watcher) == []
    assert house.acme.plane.counters.drops()["denied"] == 1


def test_log_has_a_will_until_it_is_stored(house: House) -> None:
    """After a crash in between, the next start finds the Will in the log and sends it again."""
    sleeper = keep(house, "sleeper", username="acme/dev2")
    sleeper.subscribe(("w/#", 1))
    sleeper.disconnect()
    house.journal.words()
    house.is_store_held = True

    keep(house, will=WILL).drop()
    house.pass_time(0.1)
    assert "will.cleared" not in house.journal.words()

    house.is_store_held = False
    house.settle()
    assert house.journal.words() == ["will.cleared"]


def held_will(house: House) -> None:
    """A Will has fired, and the store does not take it yet."""
    sleeper = keep(house, "sleeper", username="acme/dev2")
    sleeper.subscribe(("w/#", 1))
    sleeper.disconnect()
    house.is_store_held = True
    keep(house, will=WILL).drop()
    house.pass_time(0.1)
    house.journal.words()


def test_will_on_its_way_stays_in_the_log_when_its_session_comes_back(house: House) -> None:
    """Until it is stored; then it is cleared with the epoch of now, which the fold does not ignore."""
    held_will(house)

    keep(house)

    assert house.journal.words() == ["session.resumed", "session.connected"]
    house.is_store_held = False
    house.settle()
    (cleared,) = house.journal.events
    assert (cleared.type.value, cleared.epoch) == ("will.cleared", house.acme.plane.sessions["c"].epoch)


def test_will_on_its_way_does_not_clear_the_next_one(house: House) -> None:
    """The next connection's Will has taken its place in the log."""
    held_will(house)

    keep(house, will=WILL)

    assert house.journal.words() == ["session.resumed", "will.set", "session.connected"]
    house.is_store_held = False
    house.settle()
    assert house.journal.words() == []


def test_will_without_delay_is_sent_before_the_next_connection_comes(house: House, watcher: Guest) -> None:
    """Taken over, or back at once: the old connection was closed, and there was nothing to wait for [MQTT-3.1.2-8] [MQTT-3.1.4-3]."""
    keep(house, will=WILL)
    keep(house, will=WILL).drop()
    keep(house)

    assert payloads(watcher) == [b"gone", b"gone"]


def test_will_of_a_transient_session_is_under_way_until_it_is_stored(house: House) -> None:
    """A hub that stops waits for it: no log remembers it."""
    keen_on_wills(house)
    guest = house.join(will=WILL)
    house.is_store_held = True
    guest.drop()
    assert house.sessions.wills_under_way == 1

    house.is_store_held = False
    house.settle()

    assert house.sessions.wills_under_way == 0
