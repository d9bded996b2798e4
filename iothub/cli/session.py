"""`iothub session`: persistent sessions of a tenant, read from the stores; discarded by the running hub, or here when none runs.

Knows no table. Sessions that end with their connection are in the hub's memory only and are not shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import click

from iothub.base.errors import CorruptRecordError, NotFoundError
from iothub.cli import output, stores
from iothub.cli.app import AGREED, App, noun, verb
from iothub.cli.content import time_of
from iothub.records.admin_commands import Verb
from iothub.records.events import number_of_hub
from iothub.records.state import SessionState
from iothub_services.queues.port import QueueStats, QueueStore, StaleEpochError
from iothub_services.queues.threads import load_page
from iothub_tenants.accounts import tenants

command = noun("session", "Persistent sessions: they outlive their connection, and queue messages meanwhile.")
_VERSIONS = {3: "3.1", 4: "3.1.1", 5: "5.0"}
_LOOKED_AT = 128  # records behind the head; a reader that stands still has acknowledged what is before
_PAGE_BYTES = 4 << 20
_NEVER = 0xFFFFFFFF  # §3.1.2.11.2: the session does not expire


class Queue(NamedTuple):
    """How a queue stands, and which driver has it."""

    stats: QueueStats
    driver: str | None


@verb(command, "list")
@click.argument("tenant")
@click.option("--limit", type=click.IntRange(1), default=1000, show_default=True, help="At most so many.")
@click.option("--after", default="", help="Begin behind this client id (the last one of the previous page).")
def list_all(app: App, tenant: str, limit: int, after: str) -> None:
    """List the persistent sessions of a tenant by client id.

    Example:
      iothub --data-dir ./hub session list acme -o json
    """
    tenant_id = tenants.show(app.store(), tenant).id
    sessions = stores.read_sessions(app.data_dir, tenant_id, app.loaded.config)
    names = [client_id for client_id in sessions if client_id > after]
    queues = queues_of(app, tenant_id)
    states = [sessions[client_id] for client_id in names[:limit]]
    rows = [_row(state, queues.get(state.queue_id)) for state in states]
    app.rows(rows, "name", "device", "is_connected", "version", "subscriptions", "queued_messages", "expires")
    if len(names) > limit:
        app.say_more_follow(names[limit - 1])


@verb(command, "show")
@click.argument("tenant")
@click.argument("client_id")
def show(app: App, tenant: str, client_id: str) -> None:
    """Show one persistent session with its subscriptions, will and queue.

    Example:
      iothub --data-dir ./hub session show acme meter-7
    """
    tenant_id = tenants.show(app.store(), tenant).id
    state = session_of(app, tenant, tenant_id, client_id)
    row = _row(state, queues_of(app, tenant_id).get(state.queue_id))
    driver, unreadable = _looked_at(app, state.queue_id)
    row |= {
        "created": time_of(state.created_at_ms),
        "connected": time_of(state.connected_at_ms),
        "disconnected": None if state.is_connected else time_of(state.disconnected_at_ms),
        "disconnect_reason": None if state.is_connected else state.disconnect_reason,
        "session_expiry_s": "never" if state.session_expiry_s == _NEVER else state.session_expiry_s,
        "queue_id": state.queue_id,
        "queue_driver": driver,
        "node": number_of_hub(state.hub),
        "will": None if state.will is None else {"topic": state.will.topic, "qos": state.will.qos},
    }
    if unreadable is not None or app.form != "table":
        row["unreadable"] = unreadable
    subscriptions = [
        {"name": filter_text(group, topic_filter), "qos": options.qos, "no_local": options.no_local}
        for (group, topic_filter), options in state.subscriptions.items()
    ]
    app.record(row if app.form == "table" else row | {"subscriptions": subscriptions})
    app.section("subscriptions", subscriptions)


@verb(command, "discard")
@click.argument("tenant")
@click.argument("client_id")
@AGREED
@click.option("--dry-run", "is_dry_run", is_flag=True, help="Only say what would be discarded.")
def discard(app: App, tenant: str, client_id: str, is_agreed: bool, is_dry_run: bool) -> None:
    """End a session: its connection is closed, its subscriptions and queued messages are gone.

    Examples:
      iothub --data-dir ./hub session discard acme meter-7
      iothub --data-dir ./hub session discard acme meter-7 --dry-run
    """
    tenant_id = tenants.show(app.store(), tenant).id
    if is_dry_run:
        state = session_of(app, tenant, tenant_id, client_id)
        row = _row(state, queues_of(app, tenant_id).get(state.queue_id))
        count = row["queued_messages"]
        waiting = "a queue that cannot be read" if count is None else output.counted(int(str(count)), "queued message")
        app.done(f"would discard session {client_id} with {waiting}", row)
        return
    app.confirm(f"Discard session {client_id} of tenant {tenant} with its queued messages?", is_agreed=is_agreed)
    with stores.working_alone(app.data_dir, "iothub session discard", app.loaded.config) as alone:
        if alone is not None:
            alone.discard([_existing(alone.sessions(tenant_id), tenant, client_id)], "operator")
    if alone is None:
        app.ask_hub(tenant, Verb.SESSION_DISCARD, {"client_id": client_id})
    app.done(f"discarded session {client_id}", {"name": client_id, "tenant": tenant, "is_discarded": True})


def session_of(app: App, tenant: str, tenant_id: int, client_id: str) -> SessionState:
    """Return one persistent session. Raises NotFoundError."""
    return _existing(stores.read_sessions(app.data_dir, tenant_id, app.loaded.config), tenant, client_id)


def queues_of(app: App, tenant_id: int) -> dict[int, Queue]:
    """Return how all queues of a tenant stand, by queue id."""
    with stores.reading_queues(app.data_dir, app.loaded.config) as queues:
        if queues is None:
            return {}
        listed = queues.list_queues(tenant_id)
        return {stats.queue_id: Queue(stats, queues.home(stats.queue_id)) for stats in listed}


def unreadable_in(queues: QueueStore, stats: QueueStats) -> dict[str, object] | None:
    """Return what its reader stands still before, if that is near the head. Raises StaleEpochError: somebody has just claimed it."""
    after, left = stats.head, _LOOKED_AT
    while left > 0:
        page = load_page(queues.read(stats.queue_id, stats.epoch, after, left, _PAGE_BYTES))
        if page.unreadable is not None:
            return {"position": page.unreadable.position, "why": page.unreadable.why}
        if page.is_short or page.upto <= after:
            break
        left -= max(len(page.records), 1)
        after = page.upto
    return None


def _looked_at(app: App, queue_id: int) -> tuple[str | None, dict[str, object] | None]:
    """Return which driver has a queue, and what its reader stands still before."""
    with stores.reading_queues(app.data_dir, app.loaded.config) as queues:
        if queues is None:
            return None, None
        driver = queues.home(queue_id)
        try:
            return driver, unreadable_in(queues, queues.stats(queue_id))
        except (NotFoundError, StaleEpochError):
            return driver, None
        except CorruptRecordError as error:  # of the queue itself
            return driver, {"position": None, "why": str(error)}


def filter_text(group: str | None, topic_filter: str) -> str:
    """Return a subscription's filter as the client gave it."""
    return topic_filter if group is None else f"$share/{group}/{topic_filter}"


def marked(rows: Iterable[Mapping[str, object]]) -> list[str]:
    """Return the further column of a table of which something cannot be read."""
    return ["unreadable"] if any("unreadable" in row for row in rows) else []


def _existing(sessions: stores.Sessions, tenant: str, client_id: str) -> SessionState:
    state = sessions.get(client_id)
    if state is None:
        raise NotFoundError(
            f"tenant {tenant} has no persistent session {client_id!r}; `iothub session list {tenant}` shows them"
        )
    return state


def _row(state: SessionState, queue: Queue | None) -> dict[str, object]:
    return {
        "name": state.client_id,
        "device": state.device,
        "is_connected": state.is_connected,
        "version": _VERSIONS.get(state.protocol_version, ""),
        "subscriptions": len(state.subscriptions),
        "queued_messages": _stored(queue, "messages"),
        "queued_bytes": _stored(queue, "bytes"),
        "expires": _expiry(state),
    }


def _stored(queue: Queue | None, what: str) -> int | None:
    """Return how many messages or bytes a session's queue has; None: it cannot be read."""
    if queue is None:
        return 0
    return None if queue.stats.unreadable else int(getattr(queue.stats, what))


def _expiry(state: SessionState) -> str | None:
    if state.is_connected or state.session_expiry_s == _NEVER:
        return None
    return time_of(state.disconnected_at_ms + state.session_expiry_s * 1000)
