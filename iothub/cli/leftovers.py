"""What a deleted tenant or device leaves outside the accounts: stored sessions, queued and retained messages, topics of streams.

Knows who empties them: the running hub, or, when none runs, this process.
"""

from __future__ import annotations

import time

from iothub.base.errors import InterruptedWorkError, NotFoundError, UnavailableError
from iothub.cli import stream_topics
from iothub.cli.app import COMMAND_TIMEOUT_S, App
from iothub.cli.stores import working_alone
from iothub.records.admin_commands import Verb
from iothub_tenants.accounts import devices, streams, tenants
from iothub_tenants.accounts.tenants import Deletion

_POLL_S = 0.1
_WHO_GOES_ON = "the hub goes on with it, at its next start if none runs"


def require_way(app: App, tenant: str) -> None:
    """Raise ConfigError when nobody could finish the tenant's deletion: no hub runs, and this process cannot reach its topics."""
    if app.data_dir.holder() is None and streams.list_all(app.store(), tenant):
        stream_topics.require_kafka(app, tenant)


def finish_deletion(app: App, deletion: Deletion) -> bool:
    """Empty the tenant's other stores, or see the hub do it; False when the hub is still at it after a while.

    Raises UnavailableError, which says what to do, when a store or Kafka does not answer.
    """
    try:
        with working_alone(app.data_dir, "iothub tenant delete", app.loaded.config) as stores:
            if stores is not None:
                stores.drop_tenant(deletion.tenant_id)
                _delete_topics(app, deletion)
                tenants.finish_deletion(app.store(), deletion.tenant_id)
                return True
        return _wait_for_hub(app, deletion)
    except UnavailableError as error:
        raise UnavailableError(
            f"tenant {deletion.name} is being deleted, its name is not free yet: {error}; {_WHO_GOES_ON}, or repeat "
            f"`iothub tenant delete {deletion.name} --confirm {deletion.name}` when that is put right"
        ) from None
    except KeyboardInterrupt:
        raise InterruptedWorkError(f"interrupted: tenant {deletion.name} is being deleted; {_WHO_GOES_ON}") from None


def what_follows(app: App, deletion: Deletion) -> str:
    """Say what the hub that runs has still to do for a deletion, and what it waits for."""
    prefix = app.loaded.config.kafka.topic_prefix
    found = streams.of_tenant(app.store(), deletion.tenant_id, deletion.name)
    topics = [topic for stream in found for topic in stream.topics(prefix)]
    text = f"tenant {deletion.name} is being deleted; its stored messages follow"
    if not (topics and app.loaded.config.kafka.brokers):
        return text
    return (
        f"{text}, and the topics of its streams in Kafka as soon as the hub reaches it: {', '.join(topics)}; "
        "the name is free after that; `iothub status` says what the hub waits for"
    )


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


def _delete_topics(app: App, deletion: Deletion) -> None:
    found = streams.of_tenant(app.store(), deletion.tenant_id, deletion.name)
    if found:
        stream_topics.delete_of_tenant(app, deletion.name, found)


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
