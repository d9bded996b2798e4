"""Sessions, texts of figures, cells of CSV, where a login leads: what needs no browser.

Pages themselves are tested in a browser: tests/integration/dashboard has them, and with them iothub.dashboard.frame, iothub.dashboard.table,
iothub.dashboard.chart, iothub.dashboard.bars, iothub.dashboard.dialogs, iothub.dashboard.tenant_actions and iothub.dashboard.app.
"""

from __future__ import annotations

import doctest
from types import ModuleType

import pytest

from iothub.dashboard import api, export, exposition, limits, login, parts, session, table, units
from iothub.dashboard.session import IDLE_S, Sessions, cookie_name


@pytest.mark.parametrize(
    "module", [api, export, exposition, limits, login, parts, table, units], ids=lambda each: each.__name__
)
def test_examples(module: ModuleType) -> None:
    found = doctest.testmod(module)

    assert found.attempted > 0
    assert found.failed == 0


def test_session_ends_after_a_while_without_use() -> None:
    now = [0.0]
    sessions = Sessions(lambda: now[0])
    cookies = {"iothub": sessions.begin("iothub_key")}

    now[0] = IDLE_S - 1
    assert sessions.headers(cookies, "iothub") == {"Authorization": "Bearer iothub_key"}
    now[0] = 2 * IDLE_S - 2
    assert sessions.headers(cookies, "iothub") != {}
    now[0] = 4 * IDLE_S
    assert sessions.headers(cookies, "iothub") == {}


def test_session_is_gone_after_the_logout() -> None:
    sessions = Sessions()
    cookies = {"iothub": sessions.begin("iothub_key")}

    sessions.end(cookies, "iothub")

    assert sessions.headers(cookies, "iothub") == {}
    assert sessions.headers({}, "iothub") == {}


def test_oldest_session_goes_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "MOST", 2)
    sessions = Sessions()

    first, second, third = (sessions.begin(f"key{number}") for number in range(3))

    assert sessions.headers({"iothub": first}, "iothub") == {}
    assert sessions.headers({"iothub": second}, "iothub") != {}
    assert sessions.headers({"iothub": third}, "iothub") != {}


def test_cookie_over_https_is_of_this_host_alone() -> None:
    assert cookie_name("https") == "__Host-iothub"
    assert cookie_name("http") == "iothub"
