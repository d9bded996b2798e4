"""`iothub queue`: the virtual queues of persistent sessions, read from the store; purged by the running hub, or here when none runs.

Knows no table.
"""

from __future__ import annotations

from collections.abc import Mapping

import click

from iothub.base.errors import BackendError, CorruptRecordError, UnavailableError
from iothub.cli import output, stores
from iothub.cli.app import AGREED, App, noun, verb
from iothub.cli.content import describe, time_of
from iothub.cli.session import Queue, marked, queues_of, session_of, unreadable_in
from iothub.records.admin_commands import Verb
from iothub_services.queues.port import QueuedRecord, QueueStats, StaleEpochError
from iothub_tenants.accounts import tenants

command = noun("queue", "Virtual queues: the messages that wait for persistent sessions.")
_PAGE_BYTES = 4 << 20
_PAYLOAD_SHOWN = 60  # characters in a table; JSON has all of it


@verb(command, "list")
@click.argument("tenant")
@click.option("--limit", type=click.IntRange(1), default=1000, show_default=True, help="At most so many.")
@click.option("--after", default="", help="Begin behind this client id (the last one of the previous page).")
def list_all(app: App, tenant: str, limit: int, after: str) -> None:
    """List the queues of a tenant by client id, each with its driver. One that cannot be read, or whose session cannot, has the reason.

    Example:
      iothub --data-dir ./hub queue list acme -o json
    """
    tenant_id = tenants.show(app.store(), tenant).id
    queues = queues_of(app, tenant_id)
    sessions = stores.read_sessions(app.data_dir, tenant_id, app.loaded.config)
    standing = [row for client_id in sessions if client_id > after for row in _listed(sessions, client_id, queues)]
    rows = standing[:limit]
    app.rows(rows, "name", "driver", "messages", "bytes", "head", "tail", *marked(rows))
    if len(standing) > limit:
        app.say_more_follow(str(rows[-1]["name"]))


@verb(command, "show")
@click.argument("tenant")
@click.argument("client_id")
@click.option(
    "--messages", "count", type=click.IntRange(0, 1000), default=10, show_default=True, help="Show the oldest."
)
def show(app: App, tenant: str, client_id: str, count: int) -> None:
    """Show one queue: which driver has it, how it stands, its limits, and its oldest messages.

    Example:
      iothub --data-dir ./hub queue show acme meter-7 --messages 3 -o json
    """
    tenant_id = tenants.show(app.store(), tenant).id
    state = session_of(app, tenant, tenant_id, client_id)
    with stores.reading_queues(app.data_dir, app.loaded.config) as queues:
        if queues is None:
            raise UnavailableError(f"queues.db is missing, though session {client_id!r} has a queue; see the hub's log")
        stats = queues.stats(state.queue_id)
        try:
            page = queues.read(state.queue_id, stats.epoch, stats.head, count, _PAGE_BYTES) if count else None
            unreadable = unreadable_in(queues, stats)
            driver = queues.home(state.queue_id)
        except StaleEpochError:
            raise UnavailableError(f"session {client_id!r} was just taken over; try again") from None
    records = page.records if page is not None else []
    row = {**_row(client_id, Queue(stats, driver)), "limits": _limits(stats), "unreadable": unreadable}
    if app.form == "table" and unreadable is None:
        del row["unreadable"]
    oldest = [_message(record) for record in records]
    app.record(row if app.form == "table" else {**row, "oldest": oldest})
    app.section("oldest messages", [_brief(message) for message in oldest])


@verb(command, "purge")
@click.argument("tenant")
@click.argument("client_id")
@AGREED
@click.option("--dry-run", "is_dry_run", is_flag=True, help="Only count what would be removed.")
def purge(app: App, tenant: str, client_id: str, is_agreed: bool, is_dry_run: bool) -> None:
    """Remove every message from a queue; the session and its subscriptions stay.

    Examples:
      iothub --data-dir ./hub queue purge acme meter-7
      iothub --data-dir ./hub queue purge acme meter-7 --dry-run
    """
    tenant_id = tenants.show(app.store(), tenant).id
    state = session_of(app, tenant, tenant_id, client_id)
    if is_dry_run:
        queue = queues_of(app, tenant_id).get(state.queue_id)
        if queue is not None and queue.stats.unreadable:
            raise BackendError(queue.stats.unreadable, retryable=False)
        count = queue.stats.messages if queue is not None else 0
        app.done(
            f"would remove {output.counted(count, 'message')}",
            {"name": client_id, "messages": count, "is_purged": False},
        )
        return
    app.confirm(f"Remove all queued messages of session {client_id}?", is_agreed=is_agreed)
    with stores.working_alone(app.data_dir, "iothub queue purge", app.loaded.config) as alone:
        count = alone.queues.purge(state.queue_id) if alone is not None else 0
    if alone is None:
        count = int(str(app.ask_hub(tenant, Verb.QUEUE_PURGE, {"client_id": client_id})["messages"]))
    app.done(f"removed {output.counted(count, 'message')}", {"name": client_id, "messages": count, "is_purged": True})


def _listed(sessions: stores.Sessions, client_id: str, queues: Mapping[int, Queue]) -> list[dict[str, object]]:
    """Return its row, none if it has no queue. Which queue is that of a session that cannot be read is not known."""
    queue = queues.get(sessions[client_id].queue_id)
    return [] if queue is None else [_row(client_id, queue)]


def _row(client_id: str, queue: Queue) -> dict[str, object]:
    stats, driver = queue
    if stats.unreadable:
        return {"name": client_id, "queue_id": stats.queue_id, "driver": driver, "unreadable": stats.unreadable}
    return {
        "name": client_id,
        "queue_id": stats.queue_id,
        "driver": driver,
        "messages": stats.messages,
        "bytes": stats.bytes,
        "head": stats.head,
        "tail": stats.tail,
        "epoch": stats.epoch,
    }


def _brief(message: Mapping[str, object]) -> dict[str, object]:
    """Leave of a message what fits on a line."""
    text = str(message.get("problem") or message.get("payload", "(no text)"))
    return {
        "position": message["position"],
        "topic": message.get("topic"),
        "qos": message["delivery_qos"],
        "bytes": message.get("payload_bytes"),
        "expires": message["expires"],
        "payload": text if len(text) <= _PAYLOAD_SHOWN else f"{text[:_PAYLOAD_SHOWN]}...",
    }


def _limits(stats: QueueStats) -> dict[str, object]:
    bounds = {"messages": stats.limits.messages, "bytes": stats.limits.bytes}
    shown: dict[str, object] = {name: max(bound, 0) if bound else "unlimited" for name, bound in bounds.items()}
    return {**shown, "overflow": stats.limits.overflow.word}


def _message(record: QueuedRecord) -> dict[str, object]:
    shown: dict[str, object] = {"position": record.position, "delivery_qos": record.qos}
    shown["expires"] = time_of(record.expires_at_ms)
    try:
        return {**describe(record.body), **shown}
    except CorruptRecordError as error:
        return {**shown, "problem": str(error)}
