"""/tenants: tenants, their usage and their part of the audit log."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Annotated, Literal

from fastapi import Query, Response

from iothub.admin import apply as applying
from iothub.admin import usage
from iothub.admin.tenants import create_tenant as create_as_everywhere
from iothub.base.errors import IotHubError
from iothub.rest import answers, models
from iothub.rest.answers import NumberedPage, Page
from iothub.rest.models import Anything, Items, Prefix, TenantName
from iothub.rest.problems import Code, ProblemError, body_of, problem_of
from iothub.rest.routes import Call, IfMatch, Routes
from iothub.rest.scopes import Scope
from iothub_tenants.accounts import audit, tenants, transfer
from iothub_tenants.accounts.plain import plain

routes = Routes("tenants")
MOST_STEPS = 50_000  # of one file: milliseconds each, and all secrets are in one answer


@routes.get("/tenants", Scope.TENANTS_LIST, returns=Items)
def list_tenants(
    call: Call,
    page: Page,
    prefix: Prefix = "",
    plan: Annotated[str | None, Query(max_length=64, description="Only those of this plan.")] = None,
) -> Response:
    """List all tenants by name."""
    found = tenants.page(call.store, page.after, page.limit + 1, prefix=prefix, plan=plan)
    return page.cut([plain(tenant) for tenant in found])


@routes.post("/tenants", Scope.TENANTS_WRITE, returns=models.Tenant)
def create_tenant(call: Call, body: models.NewTenant) -> Response:
    """Create a tenant."""
    made = create_as_everywhere(
        call.store,
        call.settings.tenancy,
        body.name,
        plan=body.plan,
        is_closed=body.is_closed,
        display_name=body.display_name,
        client_id_policy=body.client_id_policy,
    )
    return answers.created(plain(made), f"/api/v1/tenants/{made.name}")


@routes.post("/tenants:apply", Scope.TENANTS_WRITE, status=200, returns=Anything)
def apply_tenants(
    call: Call,
    body: models.WantedTenants,
    is_dry_run: Annotated[bool, Query(alias="dry_run", description="Say what would change; change nothing.")] = False,
    prunes: Annotated[bool, Query(alias="prune", description="Delete what a list of the body does not name.")] = False,
) -> Response:
    """Bring tenants and plans to the state that the body describes; what it does not name stays. The same again changes nothing.

    `steps`: what is to be done; `secrets`: those of new devices, returned this once. What a step would refuse is refused before the first one. If
    one fails nevertheless, what was done before it stays, `problem` says why it ended and how many were done, and `is_applied` is false.
    """
    document = body.model_dump(exclude_none=True)
    found = applying.steps(call.store, call.settings.tenancy, document, prunes=prunes)
    if len(found) > MOST_STEPS:
        raise ProblemError(
            Code.BODY_TOO_LARGE,
            f"the file asks for {len(found)} changes, and one request makes at most {MOST_STEPS}: "
            "divide it, or import its devices as CSV first",
        )
    secrets: list[dict[str, str]] = []
    problem: dict[str, object] | None = None
    if not is_dry_run:
        try:
            applying.run(call.store, found, applying.Asked(document, prunes), secrets.append, lambda _done, _of: None)
        except IotHubError as error:
            problem = body_of(problem_of(error, is_platform=call.is_platform))
    is_applied = not is_dry_run and problem is None
    row = {"steps": [applying.row(step) for step in found], "secrets": secrets, "problem": problem}
    return answers.secret({**row, "not_applied": applying.not_applied(document), "is_applied": is_applied})


@routes.get("/tenants/{tenant}", Scope.TENANTS_READ, returns=models.Tenant)
def show_tenant(call: Call, tenant: TenantName) -> Response:
    """Show one tenant."""
    return answers.shown(plain(tenants.show(call.store, tenant)))


@routes.patch("/tenants/{tenant}", Scope.TENANTS_WRITE, returns=models.Tenant)
def update_tenant(call: Call, tenant: TenantName, body: models.TenantChanges, if_match: IfMatch = None) -> Response:
    """Change what is given of a tenant; the rest stays."""
    given = body.model_dump()
    for name in ("allowed_networks", "denied_networks"):
        given[name] = None if given[name] is None else tuple(given[name])
    made = tenants.update(
        call.store,
        tenant,
        tenants.Settings(**given),
        is_expected=lambda found: answers.require_match(if_match, plain(found)),
    )
    return answers.shown(plain(made))


@routes.delete("/tenants/{tenant}", Scope.TENANTS_WRITE, status=202, returns=models.Tenant)
def delete_tenant(call: Call, tenant: TenantName, if_match: IfMatch = None) -> Response:
    """Delete a tenant with everything it has.

    Its devices can no longer connect. The hub removes what is stored; until then its state is `deleting`, and the name is not free.
    """
    answers.require_match(if_match, plain(tenants.show(call.store, tenant)))
    tenants.delete(call.store, tenant)
    return answers.shown(plain(tenants.show(call.store, tenant)), status=202)


@routes.post("/tenants/{tenant}:suspend", Scope.TENANTS_WRITE, status=200, returns=models.Tenant)
def suspend_tenant(call: Call, tenant: TenantName) -> Response:
    """Close a tenant's connections and refuse new ones; everything stored is kept."""
    return answers.shown(plain(tenants.suspend(call.store, tenant)))


@routes.post("/tenants/{tenant}:resume", Scope.TENANTS_WRITE, status=200, returns=models.Tenant)
def resume_tenant(call: Call, tenant: TenantName) -> Response:
    """End a suspension."""
    return answers.shown(plain(tenants.resume(call.store, tenant)))


@routes.post("/tenants/{tenant}:protect", Scope.TENANTS_WRITE, status=200, returns=models.Tenant)
def protect_tenant(call: Call, tenant: TenantName) -> Response:
    """Refuse to delete this tenant from now on."""
    return answers.shown(plain(tenants.protect(call.store, tenant)))


@routes.post("/tenants/{tenant}:unprotect", Scope.TENANTS_WRITE, status=200, returns=models.Tenant)
def unprotect_tenant(call: Call, tenant: TenantName) -> Response:
    """Remove delete protection."""
    return answers.shown(plain(tenants.unprotect(call.store, tenant)))


@routes.post("/tenants/{tenant}:export", Scope.TENANTS_WRITE, status=200, returns=Anything)
def export_tenant(call: Call, tenant: TenantName) -> Response:
    """Give a tenant's accounts as one object: settings, limits, devices, groups, rules, bans, token issuers, streams.

    No sessions and no messages. It has password hashes: protect it like the database itself.
    """
    document = transfer.export_tenant(call.store, tenant)
    call.note(tenant, "tenant", tenant, "exported")
    return answers.secret(document)


@routes.post("/tenants/{tenant}:import", Scope.TENANTS_WRITE, returns=models.Tenant)
def import_tenant(
    call: Call,
    tenant: TenantName,
    body: models.ExportedTenant,
    is_dry_run: Annotated[bool, Query(alias="dry_run", description="Check everything, create nothing.")] = False,
) -> Response:
    """Create a tenant of this name from what `:export` gave, all or nothing.

    `without_secret`, `issuers_without_secret`: devices and token issuers that need a new secret, for theirs are of another hub.
    """
    made = transfer.import_tenant(call.store, body.model_dump(), name=tenant, is_dry_run=is_dry_run)
    row = {
        **plain(made.tenant),
        "devices": made.devices,
        "without_secret": list(made.without_secret),
        "issuers_without_secret": list(made.issuers_without_secret),
        "is_imported": not is_dry_run,
    }
    return answers.created(row, f"/api/v1/tenants/{tenant}")


@routes.get("/tenants/{tenant}/usage", Scope.USAGE_READ, returns=Items)
def show_usage(
    call: Call,
    tenant: TenantName,
    since: Annotated[
        datetime | None, Query(alias="from", description="First hour, UTC. Default: a week before `to`.")
    ] = None,
    to: Annotated[datetime | None, Query(description="End, UTC, not included. Default: now.")] = None,
    by: Annotated[Literal["hour", "day", "total"], Query(description="Period of one row.")] = "day",
) -> Response:
    """Show the usage of a tenant, as the job `usage` has summed it. `reason`: why there is none."""
    until_ms = int(time.time() * 1000) if to is None else _milliseconds(to)
    since_ms = until_ms - usage.WEEK_MS if since is None else _milliseconds(since)
    found = usage.of_tenant(call.store, tenant, since_ms, until_ms, by)
    if found or not call.is_platform:
        return answers.shown({"items": found})
    reason = usage.why_none(call.store, tenant, call.settings.events.usage_interval_s)
    return answers.shown({"items": found, "reason": reason})


@routes.get("/tenants/{tenant}/audit", Scope.TENANT_AUDIT_READ, returns=Items)
def list_changes_of_tenant(call: Call, tenant: TenantName, page: NumberedPage) -> Response:
    """List who has changed what of this tenant, the newest first."""
    found = audit.page(call.store, tenant=tenant, before_id=page.number, limit=page.limit + 1)
    return page.cut([plain(entry) for entry in found], lambda row: row["id"])


@routes.get("/audit", Scope.AUDIT_READ, returns=Items)
def list_changes(call: Call, page: NumberedPage) -> Response:
    """List who has changed what, the newest first."""
    found = audit.page(call.store, before_id=page.number, limit=page.limit + 1)
    return page.cut([plain(entry) for entry in found], lambda row: row["id"])


def _milliseconds(moment: datetime) -> int:
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
