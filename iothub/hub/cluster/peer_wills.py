"""Wills of transient sessions that outlive their hub: this hub's have copies at others, and those of a hub that is gone are published here.

Knows no frame. Who keeps which copy is `iothub.peers.will_copies`'s, by which rights a Will is published the broker's.

A tenant that is not open here is found in the accounts. While they cannot be read, its Wills wait, as `until_read` says.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any

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
from iothub_tenants.broker.broker import TenantBroker
from iothub_tenants.broker.brokers import Brokers
from iothub_tenants.broker.until_read import Later, UntilRead

RETRY_S = 5.0  # between two attempts to open one tenant

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
        later: Later,
        clock: BootClock = SystemClock(),  # noqa: B008 - it has no state
    ) -> None:
        super().__init__(lambda: WillCopies(me(), links, self._publish, self._own, clock))
        self._me = me
        self._brokers = brokers
        self._find_tenant = find_tenant
        self._later = later
        self._clock = clock
        self._unpublished: dict[int, UntilRead[WillCopy]] = {}  # by tenant: one waits for no other one
        self.given_up = 0  # Wills that were not published
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
        if copy.will is None:
            return
        tenant_id = copy.key[0]
        if tenant_id not in self._unpublished:
            self._unpublished[tenant_id] = UntilRead(
                self._publish_copy,
                self._give_up,
                self._clock.boottime,
                self._later,
                RETRY_S,
                lambda: self._unpublished.pop(tenant_id),
            )
        self._unpublished[tenant_id].add(copy)

    async def _publish_copy(self, copy: WillCopy) -> None:
        """Raises IotHubError."""
        broker = await self._broker(copy.key[0])
        if broker is not None and copy.will is not None:
            _publish_by(broker, copy, copy.will, partial(self._made().published, copy))

    async def _broker(self, tenant_id: int) -> TenantBroker | None:
        """Return the broker of a tenant; None: the tenant was deleted. Raises IotHubError."""
        present = self._brokers.present(tenant_id)
        if present is not None:
            return present
        record = await self._find_tenant(tenant_id)
        return None if record is None else await self._brokers.broker(record)

    def _give_up(self, copy: WillCopy, error: IotHubError) -> None:
        self._log.warning(
            "Will of a lost hub's client not published: its tenant could not be opened",
            client_id=copy.key[1],
            cause=str(error),
        )
        self.given_up += 1


def _publish_by(broker: TenantBroker, copy: WillCopy, body: WillBody, on_done: Callable[[], None]) -> None:
    control = SessionControl(body.version, 0, None, body.device_id)
    will = Will(body.topic, body.payload, body.qos, body.retain, body.properties, expiry_s=body.expiry_s)
    broker.publish_will_of_lost(copy.key[1], body.device, control, will, copy.message_id, on_done)


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
