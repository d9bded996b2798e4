"""What a deleted tenant leaves outside the accounts: stored sessions, queued and retained messages.

Knows who empties them: the running hub, or, when none runs, this process.
"""

from __future__ import annotations

import time

from iothub.cli.app import COMMAND_TIMEOUT_S, App
from iothub.cli.stores import working_alone
from iothub.errors import NotFoundError
from iothub_tenants import tenants
from iothub_tenants.tenants import Deletion

_POLL_S = 0.1


def finish_deletion(app: App, deletion: Deletion) -> bool:
    """Empty the tenant's other stores, or see the hub do it; False when the hub is still at it after a while."""
    with working_alone(app.data_dir, "iothub tenant delete") as stores:
        if stores is not None:
            stores.drop_tenant(deletion.tenant_id)
            tenants.finish_deletion(app.store(), deletion.tenant_id)
            return True
    return _wait_for_hub(app, deletion)


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
