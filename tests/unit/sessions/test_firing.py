"""Who waits for Wills that are under way, and until when."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred

from iothub_services.sessions.firing import Firing

ONE: Any = object()
OTHER: Any = object()


def waits(firing: Firing, session: Any) -> bool:
    settled: list[None] = []
    Deferred.fromCoroutine(firing.settled(session)).addCallback(settled.append)
    return not settled


def test_nobody_waits_without_a_will() -> None:
    """Not for another session's either."""
    firing = Firing()
    assert not waits(firing, ONE)

    firing.begin(OTHER)

    assert not waits(firing, ONE)
    assert len(firing) == 1


def test_session_is_settled_when_all_its_wills_are_done() -> None:
    """One connection's may wait for a rate while the next one's fires."""
    firing, settled = Firing(), list[str]()
    firing.begin(ONE)
    firing.begin(ONE)
    for name in ("first", "second"):
        Deferred.fromCoroutine(firing.settled(ONE)).addCallback(lambda _, name=name: settled.append(name))

    firing.done(ONE)
    assert (settled, len(firing)) == ([], 1)
    firing.done(ONE)

    assert (settled, len(firing)) == (["first", "second"], 0)
    assert not waits(firing, ONE)
