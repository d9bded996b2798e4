"""One connection's record: what it holds is given back once, whatever comes first."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from twisted.internet.defer import Deferred

from iothub.base.reasons import Reason
from iothub.engine.state import Session, TenantPlane
from iothub.hooks import Attempt
from iothub_tenants.broker.client_contexts import Exchange, Guest


class Broker:
    """Counts what comes back."""

    def __init__(self) -> None:
        self.places = 0
        self.closed: list[tuple[str, Reason, bool, int | None]] = []
        self.allowance = SimpleNamespace(release_connection=self._release)

    def _release(self) -> None:
        self.places += 1

    def close_session(self, session: Session, reason: Reason, *, keeps_will: bool, expiry_s: int | None) -> None:
        self.closed.append((session.client_id, reason, keeps_will, expiry_s))


def guest(broker: Broker, session: Session | None) -> Guest:
    made = Guest()
    made.broker, made.session, made.is_counted = cast("Any", broker), session, True
    return made


def session() -> Session:
    return Session(TenantPlane(7, "acme"), "c", "dev1", False)


def test_guest_gives_back_session_and_place_once() -> None:
    broker = Broker()
    one = guest(broker, session())
    one.keeps_will, one.expiry_s = False, 30

    one.leave(Reason.CLIENT)
    one.leave(Reason.NETWORK)

    assert broker.closed == [("c", Reason.CLIENT, False, 30)]
    assert broker.places == 1


def test_session_that_has_ended_is_not_closed() -> None:
    broker, ended = Broker(), session()
    ended.is_discarded = True

    guest(broker, ended).leave(Reason.NETWORK)

    assert (broker.closed, broker.places) == ([], 1)


def test_guest_without_a_broker_holds_nothing() -> None:
    """A stranger who goes before CONNECT: there is nothing to give back, however often it is told."""
    stranger = Guest()

    stranger.leave(Reason.NETWORK)
    stranger.leave(Reason.NETWORK)

    assert (stranger.broker, stranger.session, stranger.is_counted) == (None, None, False)


def test_step_that_is_awaited_hears_that_nobody_is_there() -> None:
    """The walk that waits for AUTH ends."""
    heard: list[bytes | None] = []
    one = Guest()
    one.exchange = Exchange("m", Attempt("acme", "dev1", "c", None, "", ""), awaited := Deferred())
    awaited.addCallback(heard.append)

    one.leave(Reason.NETWORK)

    assert heard == [None]
