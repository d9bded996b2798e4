"""`iothub plan`: named sets of limits; a running hub applies a change within a second.

Knows no tenant.
"""

from __future__ import annotations

import click

from iothub.cli.app import AGREED, DRY_RUN, App, noun, verb
from iothub.cli.limits import with_values, words_of
from iothub_tenants.accounts import plans
from iothub_tenants.accounts.plain import plain

command = noun("plan", "Plans: named sets of limits. `iothub init` creates `standard` and `unlimited`.")


@verb(command, "list")
def list_all(app: App) -> None:
    """List all plans.

    Example:
      iothub --data-dir ./hub plan list
    """
    app.rows([with_values(plain(plan)) for plan in plans.list_all(app.store())], "name", "tenants", "weight", "created")


@verb(command, "show")
@click.argument("name")
def show(app: App, name: str) -> None:
    """Show one plan with its limits; a limit that is not listed is unlimited.

    Example:
      iothub --data-dir ./hub plan show standard
    """
    record = plain(plans.show(app.store(), name))
    limits = str(record["limits"])
    if app.form != "table":
        app.record(with_values(record))
        return
    app.record({field: value for field, value in record.items() if field != "limits"})
    app.section("limits", [{"name": limit.partition("=")[0], "limit": words_of(limit)} for limit in limits.split()])


@verb(command, "set")
@click.argument("name")
@click.argument("limits", nargs=-1, metavar="LIMIT...")
@click.option("--weight", type=int, help="Relative share of its tenants when the hub is busy, 1 to 100.")
def set_plan(app: App, name: str, limits: tuple[str, ...], weight: int | None) -> None:
    """Create a plan, or change the given limits of an existing one.

    Examples:
      iothub --data-dir ./hub plan set small connections=10 publish_messages=5/1s
      iothub --data-dir ./hub plan set standard --weight 2
    """
    app.done(f"set plan {name}", with_values(plain(plans.set_plan(app.store(), name, limits, weight=weight))))


@verb(command, "unset")
@click.argument("name")
@click.argument("quotas", nargs=-1, required=True, metavar="LIMIT-NAME...")
def unset(app: App, name: str, quotas: tuple[str, ...]) -> None:
    """Remove limits from a plan; they become unlimited.

    Example:
      iothub --data-dir ./hub plan unset small connections
    """
    app.done(f"unset {' '.join(quotas)} in plan {name}", with_values(plain(plans.unset(app.store(), name, quotas))))


@verb(command, "delete")
@click.argument("name")
@AGREED
@DRY_RUN
def delete(app: App, name: str, is_agreed: bool, is_dry_run: bool) -> None:
    """Delete a plan that no tenant uses.

    Example:
      iothub --data-dir ./hub plan delete small
    """
    record = with_values(plain(plans.show(app.store(), name)))
    if app.may_delete(f"plan {name}", record, is_agreed=is_agreed, is_dry_run=is_dry_run):
        plans.delete(app.store(), name)
        app.done(f"deleted plan {name}", record)
