"""What a deleted tenant or device leaves outside the accounts: stored sessions, queued and retained messages.

Knows who empties them: the running hub, or, when none runs, this process.
"""

from __future__ import annotations

import time

from iothub.cli.app import COMMAND_TIMEOUT_S, App
from iothub.cli.stores import working_alone
from iothub.errors import InterruptedWorkError, NotFoundError, UnavailableError
from iothub.verbs import Verb
from iothub_tenants.accounts import devices, tenants
from iothub_tenants.accounts.tenants import Deletion

_POLL_S = 0.1


def finish_deletion(app: App, deletion: Deletion) -> bool:
    """Empty the tenant's other stores, or see the hub do it; False when the hub is still at it after a while."""
    try:
        with working_alone(app.data_dir, "iothub tenant delete", app.loaded.config) as stores:
            if stores is not None:
                stores.drop_tenant(deletion.tenant_id)
                tenants.finish_deletion(app.store(), deletion.tenant_id)
                return True
        return _wait_for_hub(app, deletion)
    except KeyboardInterrupt:
        raise InterruptedWorkError(
            f"interrupted: tenant {deletion.name} is being deleted; the hub goes on with it, at its next start if none runs"
        ) from None


def delete_device(app: App, tenant: str, name: str) -> None:
    """Delete a device and end its sessions, or have the hub do that. Raises NotFoundError, ConflictError."""
    tenant_id = tenants.show(app.store(), tenant).id
    with working_alone(app.data_dir, "iothub device delete", app.loaded.config) as stores:
        devices.delete(app.store(), tenant, name)
        if stores is not None:
            sessions = stores.sessions(tenant_id).values()
            stores.discard([state for state in sessions if state.device == name], "device_deleted")
    if stores is None:
        _await_hub(app, f"device {tenant}/{name} is deleted; its sessions end as soon as the hub hears of it")


def _await_hub(app: App, otherwise: str) -> None:
    """Wait until the hub has obeyed what was changed: it does that before it answers anything."""
    try:
        app.ask_hub("", Verb.PING, {"node": app.loaded.config.node.number})
    except (UnavailableError, InterruptedWorkError) as error:
        app.say(f"iothub: warning: {otherwise}: {error}")


def _wait_for_hub(app: App, deletion: Deletion) -> bool:
    deadline = time.monotonic() + COMMAND_TIMEOUT_S
    while time.monotonic() < deadline:
        try:
            if tenants.show(app.store(), deletion.name).id != deletion.tenant_id:
                return True
        except NotFoundError:
            return True
        time.sleep(_POLL_S)
    return False
