"""/tenants/{tenant}/quotas, /tenants/{tenant}/devices/{device}/quotas and /plans: limits, by name."""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import Response

from iothub.admin.limits import Values, values_of, with_values, words_for
from iothub.rest import answers, models
from iothub.rest.answers import Page
from iothub.rest.caller import Caller
from iothub.rest.models import Anything, DeviceName, Items, Name, TenantName
from iothub.rest.routes import Call, IfMatch, Routes
from iothub.rest.scopes import Scope
from iothub_services.quota.grammar import parse_limits
from iothub_tenants.accounts import plans, quotas
from iothub_tenants.accounts.plain import plain

routes = Routes("limits")

Changes = Mapping[str, int | str | list[str] | None]


@routes.get("/tenants/{tenant}/quotas", Scope.QUOTAS_READ, returns=Anything)
def show_quotas(call: Call, tenant: TenantName) -> Response:
    """Show a tenant's own limits. The ETag is theirs."""
    return answers.shown(_own(quotas.list_all(call.store, tenant, None), ""))


@routes.get("/tenants/{tenant}/quotas:effective", Scope.QUOTAS_READ, returns=Items)
def list_effective_quotas(call: Call, tenant: TenantName) -> Response:
    """List every limit in force, and which layer says so."""
    return answers.shown({"items": [with_values(plain(each)) for each in quotas.effective(call.store, tenant)]})


@routes.get("/tenants/{tenant}/quotas:all", Scope.QUOTAS_READ, returns=Items)
def list_quotas(call: Call, tenant: TenantName) -> Response:
    """List the limits set for a tenant and for its devices."""
    return answers.shown({"items": [with_values(plain(each)) for each in quotas.list_all(call.store, tenant)]})


@routes.patch("/tenants/{tenant}/quotas", Scope.QUOTAS_WRITE, returns=Anything)
def change_quotas(call: Call, tenant: TenantName, body: models.LimitsPatch, if_match: IfMatch = None) -> Response:
    """Set limits of a tenant; null removes one, and others stay."""
    return _changed(call, tenant, None, body.limits, if_match)


@routes.get("/tenants/{tenant}/devices/{device}/quotas", Scope.QUOTAS_READ, returns=Anything)
def show_device_quotas(call: Call, tenant: TenantName, device: DeviceName) -> Response:
    """Show a device's own limits. The ETag is theirs."""
    return answers.shown(_own(quotas.list_all(call.store, tenant, device), device))


@routes.get("/tenants/{tenant}/devices/{device}/quotas:effective", Scope.QUOTAS_READ, returns=Items)
def list_effective_device_quotas(call: Call, tenant: TenantName, device: DeviceName) -> Response:
    """List every limit in force for a device, and which layer says so."""
    found = quotas.effective(call.store, tenant, device)
    return answers.shown({"items": [with_values(plain(each)) for each in found]})


@routes.patch("/tenants/{tenant}/devices/{device}/quotas", Scope.QUOTAS_WRITE, returns=Anything)
def change_device_quotas(
    call: Call, tenant: TenantName, device: DeviceName, body: models.DeviceLimitsPatch, if_match: IfMatch = None
) -> Response:
    """Set limits of a device; null removes one, and others stay."""
    return _changed(call, tenant, device, body.limits, if_match)


@routes.get("/plans", Scope.PLANS_READ, returns=Items)
def list_plans(call: Call, page: Page) -> Response:
    """List all plans."""
    return page.behind([_plan(plan) for plan in plans.list_all(call.store)])


@routes.post("/plans", Scope.PLANS_WRITE, returns=Anything)
def create_plan(call: Call, body: models.NewPlan) -> Response:
    """Create a plan, which inherits what it does not name."""
    made = plans.create(call.store, body.name, words_for(_given(body.limits)), parent=body.parent, weight=body.weight)
    return answers.created(_plan(made), f"/api/v1/plans/{made.name}")


@routes.get("/plans/{name}", Scope.PLANS_READ, returns=Anything)
def show_plan(call: Call, name: Name) -> Response:
    """Show one plan: its own limits, and those it inherits."""
    return answers.shown(_plan(plans.show(call.store, name)))


@routes.patch("/plans/{name}", Scope.PLANS_WRITE, returns=Anything)
def change_plan(call: Call, name: Name, body: models.PlanChanges, if_match: IfMatch = None) -> Response:
    """Change what is given of a plan; null removes a limit. Plans that inherit from it change too."""

    def is_expected(found: plans.Plan) -> None:
        answers.require_match(if_match, _plan(found))

    made = plans.set_plan(
        call.store,
        name,
        words_for(_given(body.limits or {})),
        without=_removed(body.limits or {}),
        parent=body.parent,
        weight=body.weight,
        is_expected=is_expected,
    )
    return answers.shown(_plan(made))


@routes.delete("/plans/{name}", Scope.PLANS_WRITE)
def delete_plan(call: Call, name: Name) -> Response:
    """Delete a plan that no tenant uses and no plan inherits from."""
    plans.delete(call.store, name)
    return answers.gone()


def _changed(call: Caller, tenant: str, device: str | None, limits: Changes, if_match: str | None) -> Response:
    def is_expected(found: list[quotas.Override]) -> None:
        answers.require_match(if_match, _own(found, device or ""))

    added = parse_limits(words_for(_given(limits)))
    made = quotas.change(call.store, tenant, added, _removed(limits), device, is_expected=is_expected)
    return answers.shown(_own(made, device or ""))


def _given(limits: Changes) -> Values:
    return {
        name: _tightest(value) if isinstance(value, list) else value
        for name, value in limits.items()
        if value is not None
    }


def _tightest(rates: list[str]) -> list[str]:
    """Of two limits with the same window the smaller one holds."""
    found: dict[str, int] = {}
    for rate in rates:
        number, _, window = rate.partition("/")
        found[window] = min(int(number), found.get(window, int(number)))
    return [f"{number}/{window}" for window, number in found.items()]


def _removed(limits: Changes) -> list[str]:
    return [name for name, value in limits.items() if value is None]


def _own(overrides: list[quotas.Override], device: str) -> dict[str, object]:
    """Return own limits as one object; of a tenant those of its devices are left out."""
    own = " ".join(override.limits for override in overrides if override.device == device)
    return {"limits": values_of(own)}


def _plan(plan: plans.Plan) -> dict[str, object]:
    return {**plain(plan), **{field: values_of(getattr(plan, field)) for field in ("limits", "inherited")}}
