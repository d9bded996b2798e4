"""What the tenants' package asks of the other hubs of a cluster: to know which tenants are open here, and to route to their clients.

Knows no link. `iothub.peers.routes` fulfils it; a hub that shares no stores has `NoPeerRoutes`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from twisted.internet.defer import Deferred

from iothub.engine.router import Subscription
from iothub.engine.state import Session, TenantPlane
from iothub_services.events.port import Offsets

OnDone = Callable[[], None]
Pair = tuple[Subscription | None, Subscription | None]
"""A subscription before and after a change."""


class OptionChange(Protocol):
    """Subscriptions of a persistent session that change together in the session log."""

    def await_routed(self, on_done: OnDone) -> bool:
        """Call back once the change may be in the log: until all know it the other hubs route what is needed before or after. False: they do."""

    def note_durable(self, place: Offsets) -> None:
        """It is in the log there, and in force here."""

    def end(self) -> None:
        """Every hub knows it, or it has not happened."""


class PeerRoutes(Protocol):
    """The other hubs, as the tenants here see them."""

    def open_tenant(self, tenant: TenantPlane) -> None:
        """A tenant's broker was made: each hub gets to know of it, and is asked what its clients need."""

    def close_tenant(self, tenant: TenantPlane) -> None:
        """A tenant's broker was dropped."""

    def change_options(self, session: Session, pairs: Iterable[Pair]) -> OptionChange | None:
        """Subscriptions of a persistent session are about to change. None: no other hub has to know, or nothing changes."""

    def await_changes(self, session: Session, on_done: OnDone) -> bool:
        """Call back once every hub knows what changes of a session's subscriptions. False: nothing changes."""

    def is_opened(self, tenant: TenantPlane) -> bool:
        """Whether there is nobody to wait for: what `await_opened` says, and calls nobody back."""

    def await_opened(self, tenant: TenantPlane, on_done: OnDone) -> bool:
        """Call back once every hub has answered, or is gone: before that nobody may publish. False: there is nobody to wait for."""

    def await_routed(self, tenant: TenantPlane, filters: Iterable[bytes], on_done: OnDone) -> bool:
        """Call back once every hub that has the tenant open routes by these Topic Filters, or is gone. False: there is nobody to wait for."""


class NoPeerRoutes:
    """Fulfils `PeerRoutes` where there are no other hubs."""

    def open_tenant(self, tenant: TenantPlane) -> None:
        """Nobody has to know."""

    def close_tenant(self, tenant: TenantPlane) -> None:
        """Nobody has to know."""

    def change_options(self, session: Session, pairs: Iterable[Pair]) -> OptionChange | None:
        del session, pairs
        return None

    def await_changes(self, session: Session, on_done: OnDone) -> bool:
        del session, on_done
        return False

    def is_opened(self, tenant: TenantPlane) -> bool:
        del tenant
        return True

    def await_opened(self, tenant: TenantPlane, on_done: OnDone) -> bool:
        del tenant, on_done
        return False

    def await_routed(self, tenant: TenantPlane, filters: Iterable[bytes], on_done: OnDone) -> bool:
        del tenant, filters, on_done
        return False


async def until_opened(routes: PeerRoutes, tenant: TenantPlane) -> None:
    """Return when clients of the tenant may be served here."""
    if not routes.is_opened(tenant):
        opened: Deferred[None] = Deferred()
        if routes.await_opened(tenant, lambda: opened.callback(None)):
            await opened


async def until_unchanging(routes: PeerRoutes, session: Session) -> None:
    """Return when every hub knows a session's subscriptions as they are."""
    known: Deferred[None] = Deferred()
    if routes.await_changes(session, lambda: known.callback(None)):
        await known


def until_routed(routes: PeerRoutes, tenant: TenantPlane, filters: Iterable[bytes]) -> Deferred[None] | None:
    """Return what fires when every hub routes by these Topic Filters; None: they all do."""
    routed: Deferred[None] = Deferred()
    return routed if routes.await_routed(tenant, filters, lambda: routed.callback(None)) else None
