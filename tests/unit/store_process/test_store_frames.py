"""Frames of the store process: what is written is read again, and what does not fit is refused by name."""

from __future__ import annotations

import msgpack
import pytest

from iothub.base.errors import BackendError, ConflictError, IotHubError, NotFoundError
from iothub_services.queues.port import Append, Delivery, Inbound, MoveKind, StaleEpochError
from iothub_services.store_process import frames
from iothub_services.store_process.frames import FrameError
from iothub_services.store_process.queues import VERBS
from iothub_services.store_process.verbs import read_args, read_outcome

APPEND = Append(b"i" * 16, b"body", 7, (Delivery(1, 2, 1, (3, 4)), Delivery(5, 0)), Inbound(9, 1 << 62, 65_535))


def test_batch_comes_back_as_it_was() -> None:
    """Values of the port, with all that they hold."""
    written = frames.pack(([], [APPEND]))

    args = frames.array(frames.unpack(written))

    assert read_args(VERBS["write"], args) == [[], [APPEND]]


@pytest.mark.parametrize(
    ("verb", "args"),
    [
        ("drop", ()),
        ("drop", (1, 2)),
        ("drop", ("1",)),
        ("drop", (True,)),
        ("drop", (1 << 63,)),
        ("drop", (-(1 << 63) - 1,)),
        ("drop", (1.0,)),
        ("drop", (None,)),
        ("claim", (1, "owner")),
        ("tails", (1,)),
        ("tails", ([1],)),
        ("tails", ((1, b"2"),)),
        ("create", (1, 2, (1, 2, 9), 1)),
        ("create", (1, 2, (1, 2), 1)),
        ("write", (((9, 1, 1, 1),), ())),
        ("write", ((), ((b"", b"", 0, (), 1),))),
    ],
)
def test_arguments_that_do_not_fit_are_refused(verb: str, args: tuple[object, ...]) -> None:
    """By the server, before anything is asked of a store."""
    with pytest.raises(FrameError):
        read_args(VERBS[verb], args)


@pytest.mark.parametrize(
    "body", [b"", b"\xc1", b"\x91", b"\x90\x90", b"\xdd\xff\xff\xff\xff", b"\xa1\xff", b"\x91" * 5_000]
)
def test_bytes_that_are_no_message_are_refused(body: bytes) -> None:
    """Too short, too long, too deep, announced larger than they are."""
    with pytest.raises(FrameError):
        frames.unpack(body)


def test_frame_above_the_limit_is_refused_before_it_is_read() -> None:
    """By its length alone."""
    assert frames.size_of(b"\0\0\0\7") == 7
    with pytest.raises(FrameError, match="4294967295 bytes"):
        frames.size_of(b"\xff\xff\xff\xff")


def test_shapes_refuse_what_they_are_not() -> None:
    """Each names what it expected."""
    for shape, value in (
        (frames.flag, 1),
        (frames.text, b"x"),
        (frames.seconds, float("nan")),
        (frames.seconds, -1.0),
        (frames.nothing, 0),
        (frames.table(frames.number, frames.text), (1, "x")),
        (frames.one_of(MoveKind), 99),
        (frames.one_of(MoveKind), "ACK"),
    ):
        with pytest.raises(FrameError, match="not"):
            shape(value)
    assert frames.maybe(frames.number)(None) is None
    assert frames.seconds(2) == 2.0


@pytest.mark.parametrize(
    "error",
    [
        NotFoundError("no such queue"),
        ConflictError("it exists"),
        StaleEpochError("at epoch 5"),
        IotHubError("else"),
        BackendError("disk is full", retryable=True, is_written=True, remedy="free some space"),
    ],
)
def test_errors_come_back_as_what_they_were(error: Exception) -> None:
    """With all that the caller acts by."""
    read = frames.read_error(frames.unpack(frames.pack(frames.pack_error(error))))

    assert (type(read), str(read)) == (type(error), str(error))
    if isinstance(error, BackendError):
        assert isinstance(read, BackendError)
        assert (read.fact, read.remedy, read.retryable, read.is_written) == (
            "disk is full",
            "free some space",
            True,
            True,
        )


def test_defect_of_the_store_process_is_a_failing_store() -> None:
    """It will not pass by itself."""
    read = frames.read_error(frames.unpack(frames.pack(frames.pack_error(ZeroDivisionError("x")))))

    assert isinstance(read, BackendError)
    assert not read.retryable
    assert "defect" in str(read)


def test_outcome_is_the_answer_or_the_error() -> None:
    """And nothing else."""
    assert read_outcome(msgpack.packb((True, 5)), frames.number) == 5
    with pytest.raises(NotFoundError, match="gone"):
        read_outcome(frames.pack((False, frames.pack_error(NotFoundError("gone")))), frames.number)
    for broken in (
        b"",
        msgpack.packb((True,)),
        msgpack.packb((1, 5)),
        msgpack.packb((False, ("odd", "", False, False, ""))),
    ):
        with pytest.raises(FrameError):
            read_outcome(broken, frames.number)
