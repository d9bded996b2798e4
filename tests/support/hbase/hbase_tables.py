"""Tables of stores on the real HBase, each in a namespace of its own, and callers to them.

Knows the layouts that hubs use, and cuts them into regions so that small tests cross them.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import TypeVar

from iothub.base.errors import BackendError
from iothub.records import keys
from iothub_services.hbase.caller import DirectCaller
from iothub_services.hbase.tables import TableLayout, Tables, layouts
from ops.services.services import Services
from tests.support.hbase.own_tables import caller_of, made_tables

T = TypeVar("T")

REGIONS = 8
_RETRY_LIMIT_S = 120.0
_RETRY_PAUSE_S = 0.2

SPLITS = {
    "state": (keys.state_key(1, "client-5"), keys.state_key(2, "")),
    "retained": (keys.retained_key(1, b"t/6"), keys.retained_key(2, b"")),
    "checkpoints": (keys.checkpoint_key(5, 2, "client-00500"), keys.checkpoint_prefix(6)),
}
"""Where the regions of each table begin, but for the first: in the middle of what tests write."""


def caller(services: Services, timeout_s: float = 5.0) -> DirectCaller:
    """A way to HBase of its own, for one thread."""
    return caller_of(services, timeout_s=timeout_s)


def fresh_tables(services: Services, name: str, count: int) -> AbstractContextManager[list[Tables]]:
    """Make `count` empty tables of this name, gone afterwards."""
    return fresh_sets(services, (name,), count)


@contextmanager
def fresh_sets(services: Services, names: Sequence[str], count: int) -> Iterator[list[Tables]]:
    """Make `count` sets of empty tables of these names, gone afterwards."""
    made = [Tables(f"t{uuid.uuid4().hex}") for _ in range(count)]
    with made_tables(services, [_layout(tables, name) for tables in made for name in names]):
        yield made


def _layout(tables: Tables, name: str) -> TableLayout:
    (layout,) = (each for each in layouts(tables.namespace, REGIONS) if each.name == f"{tables.namespace}:{name}")
    return replace(layout, splits=SPLITS[name])


def until_done(do: Callable[[], T]) -> T:
    """Do something again until HBase answers, as the thread of a store does."""
    deadline = time.monotonic() + _RETRY_LIMIT_S
    while True:
        try:
            return do()
        except BackendError as error:
            if not error.retryable or time.monotonic() > deadline:
                raise
            time.sleep(_RETRY_PAUSE_S)
