"""`iothub ban`: keep a device, a client id or an address out of a tenant, for a time or for good.

Bans after failed logins (setting auth.failures) are in the running hub's memory: it lists and lifts them.
"""

from __future__ import annotations

import click

from iothub.admin.hub_rows import FAILURES, failure_ban_rows
from iothub.base.errors import ConfigError, NotFoundError, UnavailableError
from iothub.cli import accounts, audit
from iothub.cli.app import App, noun, verb
from iothub.cli.durations import seconds
from iothub.cli.output import Row
from iothub.cli.paging import Page, paged
from iothub.records.admin_commands import Verb
from iothub_tenants.accounts.plain import plain

command = noun("ban", "Bans: keep a device, a client id or an address out of a tenant.")
KINDS = ("device", "client_id", "address")
COLUMNS = ("name", "kind", "address", "until", "reason")
_ASK_TIMEOUT_S = 3.0
_LIMIT = 1000  # of the hub's own bans


@verb(command, "list")
@click.argument("tenant")
@paged("KIND:VALUE")
@click.pass_context
def list_all(context: click.Context, app: App, tenant: str, page: Page) -> None:
    """List the bans in force: those added by `ban add`, and those of the running hub after failed logins (kind: failures).

    Exit code 7 when a hub does not answer; its bans after failed logins are not listed then.

    Example:
      iothub --data-dir ./hub ban list acme
    """
    rows, code = [_row(entry) for entry in accounts.bans.list_all(app.store(), tenant)], 0
    try:
        rows += _made_by_hub(app, tenant)
    except (UnavailableError, ConfigError) as error:  # or the hub is of an older version
        app.say(f"iothub: warning: bans after failed logins not shown: {error}")
        code = UnavailableError.exit_code
    page.show(app, page.by_place(rows, _place), *COLUMNS, place=_place)
    if code:
        context.exit(code)


@verb(command, "add")
@click.argument("tenant")
@click.argument("kind", type=click.Choice(KINDS))
@click.argument("value")
@click.option(
    "--for",
    "duration_s",
    metavar="DURATION",
    callback=seconds,
    help='Such as "15m" or "7d". Default: until removed.',
)
@click.option("--reason", default="", help="Reason, shown in the list.")
def add(app: App, tenant: str, kind: str, value: str, duration_s: float | None, reason: str) -> None:
    """Ban a device, a client id or an address (or network).

    Examples:
      iothub --data-dir ./hub ban add acme address 192.0.2.0/24 --for 1h --reason 'scanning'
      iothub --data-dir ./hub ban add acme device dev1
    """
    store = app.store()
    until_ms = 0 if duration_s is None else store.now_ms() + int(duration_s * 1000)
    entry = accounts.bans.add(store, tenant, kind, value, until_ms=until_ms, reason=reason)
    app.done(f"banned {kind} {entry.value}", _row(entry))


@verb(command, "remove")
@click.argument("tenant")
@click.argument("kind", type=click.Choice((*KINDS, FAILURES)))
@click.argument("value")
@click.option("--from", "address", metavar="ADDRESS", help="With kind failures: only the ban from this address.")
def remove(app: App, tenant: str, kind: str, value: str, address: str | None) -> None:
    """Lift a ban. Kind failures with a device: the running hub forgets its failed logins.

    Examples:
      iothub --data-dir ./hub ban remove acme device dev1
      iothub --data-dir ./hub ban remove acme failures dev1 --from 192.0.2.7
    """
    if kind == FAILURES:
        _lift_by_hub(app, tenant, value, address)
    elif address is not None:
        raise click.UsageError("--from goes with the kind failures")
    else:
        accounts.bans.remove(app.store(), tenant, kind, value)
    app.done(f"lifted the ban of {kind} {value}", {"name": value, "kind": kind})


def _made_by_hub(app: App, tenant: str) -> list[dict[str, object]]:
    """Ask the running hub; without a hub there are none. Raises UnavailableError."""
    if not app.may_hub_run:
        return []
    rows, result = app.ask_hub(tenant, Verb.BAN_LIST, {"limit": _LIMIT}, _ASK_TIMEOUT_S)
    if result["left_out"]:
        app.say(f"iothub: warning: {result['left_out']} more bans after failed logins not shown")
    return failure_ban_rows(tenant, rows, str(result["reason"]))


def _lift_by_hub(app: App, tenant: str, device: str, address: str | None) -> None:
    if not app.may_hub_run:
        raise NotFoundError("no hub runs here, so no bans after failed logins are in force")
    app.change_hub(tenant, Verb.BAN_LIFT, {"device": device, "address": address})
    audit.note(app, tenant, "failure_ban", device, "lifted", address=address)


def _place(row: Row) -> str:
    """Return `device:dev1`; of a ban after failed logins also the address, for a device may have several."""
    return ":".join(str(row[part]) for part in ("kind", "name", "address") if row[part] is not None)


def _row(entry: accounts.bans.BanEntry) -> dict[str, object]:
    return {"name": entry.value, **plain(entry), "address": None}
