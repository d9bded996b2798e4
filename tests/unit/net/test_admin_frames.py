"""The bytes of the local socket: whole objects in any pieces, bounds, and what is refused by name."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from iothub.base.errors import ConfigError, ConflictError, IotHubError, NotFoundError, UnavailableError
from iothub.net import admin_frames
from iothub.net.admin_frames import MAX_BYTES, BadFrameError, FrameDecoder, encode
from iothub.records.admin_commands import BODY_BYTES, Json, Request, message_rows, messages_in


def frames(data: bytes) -> list[Json]:
    return list(FrameDecoder().feed(data))


def test_frames_are_whole_however_they_are_cut() -> None:
    data = encode({"a": 1}) + encode({"b": "\u00e9\ud800"}) + encode({})
    decoder = FrameDecoder()

    found = [frame for byte in data for frame in decoder.feed(bytes((byte,)))]

    assert found == frames(data) == [{"a": 1}, {"b": "\u00e9\ud800"}, {}]


@pytest.mark.parametrize(
    "body", [b"", b"1", b"[]", b"{", b"\xff", b"[" * 100_000, b'{"a":' + b"1" * 5_000 + b"}"], ids=range(7)
)
def test_frame_that_is_no_object_is_refused(body: bytes) -> None:
    with pytest.raises(BadFrameError):
        frames(len(body).to_bytes(4, "big") + body)


def test_frame_that_is_too_long_is_refused_before_it_is_there() -> None:
    with pytest.raises(BadFrameError, match="at most 1048576"):
        frames((MAX_BYTES + 1).to_bytes(4, "big"))
    with pytest.raises(BadFrameError):
        encode({"a": "x" * MAX_BYTES})


def test_request_comes_back() -> None:
    request = Request("session.list", "acme", {"after": "", "limit": 3})

    (frame,) = frames(admin_frames.request_frame(request))

    assert admin_frames.request_in(frame) == request


@pytest.mark.parametrize("frame", [{}, {"verb": 1, "tenant": "", "argument": {}}, {"verb": "", "tenant": ""}])
def test_request_without_its_parts_is_refused(frame: Json) -> None:
    with pytest.raises(BadFrameError, match="expected verb, tenant and argument"):
        admin_frames.request_in(frame)


def test_hello_of_another_version_is_a_conflict() -> None:
    admin_frames.check_hello(frames(admin_frames.hello())[0])
    with pytest.raises(ConflictError, match="admin protocol 2 and 1"):
        admin_frames.check_hello({"protocol": 2})
    with pytest.raises(BadFrameError):
        admin_frames.check_hello({"verb": "session.list"})


def test_rows_share_frames_of_a_moderate_size() -> None:
    rows: list[Json] = [{"name": "x" * 1000, "number": number} for number in range(200)]

    made = list(admin_frames.row_frames(rows))

    assert max(map(len, made)) < 70_000
    assert len(made) < 5
    assert [row for frame in frames(b"".join(made)) for row in admin_frames.rows_in(frame) or ()] == rows


def test_no_rows_are_a_frame_that_says_so() -> None:
    assert [admin_frames.rows_in(frame) for frame in frames(b"".join(admin_frames.row_frames([])))] == [[]]


def test_longest_row_fits_a_frame() -> None:
    """Two texts of the protocol, of which JSON makes six bytes each."""
    row: Json = {"client_id": "\x01" * 65_535, "will": {"topic": "\x01" * 65_535, "qos": 1}}

    assert len(list(admin_frames.row_frames([row, row]))) == 2


def test_result_ends_an_answer() -> None:
    (frame,) = frames(admin_frames.result_frame({"next": None}))

    assert admin_frames.rows_in(frame) is None
    assert admin_frames.result_in(frame) == {"next": None}


@pytest.mark.parametrize("kind", [IotHubError, ConfigError, NotFoundError, ConflictError, UnavailableError])
def test_refusal_keeps_its_class_and_text(kind: type[IotHubError]) -> None:
    (frame,) = frames(admin_frames.refusal_frame(kind("why not")))

    with pytest.raises(kind, match=r"^why not$") as raised:
        admin_frames.rows_in(frame)
    assert type(raised.value) is kind


@pytest.mark.parametrize(
    ("read", "frame"),
    [
        (admin_frames.rows_in, {}),
        (admin_frames.rows_in, {"rows": [1]}),
        (admin_frames.result_in, {"result": 1}),
    ],
)
def test_answer_that_is_none_is_refused(read: Callable[[Json], object], frame: Json) -> None:
    with pytest.raises(BadFrameError):
        read(frame)


def test_refusal_of_an_unknown_class_is_an_error_all_the_same() -> None:
    with pytest.raises(IotHubError, match="odd"):
        admin_frames.rows_in({"error": "odd", "exit_code": [1]})


@pytest.mark.parametrize("size", [0, 1, BODY_BYTES, BODY_BYTES + 1, 3 * BODY_BYTES])
def test_message_goes_in_rows_of_a_bounded_size(size: int) -> None:
    bodies = [bytes(size), b"next"]
    rows = [row for number, body in enumerate(bodies) for row in message_rows({"position": number}, body)]

    assert max(len(json.dumps(row)) for row in rows) < MAX_BYTES // 2
    found = list(messages_in(rows))
    assert [body for _, body in found] == bodies
    assert [facts["position"] for facts, _ in found] == [0, 1]


def test_refusal_keeps_its_further_lines_within_a_frame() -> None:
    """Such as each mistake of a configuration; a lot of long ones are cut."""
    error = ConfigError("the first")
    error.details = ("the second", *("\x00" * 1000 for _ in range(100)))
    (frame,) = frames(admin_frames.refusal_frame(error))

    with pytest.raises(ConfigError, match=r"^the first$") as caught:
        admin_frames.rows_in(frame)

    assert caught.value.details[0] == "the second"
    assert [len(text) for text in caught.value.details[1:]] == [500] * 49
