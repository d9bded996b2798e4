"""A client context: what it holds is released once, whatever comes first."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from twisted.internet.defer import Deferred

from iothub.base.reasons import Reason
from iothub.engine.state import Session, TenantPlane
from iothub.hooks import Attempt
from iothub_tenants.broker.client_contexts import ClientContext, Exchange, Leaving


class Broker:
    """Counts what is released."""

    def __init__(self) -> None:
        self.places = 0
        self.closed: list[tuple[str, Reason, bool, int | None]] = []
        self.allowance = SimpleNamespace(release_connection=self._release)

    def _release(self) -> None:
        self.places += 1

    def close_session(self, session: Session, reason: Reason, keeps_will: bool, expiry_s: int | None) -> None:
        self.closed.append((session.client_id, reason, keeps_will, expiry_s))


def context(broker: Broker, session: Session | None) -> ClientContext:
    made = ClientContext()
    made.broker, made.session, made.is_counted = cast("Any", broker), session, True
    return made


def session() -> Session:
    return Session(TenantPlane(7, "acme"), "c", "dev1", False)


def test_client_context_releases_session_and_quota_once() -> None:
    broker = Broker()
    one = context(broker, session())
    one.leaving = Leaving(keeps_will=False, expiry_s=30)

    one.detach(Reason.CLIENT)
    one.detach(Reason.NETWORK)

    assert broker.closed == [("c", Reason.CLIENT, False, 30)]
    assert broker.places == 1


def test_session_that_has_ended_is_not_closed() -> None:
    broker, ended = Broker(), session()
    ended.is_discarded = True

    context(broker, ended).detach(Reason.NETWORK)

    assert (broker.closed, broker.places) == ([], 1)


def test_client_context_without_a_broker_holds_nothing() -> None:
    """The connection closes before CONNECT: there is nothing to release, however often `detach` is called."""
    unknown = ClientContext()

    unknown.detach(Reason.NETWORK)
    unknown.detach(Reason.NETWORK)

    assert (unknown.broker, unknown.session, unknown.is_counted) == (None, None, False)


def test_awaited_authentication_step_ends_when_the_connection_closes() -> None:
    """The packet handler that waits for AUTH returns."""
    heard: list[bytes | None] = []
    one = ClientContext()
    one.exchange = Exchange("m", Attempt("acme", "dev1", "c", None, "", ""), awaited := Deferred())
    awaited.addCallback(heard.append)

    one.detach(Reason.NETWORK)

    assert heard == [None]
