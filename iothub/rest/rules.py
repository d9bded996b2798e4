"""/tenants/{tenant}/acl-rules, /acl:test and /bans: who may do what, and who is kept out."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Body, Path, Query, Response

from iothub.admin.hub_rows import failure_ban_rows
from iothub.base.errors import ConfigError, NotFoundError, UnavailableError
from iothub.records.admin_commands import Verb
from iothub.rest import answers, models
from iothub.rest.answers import NumberedPage, Page
from iothub.rest.models import Anything, Device, Items, TenantName
from iothub.rest.routes import CSV, Call, CsvLines, Routes
from iothub.rest.scopes import Scope
from iothub.rest.texts import NO_NUL
from iothub_services.auth.port import Effect
from iothub_tenants.accounts import acl_import, acl_rules, bans, tenants, verdicts
from iothub_tenants.accounts.plain import plain

routes = Routes("access")
_BANS = 1000  # of the hub's own
_Number = Annotated[int, Path(ge=1, le=2**63 - 1, description="Its number.")]


@routes.get("/tenants/{tenant}/acl-rules", Scope.RULES_READ, returns=Items)
def list_rules(
    call: Call,
    tenant: TenantName,
    page: NumberedPage,
    subject: Annotated[str | None, Query(max_length=128, description="Only those that apply to this subject.")] = None,
) -> Response:
    """List the rules of a tenant by number; with `subject` in order of precedence, all on one page."""
    if subject is not None:
        return page.of([plain(rule) for rule in acl_rules.list_applying(call.store, tenant, subject)], None)
    found = acl_rules.page(call.store, tenant, page.number or 0, page.limit + 1)
    return page.cut([plain(rule) for rule in found], lambda row: row["id"])


@routes.post("/tenants/{tenant}/acl-rules", Scope.RULES_WRITE, returns=models.RuleShown)
def create_rule(call: Call, tenant: TenantName, body: models.NewRule) -> Response:
    """Add a rule, or return the same one that is there already."""
    tenants.show(call.store, tenant)
    made = acl_rules.add(call.store, tenant, body.subject, Effect(body.effect), body.action, body.filter)
    return answers.created(plain(made), f"/api/v1/tenants/{tenant}/acl-rules/{made.id}")


@routes.post("/tenants/{tenant}/acl-rules:import", Scope.RULES_WRITE, status=200, returns=Anything, extra=CSV)
def import_rules(
    call: Call,
    tenant: TenantName,
    lines: CsvLines,
    form: Annotated[
        Literal["csv", "mosquitto"], Query(alias="from", description="What wrote it: an ACL file of Mosquitto.")
    ] = "csv",
    is_dry_run: Annotated[bool, Query(alias="dry_run", description="Check all rules; add nothing.")] = False,
) -> Response:
    """Add many rules from CSV with the columns subject,effect,action,filter: all or none; those that are there stay.

    Bad lines are named in `errors`.
    """
    result = acl_import.import_file(call.store, tenant, lines, form, is_dry_run=is_dry_run)
    row = {"name": tenant, "rules": result.added, "rules_there_already": result.present}
    return answers.shown({**row, "is_imported": not is_dry_run})


@routes.delete("/tenants/{tenant}/acl-rules/{number}", Scope.RULES_WRITE)
def delete_rule(call: Call, tenant: TenantName, number: _Number) -> Response:
    """Remove a rule."""
    acl_rules.remove(call.store, tenant, number)
    return answers.gone()


@routes.get("/tenants/{tenant}/acl:test", Scope.RULES_READ, returns=Anything)
def judge_by_rules(
    call: Call,
    tenant: TenantName,
    device: Annotated[Device, Query(description="The device that asks.")],
    action: Annotated[Literal["publish", "subscribe"], Query(description="What it wants to do.")],
    topic: Annotated[
        str,
        Query(min_length=1, max_length=65_535, pattern=NO_NUL, description="A Topic Name, or a Topic Filter."),
    ],
    client_id: Annotated[str | None, Query(max_length=256, description="Default: the device's name.")] = None,
) -> Response:
    """Say whether a device may publish or subscribe, and which rule decides."""
    verdict = verdicts.verdict(call.store, tenant, device, action, topic, client_id=client_id)
    return answers.shown({"name": device, "action": action, "topic": topic, **plain(verdict)})


@routes.get("/tenants/{tenant}/bans", Scope.BANS_READ, returns=Items)
def list_bans(call: Call, tenant: TenantName, page: Page) -> Response:
    """List the bans in force that were added, by kind and value."""
    rows = [{"name": entry.value, **plain(entry)} for entry in bans.list_all(call.store, tenant)]
    return page.behind(rows, lambda row: f"{row['kind']}:{row['value']}")


@routes.post("/tenants/{tenant}/bans", Scope.BANS_WRITE, returns=Anything)
def create_ban(
    call: Call,
    tenant: TenantName,
    body: Annotated[models.NewDeviceBan | models.NewClientBan | models.NewAddressBan, Body(discriminator="kind")],
) -> Response:
    """Ban a device, a client id or an address; or replace time and reason of the ban that is there."""
    tenants.show(call.store, tenant)
    until_ms = 0 if body.for_s is None else call.store.now_ms() + body.for_s * 1000
    made = bans.add(call.store, tenant, body.kind, body.value, until_ms=until_ms, reason=body.reason)
    return answers.created({"name": made.value, **plain(made)}, f"/api/v1/tenants/{tenant}/bans")


@routes.delete("/tenants/{tenant}/bans", Scope.BANS_WRITE)
def delete_ban(
    call: Call,
    tenant: TenantName,
    kind: Annotated[Literal["device", "client_id", "address"], Query(description="What is banned.")],
    value: Annotated[str, Query(min_length=1, max_length=256, description="Which one.")],
) -> Response:
    """Lift a ban."""
    tenants.show(call.store, tenant)
    try:
        bans.remove(call.store, tenant, kind, value)
    except ConfigError:  # nothing of such a name can be banned
        raise NotFoundError(f"tenant {tenant} has no such ban") from None
    return answers.gone()


@routes.get("/tenants/{tenant}/failure-bans", Scope.BANS_READ, returns=Items)
def list_failure_bans(call: Call, tenant: TenantName) -> Response:
    """List the bans that the running hubs made after failed logins."""
    asked = call.hub.ask(Verb.BAN_LIST, tenant, {"limit": _BANS})
    if asked.result.get("unanswered"):
        raise UnavailableError("not every hub has answered: try again")
    rows = failure_ban_rows(tenant, asked.rows, str(asked.result["reason"]))
    return answers.shown({"items": rows})


@routes.delete("/tenants/{tenant}/failure-bans/{device}", Scope.BANS_WRITE, status=200, returns=Anything)
def delete_failure_ban(
    call: Call,
    tenant: TenantName,
    device: Annotated[str, Path(description="Name of a device, known or not.")],
    address: Annotated[str | None, Query(max_length=64, description="Only the ban from this address.")] = None,
) -> Response:
    """Have the hubs forget failed logins of a device."""
    result = call.hub.change(Verb.BAN_LIFT, tenant, {"device": device, "address": address})
    call.note(tenant, "failure_ban", device, "lifted", address=address)
    return answers.shown({"name": device, "bans": result["bans"]})
