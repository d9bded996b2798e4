"""Unit tests start no hub: they see the settings of the environment as they are without `tests/conftest.py`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from argon2 import PasswordHasher, Type

from iothub_services.auth import secrets
from tests.support.in_process.compiled_sql import compiled_once

_QUICK_HASHER = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1, type=Type.ID)


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("IOTHUB_ADMIN__ENABLED", raising=False)


@pytest.fixture(autouse=True)
def _quick_passwords(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hash that takes 40 ms proves nothing here; `tests/unit/auth` has the real one."""
    monkeypatch.setattr(secrets, "_ARGON2", _QUICK_HASHER)


@pytest.fixture(autouse=True, scope="module")
def _statements_are_compiled_once() -> Iterator[None]:
    with compiled_once():
        yield
