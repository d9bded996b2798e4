"""`iothub ban`: keep somebody out of a tenant, until a time or for good.

Knows no failed login: those ban by themselves (setting auth.failures).
"""

from __future__ import annotations

import click

from iothub.cli.app import App, noun, verb
from iothub.errors import ConfigError
from iothub.units import parse_duration
from iothub_tenants.accounts import bans
from iothub_tenants.accounts.plain import plain

command = noun("ban", "Bans: keep a device, a client id or an address out of a tenant.")
KIND = click.Choice(("device", "client_id", "address"))


@verb(command, "list")
@click.argument("tenant")
def list_all(app: App, tenant: str) -> None:
    """List the bans in force.

    Example:
      iothub --data-dir ./hub ban list acme
    """
    rows = [_row(entry) for entry in bans.list_all(app.store(), tenant)]
    app.rows(rows, "name", "kind", "until", "reason")


@verb(command, "add")
@click.argument("tenant")
@click.argument("kind", type=KIND)
@click.argument("value")
@click.option("--for", "duration", metavar="DURATION", help='Such as "15m" or "7d". Without it: until removed.')
@click.option("--reason", default="", help="Why, for whoever reads the list.")
def add(app: App, tenant: str, kind: str, value: str, duration: str | None, reason: str) -> None:
    """Ban a device, a client id or an address (or network).

    Examples:
      iothub --data-dir ./hub ban add acme address 192.0.2.0/24 --for 1h --reason 'scanning'
      iothub --data-dir ./hub ban add acme device dev1
    """
    store = app.store()
    entry = bans.add(store, tenant, kind, value, until_ms=_until_ms(store.now_ms(), duration), reason=reason)
    app.done(f"banned {kind} {entry.value}", _row(entry))


@verb(command, "remove")
@click.argument("tenant")
@click.argument("kind", type=KIND)
@click.argument("value")
def remove(app: App, tenant: str, kind: str, value: str) -> None:
    """Lift a ban.

    Example:
      iothub --data-dir ./hub ban remove acme device dev1
    """
    bans.remove(app.store(), tenant, kind, value)
    app.done(f"lifted the ban of {kind} {value}", {"name": value, "kind": kind})


def _row(entry: bans.BanEntry) -> dict[str, object]:
    return {"name": entry.value, **plain(entry)}


def _until_ms(now_ms: int, duration: str | None) -> int:
    if duration is None:
        return 0
    try:
        return now_ms + int(parse_duration(duration) * 1000)
    except ValueError as error:
        raise ConfigError(f"--for {duration!r}: {error}") from None
