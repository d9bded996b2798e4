"""SUBSCRIBE and UNSUBSCRIBE: each Topic Filter by itself, durable before it is acknowledged, counted once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from iothub.records.message import StoredMessage, encode_message
from iothub.records.state import SessionState, fold
from iothub_services.auth.port import Action, Effect, Rule, Scope, TenantRecord
from iothub_services.quota.names import Quota
from iothub_services.retained.port import RetainedWrite
from iothub_tenants.control.subscribe import SLICE
from tests.support.clients import property_names as names
from tests.support.clients.mqtt_clients import Client
from tests.support.clients.packets import CONNACK, DISCONNECT, SUBACK, UNSUBACK
from tests.support.in_process.control_harness import EVERYTHING, Harness
from tests.support.in_process.retained_harness import Bodies

KEPT = [(names.SESSION_EXPIRY, 100)]
NO_SECRETS = Rule(Scope.TENANT, "", Effect.DENY, Action.SUBSCRIBE, "secret/#")


@pytest.mark.parametrize(("version", "denied", "invalid"), [(5, 0x87, 0x8F), (4, 0x80, 0x80)])
def test_each_filter_has_its_own_answer(harness: Harness, version: int, denied: int, invalid: int) -> None:
    """[MQTT-3.8.4-6] [MQTT-3.9.3-1] [MQTT3-3.9.3-2]."""
    harness.accounts.add(TenantRecord(7, "acme", rules=(EVERYTHING, NO_SECRETS), limits="filter_levels=3"))
    client = harness.join(version=version)

    suback = client.subscribe(("a/+", 2), ("secret/x", 1), ("1/2/3/4", 0), ("b", 0))

    assert suback.codes == [2, denied, invalid, 0]
    assert [topic for _, topic in harness.session("c").subscriptions] == [b"a/+", b"b"]
    assert harness.recorder.denials == ["subscribe"]
    assert harness.recorder.refusals == [Quota.FILTER_LEVELS]


def test_filter_has_1024_levels_at_most_whatever_the_plan_says(harness: Harness) -> None:
    """What follows `$share/{group}/` counts; the refusal has the quota's name."""
    harness.limit("filter_levels=unlimited")
    client = harness.join()
    deepest = "/" * 1023

    assert client.subscribe((deepest, 0), (deepest + "/", 0)).codes == [0, 0x8F]
    assert client.subscribe(("$share/g/" + deepest, 0), ("$share/g/" + deepest + "/", 0)).codes == [0, 0x8F]
    assert harness.recorder.refusals == [Quota.FILTER_LEVELS] * 2


@pytest.mark.parametrize("bad", ["", "a/#/b", "ab/+e", "#/", "$share/g", "$share/g/", "$share//a", "$share/g+/a"])
@pytest.mark.parametrize("version", [4, 5])
def test_ill_formed_filter_closes_and_leaves_everything_as_it_was(harness: Harness, version: int, bad: str) -> None:
    """In SUBSCRIBE and UNSUBSCRIBE, wherever it stands: no other filter of the packet takes effect, none counts for the rate or a quota.

    [MQTT-4.7.3-1] [MQTT-4.7.1-1] [MQTT-4.7.1-2] [MQTT-4.8.2-1] [MQTT-4.8.2-2] [MQTT3-4.7.3-1]
    """
    harness.limit("subscribes=2/1h")
    client = harness.join(version=version, clean=False, props=KEPT)
    client.subscribe(("a", 1))

    client.send_subscribe(("b", 1), (bad, 1), packet_id=2)
    said = [packet.code for packet in client.expect_closed()]
    again = harness.join(version=version, clean=False, props=KEPT)
    again.send_unsubscribe("a", bad, packet_id=3)
    said += [packet.code for packet in again.expect_closed()]

    assert said == ([0x81, 0x81] if version == 5 else [])
    assert list(harness.session("c").subscriptions) == [(None, b"a")]
    assert harness.used(Quota.SUBSCRIPTIONS) == 1
    assert harness.join(version=version, clean=False, props=KEPT).subscribe(("b", 1)).codes == [1]


@pytest.mark.parametrize("limit", ["session_subscriptions=2", "subscriptions=2"])
def test_limit_is_exact_within_one_packet(harness: Harness, limit: str) -> None:
    """What is there already is replaced for nothing."""
    harness.limit(limit)
    client = harness.join()

    assert client.subscribe(("a", 0), ("a", 1), ("b", 0), ("c", 0)).codes == [0, 1, 0, 0x97]
    assert client.subscribe(("b", 2)).codes == [2]
    assert harness.used(Quota.SUBSCRIPTIONS) == 2


def test_shared_groups_and_their_members_are_counted(harness: Harness) -> None:
    harness.limit("shared_groups=1 group_members=1")
    one, two = harness.join("one"), harness.join("two")

    assert one.subscribe(("$share/g/a", 0), ("$share/h/a", 0)).codes == [0, 0x97]
    assert two.subscribe(("$share/g/a", 0)).codes == [0x97]
    one.disconnect()
    assert two.subscribe(("$share/h/a", 0)).codes == [0]


def test_answer_above_the_clients_maximum_packet_size_ends_the_connection(harness: Harness) -> None:
    """SUBACK and UNSUBACK: not sent, and the client is told why [MQTT-3.1.2-24]."""
    for answer in (SUBACK, UNSUBACK):
        client = harness.join(props=[(names.MAXIMUM_PACKET_SIZE, 60)])
        fits = [f"f/{number}" for number in range(60 - 5)]
        assert len(client.subscribe(*((each, 0) for each in fits)).codes) == len(client.unsubscribe(*fits).codes) == 55

        if answer == SUBACK:
            client.send_subscribe(*((f"f/{number}", 0) for number in range(56)), packet_id=2)
        else:
            client.send_unsubscribe(*(f"f/{number}" for number in range(56)), packet_id=2)

        assert [(packet.kind, packet.code) for packet in client.expect_closed()] == [(DISCONNECT, 0x95)]


def test_no_local_on_a_shared_subscription_is_a_protocol_error(harness: Harness) -> None:
    """[MQTT-3.8.3-4]."""
    client = harness.join()
    with pytest.raises(AssertionError):
        client.subscribe(("$share/g/a", 0b100))

    assert [each.code for each in client.received if each.kind == DISCONNECT] == [0x82]


def test_kept_subscription_is_durable_before_suback(harness: Harness) -> None:
    client = harness.join(props=KEPT)
    harness.journal.is_held = True
    with pytest.raises(TimeoutError):
        client.subscribe(("a", 1))
    assert harness.session("c").subscriptions == {}

    harness.journal.release()
    harness.settle()

    assert client.expect(SUBACK).codes == [1]
    assert list(harness.session("c").subscriptions) == [(None, b"a")]
    assert "session.subscribed" in harness.journal.words()


def test_subscription_that_cannot_be_made_durable_is_refused(harness: Harness) -> None:
    """0x80, and its place is free again."""
    client = harness.join(props=KEPT)
    harness.journal.is_down = True

    assert client.subscribe(("a", 1)).codes == [0x80]
    assert (harness.used(Quota.SUBSCRIPTIONS), harness.session("c").subscriptions) == (0, {})


def test_refused_subscription_that_may_be_in_the_log_is_undone_there(harness: Harness) -> None:
    """The next start finds what the client was told: the old options of the one, nothing of the other."""
    client = harness.join(props=KEPT)
    client.subscribe(("a", 1))
    harness.journal.is_down = harness.journal.is_uncertain = True

    assert client.subscribe(("a", 2), ("b", 1)).codes == [0x80, 0x80]

    undone = harness.journal.events[-2:]
    assert [(each.type.word, each.facts["filter"], each.facts.get("qos")) for each in undone] == [
        ("session.subscribed", "a", 1),
        ("session.unsubscribed", "b", None),
    ]
    assert [each.qos for each in harness.session("c").subscriptions.values()] == [1]


@pytest.mark.parametrize(("topic_filter", "left"), [("a", [b"b", b"a"]), ("b", [b"b"])])
def test_subscription_that_was_replaced_or_ended_meanwhile_counts_once(
    harness: Harness, topic_filter: str, left: list[bytes]
) -> None:
    """The client has come back while the log kept its first connection waiting, and has done the same, or the opposite."""
    first = harness.join(props=KEPT)
    first.subscribe(("b", 1))
    harness.journal.is_held = True
    with pytest.raises(TimeoutError):
        first.subscribe((topic_filter, 2))
    waiting, harness.journal.waiting = harness.journal.waiting, []
    harness.journal.is_held = False
    again = harness.join(clean=False, props=KEPT)
    if topic_filter == "a":
        again.subscribe(("a", 1))
    else:
        again.unsubscribe("b")

    waiting[0].callback(None)
    harness.settle()

    assert [topic for _, topic in harness.session("c").subscriptions] == left
    assert harness.used(Quota.SUBSCRIPTIONS) == len(left)


def test_options_of_a_subscription_are_in_the_log(harness: Harness) -> None:
    """Of a passing session as well: whoever follows the log knows who is subscribed to what."""
    harness.join().subscribe(("a", 0b0010_1101), ("$share/g/b", 0))
    plain = [event for event in harness.journal.events if event.type.word == "session.subscribed"]
    assert {event.at_ms for event in plain} == {int(harness.clock.wall() * 1000)}
    kept = harness.join("d", props=KEPT)
    kept.subscribe(("c", 2), props=[(names.SUBSCRIPTION_ID, 9)])

    facts = [each.facts for each in [*plain, harness.journal.events[-1]]]

    assert [(each["filter"], each.get("group"), each["qos"], each.get("identifier", 0)) for each in facts] == [
        ("a", None, 1, 0),
        ("b", "g", 0, 0),
        ("c", None, 2, 9),
    ]
    assert (facts[0]["no_local"], facts[0]["retain_as_published"], facts[0]["retain_handling"]) == (True, True, 2)


def test_new_subscription_gets_what_is_retained(make_harness: Callable[..., Harness]) -> None:
    """Behind its SUBACK; a Topic Filter that is refused gets nothing, though it is subscribed to from before."""
    retained = Bodies()
    body = encode_message(StoredMessage(b"a", b"kept", 0, True, b"", 0, b"", "p"))
    retained.store.put([RetainedWrite(7, b"a", body)])
    harness = make_harness(retained=retained)
    client = harness.join(props=KEPT)

    assert client.subscribe(("a", 0)).codes == [0]
    harness.settle()
    assert client.get()[0].payload == b"kept"
    assert client.subscribe(("x", 0)).codes == [0]
    harness.journal.is_down = True
    assert client.subscribe(("a", 0)).codes == [0x80]
    harness.settle()
    assert client.fence() == []


@pytest.mark.parametrize(("version", "refused"), [(5, 0x97), (4, 0x80)])
def test_client_that_subscribes_again_faster_than_it_reads_is_refused(
    make_harness: Callable[..., Harness], monkeypatch: pytest.MonkeyPatch, version: int, refused: int
) -> None:
    """Two replays may wait, and one more for each subscription it has, or gets with the packet."""
    monkeypatch.setattr("iothub_tenants.control.subscribe.MOST_REPLAYS", 2)
    retained = Bodies()
    retained.store.put(
        [RetainedWrite(7, b"a", encode_message(StoredMessage(b"a", b"kept", 0, True, b"", 0, b"", "p")))]
    )
    retained.is_held = True
    harness = make_harness(retained=retained)
    client = harness.join(version=version)

    assert client.subscribe(("a", 0), ("a", 0), ("a", 0), ("a", 0)).codes == [0, 0, 0, refused]
    assert client.subscribe(("a", 0)).codes == [refused]
    assert client.subscribe(("b", 0), ("a", 0), ("c", 0)).codes == [0, refused, 0]
    assert client.subscribe(("b", 0)).codes == [refused]
    assert harness.recorder.refusals == [Quota.SUBSCRIBES] * 4
    assert harness.used(Quota.SUBSCRIPTIONS) == 3

    retained.release()
    harness.settle()
    assert client.subscribe(("a", 0)).codes == [0]
    harness.settle()
    assert [got.payload for got in client.get(4)] == [b"kept"] * 4
    assert client.fence() == []


def test_units_of_other_hubs_are_asked_for_before_they_are_reserved(harness: Harness) -> None:
    """As many as one stretch of the packet needs; what the session has already costs a unit of the rate alone."""
    client = harness.join(props=KEPT)
    client.subscribe(("f/0", 0), ("f/1", 0))
    others = harness.share_quota()

    with pytest.raises(TimeoutError):
        client.subscribe(*((f"f/{number}", 0) for number in range(SLICE)), ("a", 0), ("a", 0), ("b", 0))
    finish(harness)

    assert len(client.expect(SUBACK).codes) == SLICE + 3
    assert others.asked == [
        ((Quota.SUBSCRIBES, SLICE), (Quota.SUBSCRIPTIONS, SLICE - 2)),
        ((Quota.SUBSCRIBES, 3), (Quota.SUBSCRIPTIONS, 2)),
    ]


def test_ledger_that_does_not_answer_refuses_without_a_quota_s_name(harness: Harness) -> None:
    """0x80 instead of 0x97: the client may try again; what fits without it is granted."""
    harness.limit("subscriptions=1")
    client = harness.join(props=KEPT)
    harness.share_quota().is_silent = True

    assert client.subscribe(("a", 0), ("b", 0)).codes == [0, 0x80]


def test_subscription_of_a_session_that_ended_meanwhile_gives_its_place_back(harness: Harness) -> None:
    client = harness.join(props=KEPT)
    harness.journal.is_held = True
    with pytest.raises(TimeoutError):
        client.subscribe(("a", 1))
    waiting, harness.journal.waiting = harness.journal.waiting, []
    harness.journal.is_held = False
    harness.join(clean=True, props=KEPT)

    waiting[0].callback(None)
    harness.settle()

    assert (harness.used(Quota.SUBSCRIPTIONS), harness.session("c").subscriptions) == (0, {})


def test_long_subscribe_ends_with_its_connection(harness: Harness) -> None:
    """Others get their turn between its slices; who comes back meanwhile is not given afterwards what he does not want any more."""
    client = harness.join(props=KEPT)
    with pytest.raises(TimeoutError):
        client.subscribe(*((f"f/{number}", 0) for number in range(3 * SLICE)))
    again = takes_over_between_slices(harness)

    assert again.unsubscribe("f/1", f"f/{3 * SLICE - 1}").codes == [0x11, 0x11]
    finish(harness)
    assert (harness.used(Quota.SUBSCRIPTIONS), harness.session("c").subscriptions) == (0, {})
    assert subscribed_in_the_log(harness) == set()


def test_long_subscribe_that_is_durable_takes_effect_before_anybody_comes_back(harness: Harness) -> None:
    client = harness.join(props=KEPT)
    with pytest.raises(TimeoutError):
        client.subscribe(*((f"f/{number}", 0) for number in range(SLICE * 3 - 1)))
    harness.pass_time(0)
    harness.pass_time(0)  # recorded; the first slice is active
    assert len(harness.session("c").subscriptions) == SLICE - 1
    again = takes_over_between_slices(harness)

    assert again.unsubscribe(f"f/{3 * SLICE - 2}").codes == [0]
    finish(harness)
    assert len(harness.session("c").subscriptions) == harness.used(Quota.SUBSCRIPTIONS) == 3 * SLICE - 2
    assert subscribed_in_the_log(harness) == {name.decode() for _, name in harness.session("c").subscriptions}


def test_long_unsubscribe_ends_with_its_connection(harness: Harness) -> None:
    """What was subscribed again by who comes back meanwhile stays, here and in the log."""
    client = harness.join(props=KEPT)
    names = [f"f/{number}" for number in range(3 * SLICE)]
    for at in range(0, len(names), 200):
        client.subscribe(*((name, 0) for name in names[at : at + 200]))
    with pytest.raises(TimeoutError):
        client.unsubscribe(*names)
    assert len(harness.session("c").subscriptions) == len(names) - (SLICE - 1)
    again = takes_over_between_slices(harness)
    assert again.subscribe((names[0], 0), (names[-1], 0)).codes == [0, 0]
    finish(harness)

    assert (None, names[0].encode()) in harness.session("c").subscriptions
    assert (None, names[-1].encode()) in harness.session("c").subscriptions
    assert subscribed_in_the_log(harness) == {name.decode() for _, name in harness.session("c").subscriptions}
    assert harness.used(Quota.SUBSCRIPTIONS) == len(harness.session("c").subscriptions)


def takes_over_between_slices(harness: Harness) -> Client:
    """The same client on a new connection, whose session takes a turn of the reactor to be resumed."""
    harness.journal.is_held = True
    again = harness.open_connection()
    with pytest.raises(TimeoutError):
        again.connect("c", "acme/dev1", clean=False, props=KEPT)
    harness.pass_time(0)
    harness.journal.release()
    harness.settle()
    assert again.expect(CONNACK).body[0] == 1
    return again


def finish(harness: Harness) -> None:
    """Nothing breathes any more."""
    while harness.laters:
        harness.pass_time(0.1)


def subscribed_in_the_log(harness: Harness) -> set[str]:
    state: SessionState | None = None
    for event in harness.journal.events:
        state = fold(state, event)
    assert state is not None
    return {name for _, name in state.subscriptions}


@pytest.mark.parametrize("props", [None, KEPT], ids=["transient", "kept"])
def test_unsubscribe_says_what_there_was(harness: Harness, props: list[tuple[int, object]] | None) -> None:
    """[MQTT-3.11.3-2] [MQTT-3.10.4-5]."""
    client = harness.join(props=props)
    client.subscribe(("a", 0), ("$share/g/b", 0))
    harness.journal.words()

    assert client.unsubscribe("a", "nothing", "$share/g/b").codes == [0, 0x11, 0]
    assert harness.journal.words() == ["session.unsubscribed"] * 2
    assert [harness.used(each) for each in (Quota.SUBSCRIPTIONS, Quota.SHARED_GROUPS)] == [0, 0]


def test_unsubscribe_of_3_1_1_has_no_codes(harness: Harness) -> None:
    assert harness.join(version=4).unsubscribe("a").codes == []
