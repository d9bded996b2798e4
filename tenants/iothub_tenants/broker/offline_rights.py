"""Finds out what a device that is not connected may do: its Will is published when it has gone, perhaps by another hub.

Knows no session's life and keeps nothing: each call reads the accounts, through their cache.
"""

from __future__ import annotations

from iothub.engine.state import Session
from iothub.hooks import Client, HookedPolicy
from iothub_services.auth.port import DeviceRecord, TenantRecord, TenantState
from iothub_tenants.broker.hub import Hub, Rights


async def rights_of(hub: Hub, tenant: TenantRecord, session: Session) -> Rights | None:
    """Return what the session's device may do now; None: nothing, it may not even connect.

    Raises:
        StoreDownError: the accounts cannot be read.
    """
    directory = hub.authenticator.directory
    record = await directory.tenant(tenant.name)
    if record is None or record.id != tenant.id or record.state is not TenantState.ACTIVE:
        return None
    device = await directory.device(record, session.device)
    if device is None and hub.hooks.authenticate is not None:
        device = DeviceRecord(session.device, "")  # a plug-in may admit devices that the accounts do not know
    if device is None or not device.is_enabled or session.control.is_of_predecessor(device.id):
        return None
    policy = hub.policies.policy(record, device, session.client_id)
    if hub.hooks.authorise is None:
        return policy
    client = Client(record.name, device.name, session.client_id, version=session.control.version)
    return HookedPolicy(policy, hub.hooks.authorise, client)
