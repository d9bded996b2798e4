"""Wills of persistent sessions keep their promises in every schedule, and the checks find each rule that is broken."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import structlog

from iothub.records import events
from iothub_services.sessions import wills
from iothub_services.sessions.endings import Endings
from iothub_services.sessions.subjects import subject_of
from iothub_tenants.background.remote_sessions import RemoteSessions
from tests.simulation.kept_wills import fault_of_kept_wills

SCHEDULES = (*range(50), 187)  # the last ones find what the others do not
_WILLS, _ENDINGS = "iothub_services.sessions.wills.Wills", "iothub_services.sessions.endings.Endings"
_MANAGER = "iothub_services.sessions.manager.SessionManager"

_fire, _start_deadlines, _take_over = wills.Wills.fire, Endings.start_deadlines, RemoteSessions._take_over_session


def _clear_first(self: Any, home: Any, session: Any) -> None:
    """A crash before it is stored loses it."""
    if session.control.will is not None:
        self._journal.note([events.will_cleared(subject_of(session, self._clock))])
    _fire(self, home, session)


def _never_clear(self: Any, home: Any, session: Any) -> None:
    will, session.control.will, session.control.will_at = session.control.will, None, 0.0
    if will is not None:
        self._firing.begin(session)
        home.publish_will(session, will, wills.will_id(session, will), partial(self._firing.done, session))


def _start_without_delay(self: Any, home: Any, session: Any, offline_s: float = 0.0) -> None:
    _start_deadlines(self, home, session, offline_s)
    if session.control.will is not None:
        session.control.will_at = self._clock.monotonic()
        self.queue(home, session)


def _take_over_without_will(self: Any, broker: Any, session: Any, place: Any, lost_at_ms: int) -> None:
    session.control.will = None
    _take_over(self, broker, session, place, lost_at_ms)


async def _give_way_at_once(self: Any, home: Any, session: Any) -> None:
    self._take_over(home, session)
    await self._journal.record([])


async def _fire_without_key(self: Any, home: Any, session: Any) -> None:
    """As a hub that is alone may: another one may be at work with the session."""
    self.fire_if_due(home, session)


def _fetch_silently(self: Any, _home: Any, session: Any) -> None:
    """Of a hub that is gone, what it had fired and not stored is nobody's."""
    place = session.control.place
    place.holder, place.is_online = -1, False


MUTANTS: dict[str, dict[str, Callable[..., object]]] = {
    "cleared in the log before it is stored": {f"{_WILLS}.fire": _clear_first},
    "never cleared in the log": {f"{_WILLS}.fire": _never_clear},
    "the Will Delay is not waited for": {f"{_ENDINGS}.start_deadlines": _start_without_delay},
    "the Wills of a hub that is gone are forgotten": {
        "iothub_tenants.background.remote_sessions.RemoteSessions._take_over_session": _take_over_without_will
    },
    "a client is given up before its Will is stored": {f"{_MANAGER}.give_way": _give_way_at_once},
    "a Will that a hub left unstored is passed over": {f"{_MANAGER}._fetch": _fetch_silently},
    "a delayed Will is fired without the directory": {f"{_ENDINGS}._fire_or_wait": _fire_without_key},
    "a Will that came due is dropped by a CONNECT": {f"{_ENDINGS}.fire_if_due": lambda *_: None},
}


@pytest.fixture(autouse=True)
def silent() -> Iterator[None]:
    """A schedule has hundreds of lines."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.configure(**before)


def first_fault(path: Path) -> str | None:
    """Return what broke first; the rarest schedules come first."""
    return next(filter(None, (fault_of_kept_wills(seed, path) for seed in reversed(SCHEDULES))), None)


def test_wills_of_persistent_sessions_keep_their_promises(tmp_path: Path) -> None:
    """Published when due, under one message id and by one hub that lives; never for a client that came back in time, nor after a DISCONNECT."""
    found = first_fault(tmp_path)

    assert found is None, found


@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_broken_rule_of_persistent_wills_is_found(name: str, tmp_path: Path) -> None:
    """In the very schedules in which the product breaks none."""
    with ExitStack() as stack:
        for target, replacement in MUTANTS[name].items():
            stack.enter_context(mock.patch(target, replacement))
        found = first_fault(tmp_path)

    assert found is not None
