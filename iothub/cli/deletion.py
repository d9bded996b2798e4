"""What remains to be removed outside the accounts after a deletion: sessions, queued and retained messages, topics of streams.

The hub removes it: now if it runs, else at its next start.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from iothub.base.errors import InterruptedWorkError, NotFoundError, UnavailableError
from iothub.cli import accounts
from iothub.cli.app import COMMAND_TIMEOUT_S, App
from iothub.records.admin_commands import Verb

if TYPE_CHECKING:
    from iothub_tenants.accounts.tenants import Deletion

_POLL_S = 0.1


def finish_deletion(app: App, deletion: Deletion) -> bool:
    """Wait a while for the running hub to empty the tenant's stores; False: no hub runs, or it has not finished."""
    if not app.may_hub_run:
        return False
    deadline = time.monotonic() + COMMAND_TIMEOUT_S
    try:
        while time.monotonic() < deadline:
            if _is_gone(app, deletion):
                return True
            time.sleep(_POLL_S)
    except KeyboardInterrupt:
        raise InterruptedWorkError(
            f"interrupted: tenant {deletion.name} is being deleted; the hub continues, at its next start if it is stopped"
        ) from None
    return False


def what_follows(app: App, deletion: Deletion) -> str:
    """Describe what the hub still has to remove, and what it waits for."""
    if app.is_remote:
        return f"tenant {deletion.name} is being deleted; the hub removes its stored messages, then the name is free"
    prefix = app.loaded.config.kafka.topic_prefix
    found = accounts.streams.of_tenant(app.store(), deletion.tenant_id, deletion.name)
    topics = [topic for stream in found for topic in stream.topics(prefix)]
    is_running = app.data_dir.holder() is not None
    text = f"tenant {deletion.name} is being deleted; "
    text += "the hub is removing" if is_running else "no hub runs, the next start removes"
    text += " its stored messages"
    if not (topics and app.loaded.config.kafka.brokers):
        return text if is_running else f"{text}; then the name is free"
    return (
        f"{text}, and the Kafka topics of its streams as soon as Kafka answers: {', '.join(topics)}; "
        "then the name is free; `iothub status` shows what the hub waits for"
    )


def delete_device(app: App, tenant: str, name: str) -> None:
    """Delete a device. The hub ends its sessions: now, or at its next start. Raises NotFoundError, ConflictError."""
    accounts.devices.delete(app.store(), tenant, name)
    if not app.is_remote and app.data_dir.holder() is not None:
        _await_hub(app, f"device {tenant}/{name} is deleted; the hub has not confirmed that its sessions ended")


def _await_hub(app: App, otherwise: str) -> None:
    """Wait until the hub that runs here has applied what was changed."""
    try:
        app.change_hub("", Verb.ACCOUNTS_APPLY, {})
    except (UnavailableError, InterruptedWorkError) as error:
        app.say(f"iothub: warning: {otherwise}: {error}")


def _is_gone(app: App, deletion: Deletion) -> bool:
    try:
        return accounts.tenants.show(app.store(), deletion.name).id != deletion.tenant_id
    except NotFoundError:
        return True
