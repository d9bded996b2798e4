"""What a deleted tenant or device leaves outside the accounts: stored sessions, queued and retained messages, topics of streams.

Knows that the hub removes them: the one that runs now, or the next one at its start.
"""

from __future__ import annotations

import time

from iothub.base.errors import InterruptedWorkError, NotFoundError, UnavailableError
from iothub.cli.app import COMMAND_TIMEOUT_S, App
from iothub.records.admin_commands import Verb
from iothub_tenants.accounts import devices, streams, tenants
from iothub_tenants.accounts.tenants import Deletion

_POLL_S = 0.1


def finish_deletion(app: App, deletion: Deletion) -> bool:
    """See the running hub empty the tenant's stores; False: none runs, or it is still at it after a while."""
    if app.data_dir.holder() is None:
        return False
    deadline = time.monotonic() + COMMAND_TIMEOUT_S
    try:
        while time.monotonic() < deadline:
            if _is_gone(app, deletion):
                return True
            time.sleep(_POLL_S)
    except KeyboardInterrupt:
        raise InterruptedWorkError(
            f"interrupted: tenant {deletion.name} is being deleted; the hub goes on with it, at its next start if none runs"
        ) from None
    return False


def what_follows(app: App, deletion: Deletion) -> str:
    """Say what a hub has still to do for a deletion, and what it waits for."""
    prefix = app.loaded.config.kafka.topic_prefix
    found = streams.of_tenant(app.store(), deletion.tenant_id, deletion.name)
    topics = [topic for stream in found for topic in stream.topics(prefix)]
    is_running = app.data_dir.holder() is not None
    text = f"tenant {deletion.name} is being deleted; "
    text += "its stored messages follow" if is_running else "no hub runs: its stored messages go when one starts"
    if not (topics and app.loaded.config.kafka.brokers):
        return text if is_running else f"{text}; the name is free after that"
    return (
        f"{text}, and the topics of its streams in Kafka as soon as the hub reaches it: {', '.join(topics)}; "
        "the name is free after that; `iothub status` says what the hub waits for"
    )


def delete_device(app: App, tenant: str, name: str) -> None:
    """Delete a device. The hub ends its sessions: now, or at its next start. Raises NotFoundError, ConflictError."""
    devices.delete(app.store(), tenant, name)
    if app.data_dir.holder() is not None:
        _await_hub(app, f"device {tenant}/{name} is deleted; its sessions end as soon as the hub hears of it")


def _await_hub(app: App, otherwise: str) -> None:
    """Wait until the hub has applied what was changed: it does that before it answers anything."""
    try:
        app.ask_hub("", Verb.PING, {"node": app.loaded.config.node.number})
    except (UnavailableError, InterruptedWorkError) as error:
        app.say(f"iothub: warning: {otherwise}: {error}")


def _is_gone(app: App, deletion: Deletion) -> bool:
    try:
        return tenants.show(app.store(), deletion.name).id != deletion.tenant_id
    except NotFoundError:
        return True
