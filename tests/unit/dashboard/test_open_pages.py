"""What pages leave is collected once in a while (iothub.dashboard.open_pages); how they end with a login needs a browser."""

from __future__ import annotations

import gc

import pytest

from iothub.dashboard.open_pages import COLLECT_PAGES, COLLECT_S, Garbage


@pytest.fixture
def garbage(monkeypatch: pytest.MonkeyPatch) -> Garbage:
    monkeypatch.setattr(gc, "collect", lambda: 0)
    return Garbage()


def test_nothing_is_collected_while_no_page_has_gone(garbage: Garbage) -> None:
    assert [garbage.look({"a"}, second * COLLECT_S) for second in range(3)] == [False, False, False]


def test_few_pages_wait_and_many_do_not(garbage: Garbage) -> None:
    garbage.look({"a"}, COLLECT_S)
    assert garbage.look(set(), COLLECT_S + 1)

    garbage.look({"b"}, COLLECT_S + 2)
    assert not garbage.look(set(), 2 * COLLECT_S)
    assert garbage.look(set(), 2 * COLLECT_S + 1)

    garbage.look({str(number) for number in range(COLLECT_PAGES)}, 2 * COLLECT_S + 2)
    assert garbage.look(set(), 2 * COLLECT_S + 3)
    assert not garbage.look(set(), 4 * COLLECT_S)
