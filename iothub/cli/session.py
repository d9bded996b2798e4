"""`iothub session`: persistent sessions of a tenant, as the running hub reports them.

Knows no store. Sessions that end with their connection are in the hub's memory only and are not shown.
"""

from __future__ import annotations

from typing import Any

import click

from iothub.cli import output
from iothub.cli.app import App, destroying_verb, noun, verb
from iothub.cli.content import time_of
from iothub.records.admin_commands import Json, Verb

command = noun("session", "Persistent sessions: they outlive their connection and queue messages meanwhile.")
_VERSIONS = {3: "3.1", 4: "3.1.1", 5: "5.0"}
_NEVER = 0xFFFFFFFF  # §3.1.2.11.2: the session does not expire

AnyJson = Any  # a JSON object from the hub, as `iothub.records.admin_commands.Verb` describes it


@verb(command, "list")
@click.argument("tenant")
@click.option("--limit", type=click.IntRange(1), default=1000, show_default=True, help="Maximum number of rows.")
@click.option("--after", default="", help="Start after this client id (the last one of the previous page).")
def list_all(app: App, tenant: str, limit: int, after: str) -> None:
    """List the persistent sessions of a tenant by client id. The hub must run.

    Example:
      iothub --data-dir ./hub session list acme -o json
    """
    answer = app.hub.ask(Verb.SESSION_LIST, tenant, {"after": after, "limit": limit})
    rows = [_row(reported) for reported in answer.rows]
    app.rows(rows, "name", "device", "is_connected", "version", "subscriptions", "queued_messages", "expires")
    app.say_more_follow(answer.result["next"])


@verb(command, "show")
@click.argument("tenant")
@click.argument("client_id")
def show(app: App, tenant: str, client_id: str) -> None:
    """Show one persistent session with its subscriptions, will and queue. The hub must run.

    Example:
      iothub --data-dir ./hub session show acme meter-7
    """
    answer = app.hub.ask(Verb.SESSION_SHOW, tenant, {"client_id": client_id})
    reported: AnyJson = answer.result
    queue = reported["queue"] or {}
    row = _row(reported) | {
        "created": time_of(reported["created_at_ms"]),
        "connected": time_of(reported["connected_at_ms"]),
        "disconnected": None if reported["is_connected"] else time_of(reported["disconnected_at_ms"]),
        "disconnect_reason": None if reported["is_connected"] else reported["disconnect_reason"],
        "session_expiry_s": "never" if reported["session_expiry_s"] == _NEVER else reported["session_expiry_s"],
        "queue_id": reported["queue_id"],
        "queue_driver": queue.get("driver"),
        "node": reported["node"],
        "will": reported["will"],
    }
    subscriptions = [_subscription(each) for each in answer.rows]
    app.record(row if app.form == "table" else row | {"subscriptions": subscriptions})
    app.section("subscriptions", subscriptions)


@destroying_verb(command, "discard", dry_run="Show what would be discarded; discard nothing.")
@click.argument("tenant")
@click.argument("client_id")
def discard(app: App, tenant: str, client_id: str, is_dry_run: bool) -> None:
    """End a session: close its connection, delete its subscriptions and queued messages. The hub must run.

    Examples:
      iothub --data-dir ./hub session discard acme meter-7 --yes
      iothub --data-dir ./hub session discard acme meter-7 --dry-run
    """
    if is_dry_run:
        row = _row(app.hub.ask(Verb.SESSION_SHOW, tenant, {"client_id": client_id}).result)
        waiting = output.counted(int(str(row["queued_messages"])), "queued message")
        app.done(f"would discard session {client_id} with {waiting}", row)
        return
    app.hub.require()
    app.confirm(f"Discard session {client_id} of tenant {tenant} with its queued messages?")
    app.change_hub(tenant, Verb.SESSION_DISCARD, {"client_id": client_id})
    app.done(f"discarded session {client_id}", {"name": client_id, "tenant": tenant, "is_discarded": True})


def _row(reported: AnyJson) -> dict[str, object]:
    queue = reported["queue"] or {"messages": 0, "bytes": 0}
    return {
        "name": reported["client_id"],
        "device": reported["device"],
        "is_connected": reported["is_connected"],
        "version": _VERSIONS.get(reported["protocol_version"], ""),
        "subscriptions": reported["subscriptions"],
        "queued_messages": queue["messages"],
        "queued_bytes": queue["bytes"],
        "expires": _expiry(reported),
    }


def _expiry(reported: AnyJson) -> str | None:
    if reported["is_connected"] or reported["session_expiry_s"] == _NEVER:
        return None
    return time_of(reported["disconnected_at_ms"] + reported["session_expiry_s"] * 1000)


def _subscription(reported: Json) -> dict[str, object]:
    """Describe a subscription, its filter as the client gave it."""
    group, topic_filter = reported["group"], reported["filter"]
    name = topic_filter if group is None else f"$share/{group}/{topic_filter}"
    return {"name": name, "qos": reported["qos"], "no_local": reported["no_local"]}
