"""Texts of figures, cells of CSV, where a login leads: what needs no browser.

Pages themselves are tested in a browser: tests/integration/dashboard has them, and with them iothub.dashboard.frame, iothub.dashboard.table,
iothub.dashboard.chart, iothub.dashboard.bars, iothub.dashboard.dialogs, iothub.dashboard.tenant_actions and iothub.dashboard.app.
"""

from __future__ import annotations

import doctest
from types import ModuleType

import httpx
import pytest

from iothub.dashboard import api, export, exposition, limits, login, parts, table, units
from iothub.dashboard.pages.tenant import missing


@pytest.mark.parametrize(
    "module", [api, export, exposition, limits, login, parts, table, units], ids=lambda each: each.__name__
)
def test_examples(module: ModuleType) -> None:
    found = doctest.testmod(module)

    assert found.attempted > 0
    assert found.failed == 0


@pytest.mark.parametrize(
    ("problem", "has_figures", "is_platform", "text"),
    [
        ("", True, True, ""),
        ("", False, False, "No figures yet"),
        ("no hub runs in hub", True, True, "no hub runs in hub"),
        ("no hub runs in hub", False, False, "The hub's figures cannot be read"),
    ],
)
def test_tenant_without_figures_has_a_sentence(problem: str, has_figures: bool, is_platform: bool, text: str) -> None:
    """What the hub's folder is, is nothing for the people of a tenant."""
    shown = missing(problem, has_figures, is_platform)

    assert shown.startswith(text)
    assert bool(shown) is bool(text)


def test_wrong_fields_of_a_form_are_each_said_once() -> None:
    """The API names them in its sentence, too."""
    fields = [{"field": "body.name", "detail": "Field required"}, {"field": "body.nme", "detail": "unknown field"}]
    sentence = "body.name: Field required; body.nme: unknown field"

    refusal = api._refusal(httpx.Response(422, json={"code": "invalid", "detail": sentence, "errors": fields}))

    assert (refusal.detail, refusal.errors) == ("name: Field required", ("nme: unknown field",))
