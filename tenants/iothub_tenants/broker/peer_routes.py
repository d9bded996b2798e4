"""What the tenants' package asks of the other hubs of a cluster: to know which tenants are open here, and to route to their clients.

Knows no link. `iothub.peers.routes` fulfils it; a hub that shares no stores has `NoPeerRoutes`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from twisted.internet.defer import Deferred

from iothub.engine.state import TenantPlane

OnDone = Callable[[], None]


class PeerRoutes(Protocol):
    """The other hubs, as the tenants here see them."""

    def open_tenant(self, tenant: TenantPlane) -> None:
        """A tenant's broker was made: each hub gets to know of it, and is asked what its clients need."""

    def close_tenant(self, tenant: TenantPlane) -> None:
        """A tenant's broker was dropped."""

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

    def await_opened(self, tenant: TenantPlane, on_done: OnDone) -> bool:
        del tenant, on_done
        return False

    def await_routed(self, tenant: TenantPlane, filters: Iterable[bytes], on_done: OnDone) -> bool:
        del tenant, filters, on_done
        return False


async def until_opened(routes: PeerRoutes, tenant: TenantPlane) -> None:
    """Return when clients of the tenant may be served here."""
    opened: Deferred[None] = Deferred()
    if routes.await_opened(tenant, lambda: opened.callback(None)):
        await opened


def until_routed(routes: PeerRoutes, tenant: TenantPlane, filters: Iterable[bytes]) -> Deferred[None] | None:
    """Return what fires when every hub routes by these Topic Filters; None: they all do."""
    routed: Deferred[None] = Deferred()
    return routed if routes.await_routed(tenant, filters, lambda: routed.callback(None)) else None
