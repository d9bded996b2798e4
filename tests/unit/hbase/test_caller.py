"""Failed calls leave nothing behind: an error that goes up is kept by none of the frames that it has passed, nor they by it."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import pytest

from iothub.base.errors import BackendError
from iothub_services.hbase import calls
from iothub_services.hbase.caller import Caller
from iothub_services.hbase.calls import Call, Scan
from iothub_services.hbase.pages import pages

T = TypeVar("T")


class GoneCaller(Caller):
    """The first call of each batch fails."""

    def call_many(self, calls: Sequence[Call[T]]) -> list[T | BackendError]:
        return [BackendError("gone", retryable=True) for _ in calls]


class Held:
    """What a caller holds while it calls."""


@pytest.fixture
def _uncollected() -> Iterator[None]:
    """As while a hub loads its sessions."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


ONE = calls.get_row(b"t", b"r")
WAYS: dict[str, Callable[[Caller], object]] = {
    "call": lambda caller: caller.call(ONE),
    "call all": lambda caller: caller.call_all([ONE, ONE]),
    "scan": lambda caller: list(caller.scan(Scan(b"t"))),
    "pages": lambda caller: list(pages(caller, Scan(b"t"))),
}


@pytest.mark.usefixtures("_uncollected")
@pytest.mark.parametrize("way", WAYS)
def test_nothing_is_left_of_who_called_in_vain(way: str) -> None:
    """Without the collector: it is off while a hub loads."""
    held: list[weakref.ref[Held]] = []

    def load() -> None:
        state = Held()
        held.append(weakref.ref(state))
        WAYS[way](GoneCaller())

    with pytest.raises(BackendError, match="gone") as caught:
        load()
    del caught

    assert [ref() for ref in held] == [None]
