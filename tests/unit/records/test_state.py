"""The fold, case by case, and the stored form of a session's state."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iothub.base.errors import CorruptRecordError
from iothub.records import events
from iothub.records.events import Event, EventType, Subject
from iothub.records.state import SessionState, SubscriptionState, WillState, decode_state, encode_state, fold

GOLDEN_V1 = (
    b'{"v":1,"tenant_id":7,"client_id":"c","epoch":3,"device":"d","queue_id":9,"protocol_version":5,'
    b'"session_expiry_s":60,"created_at_ms":10,"is_connected":true,"connected_at_ms":20,"disconnected_at_ms":15,'
    b'"disconnect_reason":"network","is_ended":false,"offset":99,'
    b'"subscriptions":[[null,"a/+",1,true,false,2,0],["g","a/+",0,false,true,0,7]],'
    b'"will":["w","/w==",2,true,"AQ==",5]}'
)
GOLDEN = SessionState(
    tenant_id=7,
    client_id="c",
    epoch=3,
    device="d",
    queue_id=9,
    protocol_version=5,
    session_expiry_s=60,
    created_at_ms=10,
    is_connected=True,
    connected_at_ms=20,
    disconnected_at_ms=15,
    disconnect_reason="network",
    subscriptions={
        ("g", "a/+"): SubscriptionState(0, retain_as_published=True, identifier=7),
        (None, "a/+"): SubscriptionState(1, no_local=True, retain_handling=2),
    },
    will=WillState("w", b"\xff", 2, True, b"\x01", 5),
    offset=99,
)


def at(epoch: int, ms: int = 100) -> Subject:
    return Subject(7, "c", epoch, ms)


def created(epoch: int = 1, ms: int = 100, queue_id: int = 9) -> Event:
    return events.session_created(at(epoch, ms), device="d", queue_id=queue_id, protocol_version=5, session_expiry_s=60)


def subscribed(epoch: int, topic_filter: str, qos: int = 1, group: str | None = None) -> Event:
    return events.session_subscribed(
        at(epoch),
        topic_filter=topic_filter,
        group=group,
        qos=qos,
        no_local=False,
        retain_as_published=False,
        retain_handling=0,
        identifier=0,
    )


def folded(*log: Event, state: SessionState | None = None) -> SessionState | None:
    for event in log:
        state = fold(state, event)
    return state


def test_golden_record_of_version_1_is_written_and_read() -> None:
    """These bytes never change; subscriptions are in order, so that equal states are equal bytes."""
    assert encode_state(GOLDEN) == GOLDEN_V1
    assert decode_state(GOLDEN_V1) == GOLDEN


def test_fold_follows_a_session_through_its_life() -> None:
    """Created, connected, disconnected with a changed expiry, resumed."""
    state = folded(
        created(1, 100),
        events.session_connected(
            at(1, 110), device="d", protocol_version=5, session_expiry_s=60, peer="p", keep_alive_s=30
        ),
        events.session_disconnected(at(1, 120), reason="client", session_expiry_s=5),
    )
    assert state == SessionState(
        7, "c", 1, "d", 9, 5, 5, 100, False, 110, 120, "client"
    )  # fields in their order, up to the reason

    state = folded(events.session_resumed(at(2, 130), protocol_version=4, session_expiry_s=70), state=state)
    assert state is not None
    assert (state.epoch, state.protocol_version, state.session_expiry_s) == (2, 4, 70)


def test_fold_keeps_subscriptions_by_group_and_filter() -> None:
    """A second one on the same filter replaces; a shared one is another; unsubscribing removes one."""
    state = folded(
        created(),
        subscribed(1, "a", 1),
        subscribed(1, "a", 2),
        subscribed(1, "a", 0, "g"),
        subscribed(1, "b"),
        events.session_unsubscribed(at(1), topic_filter="b", group=None),
        events.session_unsubscribed(at(1), topic_filter="b", group="g"),
    )

    assert state is not None
    assert {key: options.qos for key, options in state.subscriptions.items()} == {(None, "a"): 2, ("g", "a"): 0}


def test_fold_keeps_the_will_until_it_is_cleared() -> None:
    """A new one replaces it."""
    will = events.will_set(at(1), topic="w", payload=b"\xff", qos=2, retain=True, properties=b"\x01", delay_s=5)
    state = folded(created(), will)
    assert state is not None
    assert state.will == WillState("w", b"\xff", 2, True, b"\x01", 5)

    state = folded(events.will_cleared(at(1)), state=state)
    assert state is not None
    assert state.will is None


def test_will_keeps_its_message_expiry_interval() -> None:
    """Through the fold and the stored form; without one the record is as it always was."""
    plain = events.will_set(at(1), topic="w", payload=b"", qos=0, retain=False, properties=b"", delay_s=5)
    expiring = events.will_set(
        at(1), topic="w", payload=b"", qos=0, retain=False, properties=b"", delay_s=5, expiry_s=0
    )

    for will, expiry_s in ((plain, None), (expiring, 0)):
        state = folded(created(), will)
        assert state is not None
        assert state.will == WillState("w", b"", 0, False, b"", 5, expiry_s)
        assert decode_state(encode_state(state)) == state
    assert "expiry_s" not in plain.facts


def test_fold_ignores_events_of_a_fenced_reader() -> None:
    """A log cannot refuse an event, so the fold has to fence."""
    state = folded(created(1), events.session_resumed(at(5), protocol_version=5, session_expiry_s=60))

    for late in (
        subscribed(4, "late"),
        events.session_disconnected(at(4), reason="network"),
        events.session_discarded(at(4), reason="x"),
        created(5),
        created(4),
    ):
        assert fold(state, late) is state


@pytest.mark.parametrize("end", [events.session_expired(at(3)), events.session_discarded(at(3), reason="clean_start")])
def test_fold_leaves_a_tombstone_that_fences_the_next_incarnation(end: Event) -> None:
    """Only a creation above its epoch begins anew, and nothing of the predecessor is left."""
    state = folded(created(2), subscribed(2, "a"), end)

    assert state == SessionState(7, "c", 3, is_ended=True)
    assert folded(subscribed(9, "a"), created(3), state=state) == state
    anew = folded(created(4, ms=500, queue_id=10), state=state)
    assert anew is not None
    assert (anew.epoch, anew.queue_id, anew.is_ended, dict(anew.subscriptions)) == (4, 10, False, {})


def test_fold_replaces_a_session_whose_end_was_never_written() -> None:
    """A crash between the new claim and the old one's end: the higher creation wins."""
    state = folded(created(1), subscribed(1, "a"), created(7, queue_id=10))

    assert state is not None
    assert (state.queue_id, state.epoch, dict(state.subscriptions)) == (10, 7, {})


def test_fold_ignores_transient_sessions_and_unknown_ones() -> None:
    """Epoch 0 is not folded; without a creation there is no state."""
    assert fold(None, subscribed(0, "a")) is None
    assert fold(None, subscribed(1, "a")) is None
    state = folded(created())
    assert fold(state, subscribed(0, "a")) is state
    assert fold(state, Event(EventType.MESSAGE_DROPPED, 7, "c", 9, 1)) is state


def test_fold_ignores_what_it_has_folded() -> None:
    """By its offset: reading a piece of the log twice changes nothing."""
    log = [created(1), subscribed(1, "a"), events.session_unsubscribed(at(1), topic_filter="a", group=None)]
    state: SessionState | None = None
    for offset, event in enumerate(log, 1):
        state = fold(state, event, offset)

    assert state is not None
    assert state.offset == 3
    for offset, event in enumerate(log, 1):
        assert fold(state, event, offset) is state


def test_session_whose_connection_never_came_is_offline_since_its_connect() -> None:
    """Its hub has died in between: the Will of that CONNECT waits from then on, not from the end of the connection before."""
    resumed = events.session_resumed(at(2, 500), protocol_version=5, session_expiry_s=60)
    state = folded(created(), events.session_disconnected(at(1, 150), reason="network"), resumed)

    assert state is not None
    assert (state.is_connected, state.disconnected_at_ms) == (False, 500)


def test_taken_over_session_is_disconnected() -> None:
    """Until its next connection says otherwise."""
    state = folded(created(), events.session_taken_over(at(1, 150), by="p"))

    assert state is not None
    assert (state.is_connected, state.disconnected_at_ms, state.disconnect_reason) == (False, 150, "taken_over")


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60) | st.integers(0, len(GOLDEN_V1) - 1).map(lambda end: GOLDEN_V1[:end]))
def test_arbitrary_bytes_give_a_state_or_the_named_error(record: bytes) -> None:
    """Decoding is total."""
    with pytest.raises(CorruptRecordError):
        decode_state(record)


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        (b'"v":1', b'"v":2', "format version 2"),
        (b'"epoch":3,', b"", "it has no 'epoch'"),
        (b'"client_id":"c"', b'"client_id":"\\ud800"', "half a character"),
        (b'[null,"a/+"', b'[null,"\\udfff"', "half a character"),
        (b'[null,"a/+",1,true,false,2,0]', b"[null]", "a value that this program cannot read"),
        (b'[null,"a/+",1,true,false,2,0]', b"[null,1,2,3,4,5,6,7,8,9]", "something in it is of the wrong type"),
        (b'"/w=="', b'"!"', "a value that this program cannot read"),
    ],
)
def test_state_that_cannot_be_right_is_refused_by_name(old: bytes, new: bytes, what: str) -> None:
    """Future versions and damage."""
    with pytest.raises(CorruptRecordError, match=what):
        decode_state(GOLDEN_V1.replace(old, new))


def test_tombstone_survives_the_round_trip() -> None:
    """Without will and subscriptions."""
    tombstone = SessionState(7, "c", 3)._replace(is_ended=True)

    assert decode_state(encode_state(tombstone)) == tombstone


def test_state_of_another_version_is_damaged() -> None:
    with pytest.raises(CorruptRecordError, match=r"damaged session state \(format version 2, expected 1\)"):
        decode_state(GOLDEN_V1.replace(b'"v":1', b'"v":2'))
    with pytest.raises(CorruptRecordError, match="format version '2'"):
        decode_state(GOLDEN_V1.replace(b'"v":1', b'"v":"2"'))


def test_fold_keeps_whose_session_it_is() -> None:
    """A session that began without a number gets that of the device that resumes it; a connection says nothing of it."""
    numbered = events.session_created(
        at(1), device="d", queue_id=9, protocol_version=5, session_expiry_s=60, device_id=4
    )
    connected = events.session_connected(
        at(1), device="d", protocol_version=5, session_expiry_s=60, peer="p", keep_alive_s=30
    )
    resumed = events.session_resumed(at(2), protocol_version=5, session_expiry_s=60, device_id=5)
    states = [folded(created()), folded(created(), resumed), folded(numbered, connected)]

    assert [state and state.device_id for state in states] == [0, 5, 4]
    assert [state and decode_state(encode_state(state)) == state for state in states] == [True, True, True]


def test_fold_keeps_which_hub_wrote_last() -> None:
    """It has the session. Nobody says so where only one hub uses the log, and such records are as they were."""
    alone = folded(created())
    shared = folded(created().written_by("1.5"), events.session_disconnected(at(1), reason="network").written_by("2.6"))
    fenced = folded(created(epoch=3).written_by("1.5"), events.session_expired(at(2)).written_by("2.6"))

    assert [state and state.hub for state in (alone, shared, fenced)] == ["", "2.6", "1.5"]
    assert [state and decode_state(encode_state(state)) == state for state in (alone, shared)] == [True, True]
    assert alone is not None
    assert b"hub" not in encode_state(alone)
