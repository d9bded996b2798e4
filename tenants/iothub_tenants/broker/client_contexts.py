# cython: annotation_typing=False
"""What the control plane keeps about one connection, and what it releases when the connection closes.

Knows no packets. Kept small: a hub with a million idle connections has a million of these.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from twisted.internet.defer import Deferred

from iothub.base.reasons import Reason
from iothub.engine.state import Session
from iothub.hooks import Attempt
from iothub_services.auth.authenticator import Authenticated
from iothub_services.auth.port import DeviceRecord
from iothub_services.auth.token_proof import TokenProof
from iothub_tenants.broker.broker import TenantBroker


@dataclass(slots=True)
class Exchange:
    """One enhanced authentication, in progress or done. `awaited` is set while the client's next AUTH is awaited."""

    method: str
    attempt: Attempt
    awaited: Deferred[bytes | None] | None = None
    last_data: bytes | None = field(default=None)


class Leaving(NamedTuple):
    """What a DISCONNECT asks for. `expiry_s`: the session's from now on; None: as it is."""

    keeps_will: bool
    expiry_s: int | None


_PLAIN = Leaving(keeps_will=False, expiry_s=None)
_UNKNOWN_STAMP = -1  # of no state of the accounts


class ClientContext:
    """One connection's control record.

    Invariants: `broker` is set once the credentials were proven; `device` and, if it was one that proved it, `token` once the session is open.
    `is_counted`: it holds one of its tenant's `connections`. `leaving`: set by DISCONNECT.
    `session` is set from `plane.admit` until the connection closes or another connection takes the session over. `awaiting_peers`: how many of its
    packets have taken effect here and wait for the other hubs.
    """

    __slots__ = (
        "awaiting_peers",
        "broker",
        "device",
        "exchange",
        "is_counted",
        "leaving",
        "session",
        "token",
    )

    def __init__(self) -> None:
        self.broker: TenantBroker | None = None
        self.session: Session | None = None
        self.device: DeviceRecord | None = None
        self.token: TokenProof | None = None
        self.exchange: Exchange | None = None  # enhanced authentication (§4.12)
        self.leaving: Leaving | None = None
        self.is_counted = False
        self.awaiting_peers = 0

    def forget_will(self) -> None:
        """The Will is not published when the connection ends."""
        self.leaving = _PLAIN

    def attach(self, session: Session, login: Authenticated) -> None:
        """The client has its session."""
        self.session = session
        self.prove(login)

    def prove(self, login: Authenticated) -> None:
        """Keep who the client is."""
        self.device, self.token = login.device, login.token

    def proven(self) -> Authenticated | None:
        """Return who the client is, by its tenant's present record; None: its session is not open yet. It is never current: see `review`."""
        if self.device is None or self.broker is None:
            return None
        return Authenticated(self.broker.record, self.device, _UNKNOWN_STAMP, self.token)

    def detach(self, reason: Reason) -> None:
        """Detach the session, forget the authentication and release the connection's quota unit. Idempotent."""
        exchange, self.exchange = (
            self.exchange,
            None,
        )  # whoever awaits a step of it may never hear, and knows the connection
        if exchange is not None and exchange.awaited is not None:
            awaited, exchange.awaited = exchange.awaited, None
            awaited.callback(None)
        session, self.session = self.session, None
        broker = self.broker
        if broker is None:
            return
        if session is not None and not session.is_discarded:
            keeps_will, expiry_s = self.leaving or (True, None)
            broker.close_session(session, reason, keeps_will, expiry_s)
        if self.is_counted:
            self.is_counted = False
            broker.allowance.release_connection()
