"""Properties of the fold: checkpoint + tail gives the whole state; folded events and events of fenced readers change nothing."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from iothub.records import events
from iothub.records.events import Event, Subject
from iothub.records.state import SessionState, decode_state, encode_state, fold, fold_all
from tests.support.night import by_day

subjects = st.builds(Subject, st.just(7), st.just("c"), st.integers(0, 6), st.integers(0, 50))
expiries = st.sampled_from([0, 60, 2**32 - 1])
filters = st.sampled_from(["a", "b/+", "#"])
groups = st.sampled_from([None, "g"])

any_event = st.one_of(
    st.builds(
        lambda subject, expiry: events.session_created(
            subject, device="d", queue_id=subject.epoch, protocol_version=5, session_expiry_s=expiry
        ),
        subjects,
        expiries,
    ),
    st.builds(
        lambda s, expiry: events.session_resumed(s, protocol_version=4, session_expiry_s=expiry), subjects, expiries
    ),
    st.builds(
        lambda s, expiry: events.session_connected(
            s, device="d", protocol_version=5, session_expiry_s=expiry, peer="p", keep_alive_s=9
        ),
        subjects,
        expiries,
    ),
    st.builds(
        lambda s, expiry: events.session_disconnected(s, reason="network", session_expiry_s=expiry),
        subjects,
        st.none() | expiries,
    ),
    st.builds(events.session_expired, subjects),
    st.builds(
        lambda s, f, g, qos: events.session_subscribed(
            s,
            topic_filter=f,
            group=g,
            qos=qos,
            no_local=False,
            retain_as_published=False,
            retain_handling=0,
            identifier=0,
        ),
        subjects,
        filters,
        groups,
        st.integers(0, 2),
    ),
    st.builds(lambda s, f, g: events.session_unsubscribed(s, topic_filter=f, group=g), subjects, filters, groups),
    st.builds(
        lambda s, p: events.will_set(s, topic="w", payload=p, qos=1, retain=False, properties=b"", delay_s=1),
        subjects,
        st.binary(max_size=3),
    ),
    st.builds(events.will_cleared, subjects),
)
logs = st.lists(any_event, max_size=30)


def folded(log: list[Event], state: SessionState | None = None, first: int = 1) -> SessionState | None:
    for offset, event in enumerate(log, first):
        state = fold(state, event, offset)
    return state


@settings(max_examples=by_day(75, 150), deadline=None)
@given(logs, st.integers(0, 30))
def test_fold_of_checkpoint_and_tail_is_the_fold_of_the_whole(log: list[Event], cut: int) -> None:
    """Wherever the checkpoint was taken, and through its stored form."""
    checkpoint = folded(log[:cut])
    restored = None if checkpoint is None else decode_state(encode_state(checkpoint))

    assert folded(log[cut:], restored, 1 + len(log[:cut])) == folded(log)


@settings(max_examples=by_day(75, 150), deadline=None)
@given(logs, st.integers(0, 30))
def test_fold_of_many_at_once_is_the_fold_of_one_after_another(log: list[Event], cut: int) -> None:
    """From nothing and from a state; and what changes nothing gives back the very state."""
    state = folded(log[:cut])
    rest = list(enumerate(log[cut:], 1 + len(log[:cut])))

    whole = fold_all(state, rest)
    assert whole == folded(log)
    assert fold_all(whole, rest) is whole


@settings(max_examples=by_day(75, 150), deadline=None)
@given(logs, st.integers(0, 30))
def test_fold_ignores_a_piece_of_the_log_that_is_read_again(log: list[Event], back: int) -> None:
    """At least once is enough."""
    state = folded(log)
    again = max(0, len(log) - back)

    assert folded(log[again:], state, again + 1) == state


@settings(max_examples=by_day(75, 150), deadline=None)
@given(logs, any_event)
def test_fold_ignores_every_event_below_its_epoch(log: list[Event], late: Event) -> None:
    """Events of a fenced reader change nothing, whatever they are."""
    state = folded(log)
    if state is not None and late.epoch < state.epoch:
        assert fold(state, late, len(log) + 1) is state


@settings(max_examples=by_day(75, 150), deadline=None)
@given(logs)
def test_fold_never_lowers_the_epoch_nor_the_offset(log: list[Event]) -> None:
    """Both only rise, tombstones included."""
    state: SessionState | None = None
    for offset, event in enumerate(log, 1):
        after = fold(state, event, offset)
        if state is not None:
            assert after is not None
            assert (after.epoch, after.offset) >= (state.epoch, state.offset)
            assert after.offset >= state.offset
        state = after
