"""`iothub queue`: the virtual queues of persistent sessions, as the running hub reports them.

Knows no store.
"""

from __future__ import annotations

from collections.abc import Mapping

import click

from iothub.admin.hub_rows import AnyJson, queue_limits, queue_row, queued_message
from iothub.cli import audit, output
from iothub.cli.app import App, destroying_verb, noun, verb
from iothub.cli.numbers import WholeNumber
from iothub.cli.paging import LIMIT, after
from iothub.cli.progress import Progress
from iothub.records.admin_commands import Verb, messages_in

command = noun("queue", "Virtual queues: the messages that wait for persistent sessions.")
_PAYLOAD_SHOWN = 60  # characters in a table; JSON has all of it


@verb(command, "list")
@click.argument("tenant")
@LIMIT
@after("client id")
def list_all(app: App, tenant: str, limit: int, after: str) -> None:
    """List the queues of a tenant by client id, each with its driver. The hub must run.

    Example:
      iothub --data-dir ./hub queue list acme -o json
    """
    answer = app.hub.ask(Verb.QUEUE_LIST, tenant, {"after": after, "limit": limit})
    rows = [queue_row(str(reported["client_id"]), reported) for reported in answer.rows]
    app.rows(rows, "name", "driver", "messages", "bytes", "head", "tail")
    app.say_more_follow(answer.result["next"])


@verb(command, "show")
@click.argument("tenant")
@click.argument("client_id")
@click.option(
    "--messages",
    "count",
    type=WholeNumber(0, 1000),
    default=10,
    show_default=True,
    help="Number of oldest messages to show.",
)
def show(app: App, tenant: str, client_id: str, count: int) -> None:
    """Show one queue: its driver, length, positions, limits and oldest messages. The hub must run.

    Example:
      iothub --data-dir ./hub queue show acme meter-7 --messages 3 -o json
    """
    answer = app.hub.ask(Verb.QUEUE_SHOW, tenant, {"client_id": client_id, "messages": count})
    reported: AnyJson = answer.result
    row = {**queue_row(client_id, reported), "limits": queue_limits(reported["limits"])}
    oldest = [queued_message(facts, body) for facts, body in messages_in(answer.rows)]
    app.record(row if app.form == "table" else {**row, "oldest": oldest})
    app.section("oldest messages", [_brief(message) for message in oldest])


@destroying_verb(command, "purge", dry_run="Count what would be removed; remove nothing.")
@click.argument("tenant")
@click.argument("client_id")
def purge(app: App, tenant: str, client_id: str, is_dry_run: bool) -> None:
    """Remove every message from a queue; the session and its subscriptions stay. The hub must run.

    Examples:
      iothub --data-dir ./hub queue purge acme meter-7 --yes
      iothub --data-dir ./hub queue purge acme meter-7 --dry-run
    """
    if is_dry_run:
        reported: AnyJson = app.hub.ask(Verb.QUEUE_SHOW, tenant, {"client_id": client_id, "messages": 0}).result
        count = reported["messages"]
        app.done(
            f"would remove {output.counted(count, 'message')}",
            {"name": client_id, "messages": count, "is_purged": False},
        )
        return
    app.hub.require()
    app.confirm(f"Remove all queued messages of session {client_id}?")
    with Progress("messages removed") as progress:
        answer = app.change_hub(tenant, Verb.QUEUE_PURGE, {"client_id": client_id}, on_progress=progress)
    count = int(str(answer["messages"]))
    audit.note(app, tenant, "queue", client_id, "purged", messages=count)
    app.done(f"removed {output.counted(count, 'message')}", {"name": client_id, "messages": count, "is_purged": True})


def _brief(message: Mapping[str, object]) -> dict[str, object]:
    """Return what fits on a line."""
    text = str(message.get("problem") or message.get("payload", "(no text)"))
    return {
        "position": message["position"],
        "topic": message.get("topic"),
        "qos": message["delivery_qos"],
        "bytes": message.get("payload_bytes"),
        "expires": message["expires"],
        "payload": text if len(text) <= _PAYLOAD_SHOWN else f"{text[:_PAYLOAD_SHOWN]}...",
    }
