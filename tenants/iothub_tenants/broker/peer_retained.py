"""What a tenant's retained messages ask of the other hubs of a cluster: to know what is written here, and what is on its way there.

Knows no link. `iothub.peers.retained` fulfils it; a hub that shares no stores has `NoPeerRetained`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Protocol

OnDone = Callable[[], None]
OnAsked = Callable[[Hashable], None]


class PeerRetained(Protocol):
    """The other hubs. `here` of a tenant hears what they write."""

    def open_tenant(self, tenant_id: int, here: Any) -> None:
        """A tenant's store is about to be read."""

    def close_tenant(self, tenant_id: int) -> None:
        """A tenant's broker was dropped."""

    def has_open(self, tenant_id: int) -> bool:
        """Tell whether another hub may write to this tenant."""

    def announce_change(self, tenant_id: int, topic: bytes, version: int, expires_at_ms: int, size: int) -> None:
        """A write of this hub is durable; `size` 0: the message was deleted."""

    def await_synced(self, tenant_id: int, on_asked: OnAsked, on_done: OnDone) -> bool:
        """Call back once every hub that has the tenant open has announced what it had routed before. False: there is nobody to ask.

        `on_asked`: called for each of them between the messages that it had routed before and those that it routes later.
        """


class NoPeerRetained:
    """Fulfils `PeerRetained` where there are no other hubs."""

    def open_tenant(self, tenant_id: int, here: Any) -> None:
        """Nobody has to know."""

    def close_tenant(self, tenant_id: int) -> None:
        """Nobody has to know."""

    def has_open(self, tenant_id: int) -> bool:
        del tenant_id
        return False

    def announce_change(self, tenant_id: int, topic: bytes, version: int, expires_at_ms: int, size: int) -> None:
        """Nobody has to know."""

    def await_synced(self, tenant_id: int, on_asked: OnAsked, on_done: OnDone) -> bool:
        del tenant_id, on_asked, on_done
        return False
