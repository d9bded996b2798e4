"""`iothub plan`: named sets of limits; a running hub applies a change within a second.

Knows no tenant.
"""

from __future__ import annotations

import click

from iothub.admin.limits import values_of
from iothub.cli import accounts
from iothub.cli.app import App, destroying_verb, noun, verb
from iothub.cli.limits import LimitsCommand, words_of
from iothub.cli.numbers import WholeNumber
from iothub.cli.paging import Page, paged
from iothub_tenants.accounts.plain import plain

command = noun(
    "plan",
    "Plans: named sets of limits. `iothub init` creates `standard` and `unlimited`; a plan inherits what it does not name from another one.",
)
WEIGHT = click.option(
    "--weight",
    type=WholeNumber(1, 100),
    help="Relative share of its tenants when the hub is busy, 1 to 100. Not inherited.",
)
_LIMITS = ("limits", "inherited")


@verb(command, "list")
@paged("name")
def list_all(app: App, page: Page) -> None:
    """List all plans.

    Example:
      iothub --data-dir ./hub plan list
    """
    rows = [_row(plan) for plan in accounts.plans.list_all(app.store())]
    page.show(app, page.by_name(rows), "name", "parent", "tenants", "weight", "created")


@verb(command, "show")
@click.argument("name")
def show(app: App, name: str) -> None:
    """Show one plan: its own limits and those it inherits; a limit that is not listed is unlimited.

    Example:
      iothub --data-dir ./hub plan show standard
    """
    plan = accounts.plans.show(app.store(), name)
    if app.form != "table":
        app.record(_row(plan))
        return
    app.record({field: value for field, value in plain(plan).items() if field not in _LIMITS})
    app.section("limits", [_limit(text) for text in plan.limits.split()])
    app.section("inherited", [_limit(text) for text in plan.inherited.split()])


@verb(command, "create", LimitsCommand)
@click.argument("name")
@click.argument("limits", nargs=-1, metavar="LIMIT...")
@click.option(
    "--from",
    "parent",
    metavar="PLAN",
    default="standard",
    show_default=True,
    help="The plan that it inherits from.",
)
@WEIGHT
def create(app: App, name: str, limits: tuple[str, ...], parent: str, weight: int | None) -> None:
    """Create a plan. A limit that it does not name is the one of the plan it inherits from, now and after every change there.

    Examples:
      iothub --data-dir ./hub plan create tiny
      iothub --data-dir ./hub plan create big --from unlimited connections=50000
    """
    plan = accounts.plans.create(app.store(), name, limits, parent=parent, weight=weight)
    app.done(f"created plan {name}, which inherits from {parent}\nnext: iothub plan set {name} LIMIT...", _row(plan))


@verb(command, "set", LimitsCommand)
@click.argument("name")
@click.argument("limits", nargs=-1, metavar="LIMIT...")
@click.option("--from", "parent", metavar="PLAN", help="Inherit from this plan.")
@WEIGHT
def set_plan(app: App, name: str, limits: tuple[str, ...], parent: str | None, weight: int | None) -> None:
    """Change the given limits of a plan; its other limits stay. Plans that inherit from it change too.

    Examples:
      iothub --data-dir ./hub plan set small connections=10 publish_messages=5/1s
      iothub --data-dir ./hub plan set small --from unlimited
      iothub --data-dir ./hub plan set standard --weight 2
    """
    plan = accounts.plans.set_plan(app.store(), name, limits, parent=parent, weight=weight)
    app.done(f"set plan {name}", _row(plan))


@verb(command, "unset")
@click.argument("name")
@click.argument("quotas", nargs=-1, required=True, metavar="LIMIT-NAME...")
def unset(app: App, name: str, quotas: tuple[str, ...]) -> None:
    """Remove limits from a plan; those of the plan it inherits from apply again.

    Example:
      iothub --data-dir ./hub plan unset small connections
    """
    app.done(f"unset {' '.join(quotas)} in plan {name}", _row(accounts.plans.unset(app.store(), name, quotas)))


@destroying_verb(command, "delete")
@click.argument("name")
def delete(app: App, name: str, is_dry_run: bool) -> None:
    """Delete a plan that no tenant uses and no plan inherits from.

    Example:
      iothub --data-dir ./hub plan delete small --yes
    """
    record = _row(accounts.plans.show(app.store(), name))
    if app.may_delete(f"plan {name}", record, is_dry_run=is_dry_run):
        accounts.plans.delete(app.store(), name)
        app.deleted(f"plan {name}", record)


def _row(plan: accounts.plans.Plan) -> dict[str, object]:
    """Return a plan with its own limits and the inherited ones as objects."""
    return {**plain(plan), **{field: values_of(getattr(plan, field)) for field in _LIMITS}}


def _limit(text: str) -> dict[str, object]:
    return {"name": text.partition("=")[0], "limit": words_of(text)}
