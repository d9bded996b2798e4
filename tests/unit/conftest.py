"""Unit tests start no hub: they see the settings of the environment as they are without `tests/conftest.py`."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("IOTHUB_ADMIN__ENABLED", raising=False)
