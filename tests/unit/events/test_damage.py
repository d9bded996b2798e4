"""Damaged session events: each is counted once, whoever comes upon it, and the log says how many without saying it a thousand times."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from iothub_services.events import damage
from iothub_services.events.damage import PERIOD_S, SOON_S, DamagedEvents
from iothub_services.events.port import DamagedEventError


class Desk:
    """A count, its timers, and what the log says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.said: list[dict[str, object]] = []
        monkeypatch.setattr(damage, "log", self)
        self.events = DamagedEvents(lambda call: call(), lambda delay_s, call: self.timers.append((delay_s, call)))

    def warning(self, text: str, **fields: object) -> None:
        self.said.append({"text": text, **fields})

    def find(self, offset: int, partition: int = 0) -> None:
        self.events.found(DamagedEventError(f"{partition}:{offset}", partition=partition, offset=offset))

    def fire(self) -> float:
        ((delay_s, call),) = self.timers
        self.timers.clear()
        call()
        return delay_s


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Desk:
    return Desk(monkeypatch)


def test_what_is_found_together_is_told_together(desk: Desk) -> None:
    """Soon, with the place of the last one."""
    for offset in range(1, 10):
        desk.find(offset)
    assert desk.said == []

    assert desk.fire() == SOON_S
    assert desk.said == [{"text": "damaged session events were left out", "count": 9, "total": 9, "last": "0:9"}]


def test_each_is_counted_once_whoever_comes_upon_it(desk: Desk) -> None:
    """The follower, the fold, and the fold again."""
    for offset, partition in ((5, 0), (5, 1), (5, 0), (7, 0), (5, 1)):
        desk.find(offset, partition)

    assert desk.events.total == 3


def test_more_of_them_are_told_once_a_minute(desk: Desk) -> None:
    """And when no more come there is silence, until one does."""
    desk.find(1)
    desk.fire()
    desk.find(2)
    desk.find(3)

    assert desk.fire() == PERIOD_S
    assert [(each["count"], each["total"]) for each in desk.said] == [(1, 1), (2, 3)]
    desk.fire()
    assert (desk.timers, len(desk.said)) == ([], 2)

    desk.find(4)
    assert desk.fire() == SOON_S
    assert desk.said[-1]["total"] == 4
