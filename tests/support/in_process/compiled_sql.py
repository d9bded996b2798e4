"""Statements on SQLite that are compiled once in a process, and not again for each engine that a test opens.

Knows no statement. What a statement answers is asked of its own file each time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest import mock

from sqlalchemy import create_engine


class _Compiled(dict[Any, Any]):
    """By the kind of the dialect, where an engine asks by its own one."""

    def get(self, key: Any, default: Any = None) -> Any:
        return super().get((type(key[0]), *key[1:]), default)

    def __setitem__(self, key: Any, compiled: Any) -> None:
        super().__setitem__((type(key[0]), *key[1:]), compiled)


_COMPILED = _Compiled()


@contextmanager
def compiled_once() -> Iterator[None]:
    """Engines of the accounts that are opened meanwhile share what they have compiled."""
    sharing = partial(create_engine, execution_options={"compiled_cache": _COMPILED})
    with mock.patch("iothub_tenants.accounts.database.create_engine", sharing):
        yield
