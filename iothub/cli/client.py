"""`iothub client`: the clients of a tenant that are connected now, as the running hubs report them, and putting one out.

Knows no store: a client that is away is none; what is kept of it is its session (`iothub session`).
"""

from __future__ import annotations

import click

from iothub.admin.hub_rows import client_facts, client_row, subscription_row
from iothub.cli import audit
from iothub.cli.app import COMMAND_TIMEOUT_S, App, destroying_verb, noun, verb
from iothub.cli.numbers import WholeNumber
from iothub.cli.paging import LIMIT, after
from iothub.records.admin_commands import Verb

command = noun("client", "Clients that are connected now: list, show, kick, top.")
COLUMNS = ("name", "device", "address", "listener", "version", "connected", "subscriptions", "node")
COUNTS = ("name", "device", "queued_messages", "in_flight_messages", "unsent_bytes", "address", "node")


@verb(command, "list")
@click.argument("tenant")
@LIMIT
@after("client id")
def list_all(app: App, tenant: str, limit: int, after: str) -> None:
    """List the connected clients of a tenant by client id, those of all linked hubs and workers. The hub must run.

    Exit code 7 when a hub does not answer; its clients are not listed then.

    Example:
      iothub --data-dir ./hub client list acme -o json
    """
    answer = app.ask_hub(tenant, Verb.CLIENT_LIST, {"after": after, "limit": limit}, COMMAND_TIMEOUT_S)
    app.rows([client_row(reported) for reported in answer.rows], *COLUMNS)
    app.say_more_follow(answer.result["next"])


@verb(command, "show")
@click.argument("tenant")
@click.argument("client_id")
def show(app: App, tenant: str, client_id: str) -> None:
    """Show one connected client with its subscriptions. The hub must run.

    Example:
      iothub --data-dir ./hub client show acme meter-7
    """
    answer = app.ask_hub(tenant, Verb.CLIENT_SHOW, {"client_id": client_id}, COMMAND_TIMEOUT_S)
    row = client_facts(answer.result)
    subscriptions = [subscription_row(each) for each in answer.rows]
    app.record(row if app.form == "table" else row | {"subscriptions": subscriptions})
    app.section("subscriptions", subscriptions)


@verb(command, "top")
@click.argument("tenant")
@click.option(
    "--by",
    type=click.Choice(["queue", "in-flight"]),
    default="queue",
    show_default=True,
    help="Messages that wait to be sent, or that were sent and not acknowledged.",
)
@click.option("--limit", type=WholeNumber(1, 500), default=10, show_default=True, help="Maximum number of rows.")
def top(app: App, tenant: str, by: str, limit: int) -> None:
    """Show which connected clients of a tenant have most messages waiting. The hub must run.

    A client that reads too slowly has the longest queue. Clients with none are not shown.

    Examples:
      iothub --data-dir ./hub client top acme
      iothub --data-dir ./hub client top acme --by in-flight --limit 20
    """
    answer = app.ask_hub(tenant, Verb.CLIENT_TOP, {"by": by, "limit": limit}, COMMAND_TIMEOUT_S)
    app.rows([client_row(reported) for reported in answer.rows], *COUNTS)


@destroying_verb(command, "kick", dry_run="Show who would be put out; put nobody out.")
@click.argument("tenant")
@click.argument("client_id")
def kick(app: App, tenant: str, client_id: str, is_dry_run: bool) -> None:
    """Close a client's connection: 5.0 clients get Administrative action (0x98). The hub must run.

    Its Will is published; a persistent session stays (`iothub session discard` ends it). The client may come again at once: to keep it out, add
    a ban before (`iothub ban add`).

    Examples:
      iothub --data-dir ./hub client kick acme meter-7 --yes
      iothub --data-dir ./hub client kick acme meter-7 --dry-run
    """
    if is_dry_run:
        row = client_row(app.ask_hub(tenant, Verb.CLIENT_SHOW, {"client_id": client_id}, COMMAND_TIMEOUT_S).result)
        app.done(f"would kick client {client_id} at {row['address']}", row | {"is_kicked": False})
        return
    app.hub.require()
    app.confirm(f"Close the connection of client {client_id} of tenant {tenant}?")
    row = client_row(app.change_hub(tenant, Verb.CLIENT_KICK, {"client_id": client_id}))
    audit.note(app, tenant, "client", client_id, "kicked", address=row["address"], node=row["node"])
    app.done(f"kicked client {client_id}", row | {"is_kicked": True})
