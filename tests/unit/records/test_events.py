"""Events: golden bytes, round trips, damage that is refused by name."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iothub.base.errors import CorruptRecordError
from iothub.records import events
from iothub.records.events import (
    Event,
    EventType,
    Subject,
    Topic,
    decode_event,
    encode_event,
    hub_name,
    number_of_hub,
    partition_of,
    read_event,
    session_expired,
)

SUBJECT = Subject(7, "cl\u00e9/\u96ea", 3, 1_700_000_000_000)

GOLDEN_V1 = (
    b'{"v":1,"type":"session.subscribed","tenant":7,"client":"cl\xc3\xa9/\xe9\x9b\xaa","epoch":3,"at":1700000000000,'
    b'"facts":{"filter":"a/+","group":null,"qos":1,"no_local":false,"retain_as_published":true,'
    b'"retain_handling":2,"identifier":0}}'
)

scalars = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=20)
analytics = st.builds(
    Event,
    st.sampled_from([kind for kind in EventType if kind.topic is Topic.ANALYTICS]),
    st.integers(0, 2**32 - 1),
    st.text(max_size=20),
    st.integers(0, 2**63 - 1),
    st.integers(0, 253_402_300_799_999),
    st.dictionaries(st.text(max_size=10), scalars, max_size=5),
)


def subscribed() -> Event:
    return events.session_subscribed(
        SUBJECT,
        topic_filter="a/+",
        group=None,
        qos=1,
        no_local=False,
        retain_as_published=True,
        retain_handling=2,
        identifier=0,
    )


@given(facts=st.dictionaries(st.text(max_size=10), scalars | st.floats(), max_size=5))
def test_facts_are_written_as_the_standard_library_writes_them(facts: dict[str, events.Fact]) -> None:
    """The encoder is kept, where the standard library makes one for each value."""
    assert events._facts_json(facts) == json.dumps(facts, separators=(",", ":"), ensure_ascii=False)


def test_facts_are_written_without_the_c_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json.encoder, "c_make_encoder", None)

    assert events._encoder_of_facts()({"a": "é", "b": None}) == '{"a":"é","b":null}'


def test_golden_bytes_of_version_1_are_written_and_read() -> None:
    """Every version ever written stays readable: these bytes never change."""
    assert encode_event(subscribed()) == GOLDEN_V1
    assert decode_event(GOLDEN_V1) == subscribed()


def test_event_key_names_tenant_and_client() -> None:
    """The log is partitioned by it."""
    assert subscribed().key == "7/cl\u00e9/\u96ea"


def test_every_session_event_survives_the_round_trip() -> None:
    """All functions that make one."""
    made = [
        events.session_created(SUBJECT, device="d", queue_id=2**40, protocol_version=5, session_expiry_s=2**32 - 1),
        events.session_resumed(SUBJECT, protocol_version=4, session_expiry_s=0),
        events.session_connected(
            SUBJECT, device="d", protocol_version=5, session_expiry_s=60, peer="127.0.0.1:1", keep_alive_s=30
        ),
        events.session_disconnected(SUBJECT, reason="network"),
        events.session_taken_over(SUBJECT, by="127.0.0.1:2"),
        events.session_expired(SUBJECT),
        events.session_discarded(SUBJECT, reason="clean_start"),
        subscribed(),
        events.session_unsubscribed(SUBJECT, topic_filter="a/+", group="g"),
        events.will_set(SUBJECT, topic="w", payload=b"\xff\x00", qos=1, retain=True, properties=b"\x01", delay_s=5),
        events.will_cleared(SUBJECT),
    ]

    assert {event.type for event in made} == {kind for kind in EventType if kind.topic is Topic.SESSIONS}
    for event in made:
        assert decode_event(encode_event(event)) == event


@settings(max_examples=100, deadline=None)
@given(analytics)
def test_analytics_event_survives_the_round_trip(event: Event) -> None:
    """Any flat facts."""
    assert decode_event(encode_event(event)) == event


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=80) | st.integers(0, len(GOLDEN_V1) - 1).map(lambda end: GOLDEN_V1[:end]))
def test_arbitrary_bytes_give_an_event_or_the_named_error(value: bytes) -> None:
    """Decoding is total."""
    try:
        assert isinstance(decode_event(value), Event)
    except CorruptRecordError:
        return


def altered(**changes: object) -> bytes:
    fields = json.loads(GOLDEN_V1)
    fields.update(changes)
    return json.dumps(fields).encode()


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (altered(v=2), "format version 2"),
        (altered(type="session.abducted"), "a field has a value that this program cannot read"),
        (altered(tenant="7"), "wrong type"),
        (altered(epoch=True), "wrong type"),
        (altered(client=7), "wrong type"),
        (altered(client="a\ud800"), "half a character"),
        (altered(facts={"filter": "a\udfff"}), "half a character"),
        (altered(facts={"\ud800": 1}), "half a character"),
        (altered(more=["\ud800"]), "half a character"),
        (altered(facts=[]), "flat"),
        (altered(facts={"filter": ["nested"]}), "flat"),
        (altered(facts={"filter": "a"}), "session.subscribed without group"),
        (b"[]", "something in it is of the wrong type"),
        (b"7", "something in it is of the wrong type"),
        (b"[" * 100_000, "nested too deep|not JSON"),
        (b"{", "damaged event \\(it is not JSON\\)"),
        (b"\xff", "it is not UTF-8"),
        (b'{"v":1}', "it has no 'type'"),
    ],
)
def test_event_that_cannot_be_right_is_refused_by_name(value: bytes, what: str) -> None:
    """Future versions, unknown types, wrong types, missing facts."""
    with pytest.raises(CorruptRecordError, match=what):
        decode_event(value)


def test_character_that_is_spelled_out_is_read() -> None:
    """Also one that takes two escapes."""
    value = altered(client="\u0001\U0001f600\\ud800")

    assert b"\\ud83d\\ude00" in value
    assert decode_event(value).client_id == "\u0001\U0001f600\\ud800"


def test_event_is_read_where_it_stands_alone() -> None:
    """Under the key of its session, in that one's partition. Events for statistics have no place of their own."""
    event = session_expired(Subject(7, "c", 3, 1))
    value, home = encode_event(event), partition_of("7/c", 3)
    away = (home + 1) % 3

    assert read_event(value, b"7/c", home, 3) == event
    assert read_event(value, b"7/c", 0, 1) == event
    assert read_event(value, b"", away, 3, Topic.ANALYTICS) == event
    for key, partition, reason in (
        (b"7/c", away, f"its key belongs to partition {home}"),
        (b"7/d", home, "event of 7/c under the key of another session"),
        (b"", home, "event of 7/c without a key"),
    ):
        with pytest.raises(CorruptRecordError, match=rf"^damaged event \({reason}\)$"):
            read_event(value, key, partition, 3)


def test_event_says_which_hub_wrote_it() -> None:
    """An event of a hub that is alone says nothing, and reads as it always did."""
    event = session_expired(Subject(7, "c", 3, 1))
    signed = event.written_by(hub_name(12, 1_700))

    assert (event.hub, signed.hub) == ("", "12.1700")
    assert decode_event(encode_event(signed)) == signed
    assert [number_of_hub(name) for name in (signed.hub, "", "x.1", "7")] == [12, None, None, None]


@pytest.mark.parametrize(
    ("what", "bad"),
    [
        ("tenant", 1 << 32),
        ("tenant", -1),
        ("epoch", 1 << 63),
        ("at", 253_402_300_800_000),
        ("queue_id", 1 << 63),
        ("queue_id", -1),
        ("queue_id", "5"),
        ("device", None),
        ("protocol_version", "5"),
        ("session_expiry_s", 1 << 32),
        ("session_expiry_s", None),
        ("session_expiry_s", True),
        ("device_id", 1.5),
    ],
)
def test_what_no_store_could_keep_is_damage(what: str, bad: object) -> None:
    """Somebody else wrote it: taken for whole, it would stop every hub that folds it."""
    created = events.session_created(
        SUBJECT, device="d", queue_id=5, protocol_version=5, session_expiry_s=7, device_id=9
    )
    fields = json.loads(encode_event(created))
    (fields if what in fields else fields["facts"])[what] = bad

    with pytest.raises(CorruptRecordError, match=r"damaged event \((a number in it is out of bounds|its \w+ is )"):
        decode_event(json.dumps(fields).encode())


def test_will_that_is_no_base64_is_damage() -> None:
    """Its session's fold would fail with it."""
    will = events.will_set(SUBJECT, topic="w", payload=b"x", qos=0, retain=False, properties=b"", delay_s=0)
    fields = json.loads(encode_event(will))
    fields["facts"]["payload"] = "AAA"

    with pytest.raises(CorruptRecordError, match="its payload is 'AAA'"):
        decode_event(json.dumps(fields).encode())
