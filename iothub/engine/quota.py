# cython: annotation_typing=False
"""What an inbound message must pass before it is routed: the meters of device and tenant, day counters, and the state of the store.

Knows no quota names, and not how a client learns of a refusal.
"""

from __future__ import annotations

from iothub.engine.limits import DeviceMeters
from iothub.engine.state import Connection, Session, TenantPlane
from iothub.engine.turn import PAUSES_PUBLISHERS, Turn

# What `admit` returns; above 0: seconds until it is worth another try, and the PUBLISH stays where it is.
PASSED = 0.0
RATE = -1.0  # over its rate for longer than it may wait
SPENT = -2.0  # a day's or month's allowance is gone

# Bits of `Connection.taken_meters`: which meters the blocked PUBLISH has passed.
_DAY_MESSAGES = 1
_DAY_BYTES = 2
_DEVICE_MESSAGES = 4
_DEVICE_BYTES = 8
_TENANT_MESSAGES = 16
_TENANT_BYTES = 32
SINK_MESSAGES = 64
SINK_BYTES = 128

_NO_METERS = DeviceMeters()


class Gate:
    """The admission of inbound messages."""

    def __init__(self, turn: Turn) -> None:
        self.turn = turn

    def admit(self, connection: Connection, session: Session, tenant: TenantPlane, size: int) -> float:
        """Let one message of `size` bytes pass all meters: PASSED, seconds to wait, RATE or SPENT.

        What one meter has granted is remembered while another makes the message wait.
        """
        if (
            tenant.inbound_messages is None
            and tenant.inbound_bytes is None
            and session.meters is None
            and tenant.day_messages is None
            and tenant.day_bytes is None
        ):
            return PASSED
        now = self.turn.now
        own = session.meters or _NO_METERS
        # The allowances of a day come last: what a rate refuses does not use them up.
        for bit, meter, units, name in (
            (_DEVICE_MESSAGES, own.inbound_messages, 1, "device_inbound_messages"),
            (_DEVICE_BYTES, own.inbound_bytes, size, "device_inbound_bytes"),
            (_TENANT_MESSAGES, tenant.inbound_messages, 1, "inbound_messages"),
            (_TENANT_BYTES, tenant.inbound_bytes, size, "inbound_bytes"),
            (_DAY_MESSAGES, tenant.day_messages, 1, "day_messages"),
            (_DAY_BYTES, tenant.day_bytes, size, "day_bytes"),
        ):
            if meter is None or connection.taken_meters & bit:
                continue
            wait: float = meter.take(units, now)
            if wait > 0.0 and self.may_wait(connection, tenant, wait):
                return wait
            if wait != 0.0:
                self.turn.observer.limited(tenant, session, name, 1)
                return RATE if wait > 0.0 else SPENT
            connection.taken_meters |= bit
        return PASSED

    def may_wait(self, connection: Connection, tenant: TenantPlane, wait: float) -> bool:
        """Whether the message may wait so long, on top of what it has waited: a publisher is left unread for `max_pause_s` at most."""
        now = self.turn.now
        if connection.blocked_since == 0.0:
            connection.blocked_since = now
        return now + wait - connection.blocked_since <= tenant.limits.max_pause_s

    def forget(self, connection: Connection) -> None:
        """The message was accepted or refused: the next one begins anew."""
        connection.taken_meters = 0
        connection.blocked_since = 0.0

    def must_wait_for_store(self, connection: Connection, needs_store: bool) -> bool:
        """Whether this publisher is too far ahead of the store, the worker holds too much, or routes may be missing here."""
        turn = self.turn
        tenant = connection.tenant
        if turn.overload_level() >= PAUSES_PUBLISHERS or turn.is_held(tenant):
            return True
        if tenant is not None and tenant.slices is not None and self._is_behind(tenant):
            return True
        return needs_store and (
            connection.unstored >= turn.most_unstored_per_connection
            or turn.is_store_full()
            or self._waits_for_disk(connection)
        )

    def _is_behind(self, tenant: TenantPlane) -> bool:
        """Whether a tenant has routed more than it may before what is delivered over several turns is through."""
        return tenant.sliced >= self.turn.limits.sliced_receivers or tenant.buffered_bytes >= tenant.most_buffered_bytes

    def _waits_for_disk(self, connection: Connection) -> bool:
        """Whether it waits for room: `max_pause_s` from when the disk became short, but 3.x, which knows no refusal, as long as it is."""
        turn = self.turn
        tenant = connection.tenant
        return turn.is_disk_short and (
            connection.version < 5 or (tenant is not None and turn.now - turn.disk_short_at < tenant.limits.max_pause_s)
        )

    def may_go_on(self, connection: Connection) -> bool:
        """Whether a publisher that waited for store or memory may be read again."""
        turn = self.turn
        tenant = connection.tenant
        return (
            turn.overload_level() < PAUSES_PUBLISHERS
            and not turn.is_held(tenant)
            and (tenant is None or tenant.slices is None or not self._is_behind(tenant))
            and connection.unstored * 2 <= turn.most_unstored_per_connection
            and turn.is_store_roomy()
            and not self._waits_for_disk(connection)
        )
