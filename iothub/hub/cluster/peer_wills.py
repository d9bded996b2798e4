"""Wills of transient sessions that outlive their hub: this hub's have copies at others, and those of a hub that is gone are published here.

Knows no frame. Who keeps which copy is `iothub.peers.will_copies`'s.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from twisted.internet.defer import Deferred

from iothub.base import log
from iothub.base.clock import BootClock, SystemClock
from iothub.base.errors import IotHubError
from iothub.engine.state import Session
from iothub.hub.cluster.peer_receiver import PeerReceiver
from iothub.peers.ports import Announcer, PeerId
from iothub.peers.view import View
from iothub.peers.will_copies import WillBody, WillCopies, WillCopy
from iothub_services.auth.port import TenantRecord
from iothub_services.sessions.port import SessionControl, Will
from iothub_services.sessions.wills import will_id
from iothub_tenants.broker.brokers import Brokers

FindTenant = Callable[[int], Awaitable[TenantRecord | None]]
"""Return a tenant by its id. Raises UnavailableError."""


class PeerWills(PeerReceiver[WillCopies]):
    """Fulfils `WillKeeper`. On the reactor thread."""

    def __init__(
        self,
        links: Announcer,
        me: Callable[[], PeerId],
        brokers: Brokers,
        find_tenant: FindTenant,
        clock: BootClock = SystemClock(),  # noqa: B008 - it has no state
    ) -> None:
        super().__init__(lambda: WillCopies(me(), links, self._publish, self._own, clock))
        self._me = me
        self._brokers = brokers
        self._find_tenant = find_tenant
        self._log = log.get(__name__)

    # --- WillKeeper

    def keep(self, session: Session, will: Will, message_id: bytes) -> None:
        if self._core is not None:
            self._core.keep(_copy_of(session, will, message_id))

    def drop(self, session: Session, message_id: bytes) -> None:
        if self._core is not None:
            self._core.drop((session.tenant.tenant_id, session.client_id), message_id)

    # --- links

    def members(self, peers: Sequence[PeerId]) -> None:
        """Say which other hubs there are, at each look at the accounts."""
        if peers or self._core is not None:
            self._made().set_view(View(0, [self._me(), *peers]))

    # --- for the copies

    def _own(self) -> Iterable[WillCopy]:
        return [
            _copy_of(session, session.control.will, will_id(session, session.control.will))
            for broker in self._brokers
            for session in broker.plane.sessions.awake.values()
            if session.connection is not None and not session.is_persistent and session.control.will is not None
        ]

    def _publish(self, copy: WillCopy) -> None:
        if copy.will is not None:
            Deferred.fromCoroutine(self._publish_or_log(copy, copy.will))

    async def _publish_or_log(self, copy: WillCopy, body: WillBody) -> None:
        tenant_id, client_id = copy.key
        try:
            record = await self._find_tenant(tenant_id)
            if record is None:
                return  # it was deleted
            broker = await self._brokers.broker(record)
        except IotHubError as error:
            self._log.warning("Will of a lost hub's client not published", client_id=client_id, cause=str(error))
            return
        control = SessionControl(body.version, 0, None, body.device_id)
        will = Will(body.topic, body.payload, body.qos, body.retain, body.properties, expiry_s=body.expiry_s)
        broker.publish_will_of_lost(client_id, body.device, control, will, copy.message_id)


def _copy_of(session: Session, will: Will, message_id: bytes) -> WillCopy:
    control: Any = session.control
    body = WillBody(
        device=session.device,
        device_id=control.device_id,
        version=control.version,
        topic=will.topic,
        payload=will.payload,
        qos=will.qos,
        retain=will.retain,
        properties=will.properties,
        expiry_s=will.expiry_s,
    )
    return WillCopy((session.tenant.tenant_id, session.client_id), message_id, body)
