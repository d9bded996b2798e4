"""Texts of figures, cells of CSV, where a login leads: what needs no browser.

Pages themselves are tested in a browser: tests/integration/dashboard has them, and with them iothub.dashboard.frame, iothub.dashboard.table,
iothub.dashboard.chart, iothub.dashboard.bars, iothub.dashboard.dialogs, iothub.dashboard.tenant_actions and iothub.dashboard.app.
"""

from __future__ import annotations

import doctest
from types import ModuleType

import pytest

from iothub.dashboard import api, export, exposition, limits, login, parts, table, units


@pytest.mark.parametrize(
    "module", [api, export, exposition, limits, login, parts, table, units], ids=lambda each: each.__name__
)
def test_examples(module: ModuleType) -> None:
    found = doctest.testmod(module)

    assert found.attempted > 0
    assert found.failed == 0
