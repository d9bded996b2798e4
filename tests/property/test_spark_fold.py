"""What the job folds is what the fold makes of every event: whatever is left out, replaced, fenced, doubled, damaged or cut in two."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from iothub.base.errors import CorruptRecordError
from iothub.records import events
from iothub.records.events import Event, Subject, decode_event, encode_event
from iothub.records.state import SessionState, encode_state, fold
from iothub_spark.transforms.event_summary import _DOES, Does, Session
from iothub_spark.transforms.fold import Bounds, Row, fold_rows
from iothub_spark.transforms.needed import needed
from tests.support.night import by_day

CLIENTS = st.sampled_from(["c", "dévice", 'q"uote', "back\\slash", "1/2", ""])
EVERYTHING = Bounds((1,))
subjects = st.builds(Subject, st.just(7), st.just("c"), st.integers(0, 6), st.integers(0, 50))
expiries = st.sampled_from([0, 60, 2**32 - 1])
filters = st.sampled_from(["a", "b/+", "größe"])
groups = st.sampled_from([None, "g"])
devices = st.sampled_from([0, 8, 9])

session_events = st.one_of(
    st.builds(
        lambda s, expiry, device: events.session_created(
            s, device="d", queue_id=s.epoch, protocol_version=5, session_expiry_s=expiry, device_id=device
        ),
        subjects,
        expiries,
        devices,
    ),
    st.builds(
        lambda s, expiry, device: events.session_resumed(
            s, protocol_version=4, session_expiry_s=expiry, device_id=device
        ),
        subjects,
        expiries,
        devices,
    ),
    st.builds(
        lambda s, expiry: events.session_connected(
            s, device="d", protocol_version=5, session_expiry_s=expiry, peer="192.0.2.1:5", keep_alive_s=9
        ),
        subjects,
        expiries,
    ),
    st.builds(
        lambda s, expiry: events.session_disconnected(s, reason="network", session_expiry_s=expiry),
        subjects,
        st.none() | expiries,
    ),
    st.builds(lambda s: events.session_taken_over(s, by="192.0.2.9:1"), subjects),
    st.builds(events.session_expired, subjects),
    st.builds(lambda s: events.session_discarded(s, reason="clean_start"), subjects),
    st.builds(
        lambda s, f, g, qos: events.session_subscribed(
            s,
            topic_filter=f,
            group=g,
            qos=qos,
            no_local=False,
            retain_as_published=True,
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
        lambda s, p, expiry: events.will_set(
            s, topic="w", payload=p, qos=1, retain=False, properties=b"", delay_s=1, expiry_s=expiry
        ),
        subjects,
        st.binary(max_size=3),
        st.none() | st.integers(0, 9),
    ),
    st.builds(events.will_cleared, subjects),
)


def _with_facts(event: Event, hub: str | None, more: str | None) -> Event:
    facts = dict(event.facts)
    if hub is not None:
        facts["hub"] = hub
    if more is not None:
        facts[more] = 1
    return replace(event, facts=facts)


any_event = st.builds(
    _with_facts, session_events, st.sampled_from([None, None, "0.12", ""]), st.sampled_from([None] * 6 + ["new_fact"])
)
damages = st.sampled_from([None] * 12 + ["cut", "wrong key", "facts", "type"])
logs = st.lists(st.tuples(any_event, damages), max_size=40)


def _stored(event: Event, damage: str | None) -> bytes:
    if damage == "wrong key":
        event = replace(event, client_id="another")
    if damage == "type":
        return encode_event(event).replace(b'"type":"', b'"type":"no.')
    value = encode_event(event)
    if damage == "cut":
        return value[:-1]
    return value.replace(b'"facts":{', b'"facts":{"deep":{},') if damage == "facts" else value


def _plain(values: list[bytes], key: str, state: SessionState | None = None, first: int = 1) -> SessionState | None:
    """Fold every event that can be read, one after another."""
    for offset, value in enumerate(values, first):
        try:
            event = decode_event(value)
        except CorruptRecordError:
            continue
        if event.key == key:
            state = fold(state, event, offset)
    return state


def _rows(key: str, values: list[bytes], state: SessionState | None = None, first: int = 1) -> list[Row]:
    head = [] if state is None else [(key.encode(), -1, state.offset, encode_state(state))]
    return head + [(key.encode(), 0, offset, value) for offset, value in enumerate(values, first)]


@settings(max_examples=by_day(120, 300), deadline=None)
@given(logs, CLIENTS)
def test_job_makes_of_a_log_what_the_fold_makes_of_every_event(
    log: list[tuple[Event, str | None]], client_id: str
) -> None:
    """Nothing that was left out had any effect: the same record, byte for byte; and everything damaged is named."""
    values = [_stored(replace(event, client_id=client_id), damage) for event, damage in log]
    key = f"7/{client_id}"
    expected = _plain(values, key)

    found = list(fold_rows(_rows(key, values), EVERYTHING))
    records = [row[3] for row in found if row[4] is None]
    assert records == ([] if expected is None else [encode_state(expected)])
    unread = [row[2] for row in found if row[4] is not None]
    assert unread == [offset for offset, (_, damage) in enumerate(log, 1) if damage]


@settings(max_examples=by_day(60, 150), deadline=None)
@given(logs, st.integers(0, 40), st.integers(0, 5))
def test_job_goes_on_from_a_checkpoint_wherever_it_was_taken(
    log: list[tuple[Event, str | None]], cut: int, again: int
) -> None:
    """And events that are in it already, read once more, change nothing."""
    values = [_stored(event, damage) for event, damage in log]
    checkpoint = _plain(values[:cut], "7/c")
    start = max(0, min(cut, len(values)) - again)
    expected = _plain(values, "7/c")

    found = list(fold_rows(_rows("7/c", values[start:], checkpoint, start + 1), EVERYTHING))
    records = [row[3] for row in found if row[4] is None]
    assert records == ([] if expected is None else [encode_state(expected)])


@settings(max_examples=by_day(100, 200), deadline=None)
@given(any_event, CLIENTS)
def test_glance_at_an_event_sees_what_decoding_it_shows(event: Event, client_id: str) -> None:
    """What the patterns accept, and what they leave to the decoder."""
    event = replace(event, client_id=client_id)
    seen = Session(event.key.encode(), 1).summarise(0, 3, encode_event(event))
    facts = event.facts

    assert (seen.does, seen.epoch, seen.offset) == (_DOES[event.type], event.epoch, 3)
    assert seen.has_device == bool(facts.get("device_id"))
    assert seen.has_hub == bool(facts.get("hub"))
    if seen.does is Does.LEAVE:
        assert seen.has_expiry == (facts.get("session_expiry_s") is not None)


@settings(max_examples=by_day(120, 300), deadline=None)
@given(any_event, st.integers(0, 400), st.binary(min_size=0, max_size=2))
def test_glance_refuses_whatever_the_decoder_refuses(event: Event, at: int, octets: bytes) -> None:
    """Bytes put into the stored form at any place: the patterns take nothing for whole that is not."""
    value = encode_event(event)
    spoilt = value[: at % len(value)] + octets + value[at % len(value) + 1 :]
    try:
        decoded = decode_event(spoilt)
    except CorruptRecordError:
        decoded = None
    try:
        seen = Session(b"7/c", 1).summarise(0, 1, spoilt)
    except CorruptRecordError:
        return

    assert decoded is not None
    assert (seen.epoch, decoded.key) == (decoded.epoch, "7/c")


def test_most_events_of_a_hub_are_never_decoded() -> None:
    """A device that comes and goes a thousand times costs one regular expression each time."""
    subject = Subject(7, "c", 1, 50)
    log = [events.session_created(subject, device="d", queue_id=1, protocol_version=5, session_expiry_s=9)]
    for epoch in range(2, 1_002):
        claimed = subject._replace(epoch=epoch)
        log.append(events.session_resumed(claimed, protocol_version=5, session_expiry_s=9, device_id=4))
        log.append(
            events.session_connected(
                claimed, device="d", protocol_version=5, session_expiry_s=9, peer="p", keep_alive_s=9
            )
        )
        log.append(events.session_disconnected(claimed, reason="network"))
    values = [encode_event(event) for event in log]
    session = Session(b"7/c", 1)
    kept = needed(None, [session.summarise(0, offset, value) for offset, value in enumerate(values, 1)])
    assert [summary.does for summary in kept] == [Does.CREATE, Does.RESUME, Does.CONNECT, Does.LEAVE]
    assert encode_state(next(filter(None, [_plain(values, "7/c")]))) == next(
        row[3] for row in fold_rows(_rows("7/c", values), EVERYTHING)
    )
