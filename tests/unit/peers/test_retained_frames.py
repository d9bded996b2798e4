"""The bodies of the frames of retained messages: what comes back, and what is refused."""

from __future__ import annotations

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iothub.peers.frames import BadFrameError
from iothub.peers.retained_frames import Retained, Synced
from iothub.peers.route_frames import TenantQuestion

NUMBERS = st.integers(0, (1 << 63) - 1)


@given(NUMBERS, NUMBERS, NUMBERS, NUMBERS, st.booleans(), st.booleans())
def test_each_body_comes_back_as_it_was(
    tenant: int, version: int, at_ms: int, size: int, is_settled: bool, is_complete: bool
) -> None:
    change = Retained(tenant, b"a/b", version, at_ms, size)
    asked, answer = TenantQuestion(tenant, version), Synced(tenant, version, is_settled, is_complete)

    assert Retained.decode(change.encode()) == change
    assert TenantQuestion.decode(asked.encode()) == asked
    assert Synced.decode(answer.encode()) == answer


def test_the_longest_topic_name_of_mqtt_fits() -> None:
    change = Retained(1, b"t" * 65_535, 1, 0, 1)

    assert Retained.decode(change.encode()) == change


def body(**fields: object) -> bytes:
    packed: bytes = msgpack.packb(
        {
            "tenant": 1,
            "topic": b"t",
            "version": 1,
            "expires_at_ms": 0,
            "size": 1,
            "number": 1,
            "is_settled": True,
            "is_complete": True,
        }
        | fields
    )
    return packed


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("tenant", -1),
        ("tenant", True),
        ("tenant", 1 << 63),
        ("topic", b""),
        ("topic", b"a/#"),
        ("topic", b"+"),
        ("topic", b"\xff"),
        ("topic", b"t" * 65_536),
        ("topic", "t"),
        ("version", None),
        ("expires_at_ms", 1.5),
        ("size", -1),
    ],
)
def test_a_change_that_cannot_be_is_refused(field: str, value: object) -> None:
    with pytest.raises(BadFrameError):
        Retained.decode(body(**{field: value}))


@pytest.mark.parametrize(
    ("field", "value"), [("tenant", -1), ("number", "1"), ("is_settled", 1), ("is_complete", None)]
)
def test_a_question_or_an_answer_that_cannot_be_is_refused(field: str, value: object) -> None:
    with pytest.raises(BadFrameError):
        Synced.decode(body(**{field: value}))
    if field in ("tenant", "number"):
        with pytest.raises(BadFrameError):
            TenantQuestion.decode(body(**{field: value}))
