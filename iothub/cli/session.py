"""`iothub session`: persistent sessions of a tenant, as the running hub reports them.

Knows no store. Sessions that end with their connection are in the hub's memory only and are not shown.
"""

from __future__ import annotations

import click

from iothub.admin.hub_rows import session_facts, session_row, subscription_row
from iothub.cli import audit, output
from iothub.cli.app import App, destroying_verb, noun, verb
from iothub.cli.paging import LIMIT, after
from iothub.records.admin_commands import Verb

command = noun("session", "Persistent sessions: they outlive their connection and queue messages meanwhile.")


@verb(command, "list")
@click.argument("tenant")
@LIMIT
@after("client id")
def list_all(app: App, tenant: str, limit: int, after: str) -> None:
    """List the persistent sessions of a tenant by client id. The hub must run.

    Example:
      iothub --data-dir ./hub session list acme -o json
    """
    answer = app.hub.ask(Verb.SESSION_LIST, tenant, {"after": after, "limit": limit})
    rows = [session_row(reported) for reported in answer.rows]
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
    row = session_facts(answer.result)
    subscriptions = [subscription_row(each) for each in answer.rows]
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
        row = session_row(app.hub.ask(Verb.SESSION_SHOW, tenant, {"client_id": client_id}).result)
        waiting = output.counted(int(str(row["queued_messages"])), "queued message")
        app.done(f"would discard session {client_id} with {waiting}", row)
        return
    app.hub.require()
    app.confirm(f"Discard session {client_id} of tenant {tenant} with its queued messages?")
    app.change_hub(tenant, Verb.SESSION_DISCARD, {"client_id": client_id})
    audit.note(app, tenant, "session", client_id, "discarded")
    app.done(f"discarded session {client_id}", {"name": client_id, "tenant": tenant, "is_discarded": True})
