"""What the control plane keeps about one connection, and what it releases when the connection closes.

Knows no packets. Kept small: a hub with a million idle connections has a million of these.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from twisted.internet.defer import Deferred

from iothub.base.reasons import Reason
from iothub.engine.state import Session
from iothub.hooks import Attempt
from iothub_services.auth.authenticator import Authenticated
from iothub_tenants.broker.broker import TenantBroker


@dataclass(slots=True)
class Exchange:
    """One enhanced authentication, in progress or done. `awaited` is set while the client's next AUTH is awaited."""

    method: str
    attempt: Attempt
    awaited: Deferred[bytes | None] | None = None
    last_data: bytes | None = field(default=None)


class ClientContext:
    """One connection's control record.

    Invariants: `broker` is set once the credentials were proven. `is_counted`: it holds one of its tenant's `connections`.
    `session` is set from `plane.admit` until the connection closes or another connection takes the session over. `awaiting_peers`: how many of its
    packets have taken effect here and wait for the other hubs.
    """

    __slots__ = (
        "awaiting_peers",
        "broker",
        "connected_at_ms",
        "exchange",
        "expiry_s",
        "is_counted",
        "is_gone",
        "keeps_will",
        "proven",
        "session",
    )

    def __init__(self) -> None:
        self.broker: TenantBroker | None = None
        self.session: Session | None = None
        self.proven: Authenticated | None = None
        self.exchange: Exchange | None = None  # enhanced authentication (§4.12)
        self.expiry_s: int | None = None  # changed by DISCONNECT
        self.connected_at_ms = 0  # 0: not yet
        self.is_counted = False
        self.is_gone = False
        self.awaiting_peers = 0
        self.keeps_will = True  # False after DISCONNECT with 0x00

    def forget_will(self) -> None:
        """The Will is not published when the connection ends."""
        self.keeps_will = False

    def detach(self, reason: Reason) -> None:
        """Detach the session and release the connection's quota unit. Idempotent."""
        if self.exchange is not None and self.exchange.awaited is not None:
            awaited, self.exchange.awaited = self.exchange.awaited, None
            awaited.callback(None)
        session, self.session = self.session, None
        broker = self.broker
        if broker is None:
            return
        if session is not None and not session.is_discarded:
            broker.close_session(session, reason, keeps_will=self.keeps_will, expiry_s=self.expiry_s)
        if self.is_counted:
            self.is_counted = False
            broker.allowance.release_connection()
