"""Frames between workers and the store process: how values are written, and how strictly they are read.

Knows no verb and no socket. Both sides are of one program and one data directory, so the format needs no compatibility: a version that differs
is refused in the first frame.

A frame is 4 bytes of length and a body, msgpack. What is read is never trusted to be what the other side should have written: each value has
a shape, and what does not fit it closes the connection.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from enum import IntEnum
from operator import attrgetter
from typing import Any, TypeVar

import msgpack

from iothub.base.errors import (
    BackendError,
    ConflictError,
    CorruptRecordError,
    IotHubError,
    NotFoundError,
    UnavailableError,
)
from iothub_services.queues.port import StaleEpochError

VERSION = 1
HEAD_BYTES = 4
FRAME_BYTES = 320 << 20  # the largest message, beside a whole batch
HELLO_BYTES = 64 << 10  # before it is known who speaks

_LOWEST, _BEYOND = -(1 << 63), 1 << 63  # what SQLite has for numbers

T = TypeVar("T")
K = TypeVar("K")
E = TypeVar("E", bound=IntEnum)

Shape = Callable[[object], T]


class FrameError(Exception):
    """The other side wrote what it must not: the connection is closed."""


# --- writing


def pack(value: object) -> bytes:
    """Return the body of a frame. Dataclasses and sets are written as arrays."""
    packed: bytes = msgpack.packb(value, default=_plain)
    return packed


def framed(body: bytes) -> bytes:
    """Return a whole frame. Raises FrameError: it is too large to be accepted."""
    if len(body) > FRAME_BYTES:
        raise FrameError(f"a frame of {len(body)} bytes is above the limit of {FRAME_BYTES}")
    return len(body).to_bytes(HEAD_BYTES) + body


_GETTERS: dict[type, Callable[[Any], object]] = {set: list, frozenset: list}


def _plain(value: object) -> object:
    kind = type(value)
    getter = _GETTERS.get(kind)
    if getter is None:
        names = [field.name for field in dataclasses.fields(value)]  # type: ignore[arg-type]  # raises TypeError, a defect
        getter = _GETTERS[kind] = attrgetter(*names)
    return getter(value)


# --- reading


def unpack(body: bytes) -> object:
    """Read a body. Raises FrameError."""
    try:
        return msgpack.unpackb(body, use_list=False, strict_map_key=False)
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
        raise FrameError(f"not a frame: {str(error)[:200]}") from None


def size_of(head: bytes, most: int = FRAME_BYTES) -> int:
    """Read the length of the body that follows. Raises FrameError."""
    size = int.from_bytes(head)
    if size > most:
        raise FrameError(f"a frame of {size} bytes, allowed are {most}")
    return size


def number(value: object) -> int:
    """Read a number as SQLite has them."""
    if type(value) is int and _LOWEST <= value < _BEYOND:
        return value
    raise FrameError("not a number")


def flag(value: object) -> bool:
    """Read a truth value."""
    if type(value) is bool:
        return value
    raise FrameError("not a flag")


def data(value: object) -> bytes:
    """Read bytes."""
    if type(value) is bytes:
        return value
    raise FrameError("not bytes")


def text(value: object) -> str:
    """Read a text."""
    if type(value) is str:
        return value
    raise FrameError("not a text")


def seconds(value: object) -> float:
    """Read a time that is finite and not negative."""
    if type(value) in (int, float) and 0 <= value < _BEYOND:  # type: ignore[operator]  # a comparison with NaN is False
        return float(value)  # type: ignore[arg-type]
    raise FrameError("not a time")


def nothing(value: object) -> None:
    """Read that there is nothing."""
    if value is not None:
        raise FrameError("not nothing")


def anything(value: object) -> object:
    """Read what is read further elsewhere."""
    return value


def maybe(shape: Shape[T]) -> Shape[T | None]:
    """Return the shape of what may be missing."""
    return lambda value: None if value is None else shape(value)


def many(shape: Shape[T]) -> Shape[list[T]]:
    """Return the shape of a list."""

    def read(value: object) -> list[T]:
        return [shape(each) for each in array(value)]

    return read


def several(shape: Shape[T]) -> Shape[tuple[T, ...]]:
    """Return the shape of a list that becomes a tuple."""
    return lambda value: tuple([shape(each) for each in array(value)])


def one_of(kind: type[E]) -> Shape[E]:
    """Return the shape of a constant."""
    known = {int(each): each for each in kind}

    def read(value: object) -> E:
        found = known.get(value) if type(value) is int else None
        if found is None:
            raise FrameError(f"not a {kind.__name__}")
        return found

    return read


def row(make: Callable[..., T], *shapes: Shape[Any]) -> Shape[T]:
    """Return the shape of a value with these fields."""
    count = len(shapes)

    def read(value: object) -> T:
        fields = array(value)
        if len(fields) != count:
            raise FrameError(f"{len(fields)} fields for {count}")
        return make(*[shape(field) for shape, field in zip(shapes, fields, strict=True)])

    return read


def table(key: Shape[K], of: Shape[T]) -> Shape[dict[K, T]]:
    """Return the shape of a dictionary."""

    def read(value: object) -> dict[K, T]:
        if type(value) is not dict:
            raise FrameError("not a table")
        return {key(each): of(known) for each, known in value.items()}

    return read


def array(value: object) -> tuple[object, ...]:
    """Read a list of whatever it is."""
    if type(value) is tuple:
        return value
    raise FrameError("not a list")


def pair(*values: T) -> tuple[T, ...]:
    """Make a tuple of fields, for `row`."""
    return values


# --- errors

_KINDS: dict[str, type[Exception]] = {
    "conflict": ConflictError,
    "corrupt": CorruptRecordError,
    "missing": NotFoundError,
    "stale": StaleEpochError,
    "unavailable": UnavailableError,
    "other": IotHubError,
}
_BACKEND = "backend"
_ERROR = row(pair, text, text, flag, flag, text)


def pack_error(error: Exception) -> tuple[object, ...]:
    """Return what says of an error all that the caller acts by. What nobody expected is a store that fails, and goes on failing."""
    if isinstance(error, BackendError):
        return (_BACKEND, error.fact, error.retryable, error.is_written, error.remedy)
    for word, kind in _KINDS.items():
        if isinstance(error, kind):
            return (word, str(error), False, False, "")
    return (_BACKEND, f"defect in the store process: {error!r}", False, False, "")


def read_error(value: object) -> Exception:
    """Read an error. Raises FrameError."""
    fields: tuple[Any, ...] = _ERROR(value)
    word, fact, is_retryable, is_written, remedy = fields
    if word == _BACKEND:
        return BackendError(fact, retryable=is_retryable, is_written=is_written, remedy=remedy)
    kind = _KINDS.get(word)
    if kind is None:
        raise FrameError("an unknown error")
    return kind(fact)
