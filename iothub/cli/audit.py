"""`iothub audit`: who has changed what, from the accounts; whether or not the hub runs.

Knows no change: a line is written with each one, by the store of the accounts. What a hub has done for a command, the command notes here.
"""

from __future__ import annotations

import click

from iothub.base.errors import BackendError, NotFoundError, UnavailableError
from iothub.cli import accounts
from iothub.cli.app import App, noun, verb
from iothub.cli.numbers import WholeNumber
from iothub_tenants.accounts.plain import plain

command = noun("audit", "The audit log: who has changed what in the accounts, and what was done by a hub.")


@verb(command, "list")
@click.option("--tenant", help="Only changes of this tenant.")
@click.option("--limit", type=WholeNumber(1, 1000), default=100, show_default=True, help="Maximum number of rows.")
@click.option("--after", type=WholeNumber(1), help="Start after this id (the last one of the previous page).")
def list_all(app: App, tenant: str | None, limit: int, after: int | None) -> None:
    """List changes, the newest first: when, by whom, of what. In JSON each has what it was before and after.

    Who is `key:NAME` (the API), `cli:USER` (a command on the hub's machine) or `hub`. Lines are kept for 400 days.

    Examples:
      iothub --data-dir ./hub audit list
      iothub --data-dir ./hub audit list --tenant acme -o json
    """
    entries = accounts.audit.page(app.store(), tenant=tenant, before_id=after, limit=limit + 1)
    rows = [plain(entry) for entry in entries[:limit]]
    app.rows(rows, "id", "at", "actor", "tenant", "kind", "subject", "action")
    app.say_more_follow(entries[limit - 1].id if len(entries) > limit else None)


def note(app: App, tenant: str, kind: str, subject: str, done: str, **more: object) -> None:
    """Write down what a hub has done for this command, if the accounts can be written: it is done, whatever they answer."""
    if app.is_remote:
        return  # the API has written it
    try:
        accounts.audit.note(app.store(), tenant, kind, subject, {"done": done, **more})
    except (BackendError, NotFoundError, UnavailableError) as error:
        app.say(f"iothub: warning: not in the audit log: {error}")
