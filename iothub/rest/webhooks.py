"""/webhooks and /tenants/{tenant}/webhooks: who gets events as signed HTTP requests, for the platform and for one tenant."""

from __future__ import annotations

from threading import BoundedSemaphore

from fastapi import Response

from iothub.admin.webhooks import send_test
from iothub.base.units import Network
from iothub.rest import answers, models
from iothub.rest.answers import Page
from iothub.rest.caller import Caller
from iothub.rest.models import Items, Name, TenantName
from iothub.rest.problems import Code, ProblemError
from iothub.rest.routes import Call, Routes
from iothub.rest.scopes import Scope
from iothub_tenants.accounts import webhooks
from iothub_tenants.accounts.plain import plain
from iothub_tenants.accounts.webhooks import NewWebhook

routes = Routes("webhooks")

TESTS_AT_ONCE = 2  # each holds a thread of the API while the receiver does not answer
_tests = BoundedSemaphore(TESTS_AT_ONCE)


@routes.get("/webhooks", Scope.WEBHOOKS_READ, returns=Items)
def list_platform_webhooks(call: Call, page: Page) -> Response:
    """List the webhooks of the platform by name."""
    return _list(call, None, page)


@routes.post("/webhooks", Scope.WEBHOOKS_WRITE, returns=models.WebhookWithSecret)
def create_platform_webhook(call: Call, body: models.NewWebhook) -> Response:
    """Create a webhook for the events of all tenants, of hubs and of alarms. The secret is returned this once."""
    return _create(call, None, body, "/api/v1/webhooks")


@routes.get("/webhooks/{name}", Scope.WEBHOOKS_READ, returns=models.Webhook)
def show_platform_webhook(call: Call, name: Name) -> Response:
    """Show one webhook of the platform."""
    return _show(call, None, name)


@routes.patch("/webhooks/{name}", Scope.WEBHOOKS_WRITE, returns=models.Webhook)
def change_platform_webhook(call: Call, name: Name, body: models.WebhookChanges) -> Response:
    """Change what is given of a webhook of the platform."""
    return _change(call, None, name, body)


@routes.delete("/webhooks/{name}", Scope.WEBHOOKS_WRITE)
def delete_platform_webhook(call: Call, name: Name) -> Response:
    """Delete a webhook of the platform; what waits for it is dropped."""
    webhooks.remove(call.store, None, name)
    return answers.gone()


@routes.get("/webhooks/{name}/attempts", Scope.WEBHOOKS_READ, returns=Items)
def list_platform_webhook_attempts(call: Call, name: Name) -> Response:
    """List the last attempts to deliver to a webhook of the platform, newest first."""
    return _attempts(call, None, name)


@routes.post("/webhooks/{name}:rotate", Scope.WEBHOOKS_WRITE, status=200, returns=models.WebhookWithSecret)
def rotate_platform_webhook(call: Call, name: Name) -> Response:
    """Replace the secret of a webhook of the platform; it is returned this once. For a day both sign."""
    return answers.secret(_with_secret(webhooks.rotate(call.store, None, name)))


@routes.post("/webhooks/{name}:test", Scope.WEBHOOKS_WRITE, status=200, returns=models.WebhookTest)
def test_platform_webhook(call: Call, name: Name) -> Response:
    """Send the event webhook/test from this machine, and say what the receiver answers."""
    return _test(call, None, name)


@routes.get("/tenants/{tenant}/webhooks", Scope.WEBHOOKS_READ, returns=Items)
def list_webhooks(call: Call, tenant: TenantName, page: Page) -> Response:
    """List the webhooks of a tenant by name."""
    return _list(call, tenant, page)


@routes.post("/tenants/{tenant}/webhooks", Scope.WEBHOOKS_WRITE, returns=models.WebhookWithSecret)
def create_webhook(call: Call, tenant: TenantName, body: models.NewTenantWebhook) -> Response:
    """Create a webhook for the events of a tenant. The secret is returned this once."""
    return _create(call, tenant, body, f"/api/v1/tenants/{tenant}/webhooks")


@routes.get("/tenants/{tenant}/webhooks/{name}", Scope.WEBHOOKS_READ, returns=models.Webhook)
def show_webhook(call: Call, tenant: TenantName, name: Name) -> Response:
    """Show one webhook of a tenant."""
    return _show(call, tenant, name)


@routes.patch("/tenants/{tenant}/webhooks/{name}", Scope.WEBHOOKS_WRITE, returns=models.Webhook)
def change_webhook(call: Call, tenant: TenantName, name: Name, body: models.TenantWebhookChanges) -> Response:
    """Change what is given of a webhook of a tenant."""
    return _change(call, tenant, name, body)


@routes.delete("/tenants/{tenant}/webhooks/{name}", Scope.WEBHOOKS_WRITE)
def delete_webhook(call: Call, tenant: TenantName, name: Name) -> Response:
    """Delete a webhook of a tenant; what waits for it is dropped."""
    webhooks.remove(call.store, tenant, name)
    return answers.gone()


@routes.get("/tenants/{tenant}/webhooks/{name}/attempts", Scope.WEBHOOKS_READ, returns=Items)
def list_webhook_attempts(call: Call, tenant: TenantName, name: Name) -> Response:
    """List the last attempts to deliver to a webhook of a tenant, newest first."""
    return _attempts(call, tenant, name)


@routes.post(
    "/tenants/{tenant}/webhooks/{name}:rotate", Scope.WEBHOOKS_WRITE, status=200, returns=models.WebhookWithSecret
)
def rotate_webhook(call: Call, tenant: TenantName, name: Name) -> Response:
    """Replace the secret of a webhook of a tenant; it is returned this once. For a day both sign."""
    return answers.secret(_with_secret(webhooks.rotate(call.store, tenant, name)))


@routes.post("/tenants/{tenant}/webhooks/{name}:test", Scope.WEBHOOKS_WRITE, status=200, returns=models.WebhookTest)
def test_webhook(call: Call, tenant: TenantName, name: Name) -> Response:
    """Send the event webhook/test from this machine, and say what the receiver answers."""
    return _test(call, tenant, name)


def _list(call: Caller, tenant: str | None, page: answers.Asked) -> Response:
    return page.behind([plain(found) for found in webhooks.list_all(call.store, tenant)])


def _create(
    call: Caller, tenant: str | None, body: models.NewWebhook | models.NewTenantWebhook, place: str
) -> Response:
    made = webhooks.create(call.store, tenant, body.name, body.url, body.events, networks=_networks(call))
    return answers.created(_with_secret(made), f"{place}/{body.name}")


def _show(call: Caller, tenant: str | None, name: str) -> Response:
    return answers.shown(plain(webhooks.show(call.store, tenant, name)))


def _change(
    call: Caller, tenant: str | None, name: str, body: models.WebhookChanges | models.TenantWebhookChanges
) -> Response:
    changes = webhooks.Changes(body.url, body.events, body.is_enabled)
    return answers.shown(plain(webhooks.change(call.store, tenant, name, changes, networks=_networks(call))))


def _networks(call: Caller) -> tuple[Network, ...]:
    return call.settings.webhooks.allow_networks


def _test(call: Caller, tenant: str | None, name: str) -> Response:
    if not _tests.acquire(blocking=False):
        raise ProblemError(
            Code.BUSY, "too many webhooks are tested at the moment: try again", headers={"Retry-After": "1"}
        )
    try:
        return answers.shown(send_test(call.store, call.settings, tenant, name))
    finally:
        _tests.release()


def _attempts(call: Caller, tenant: str | None, name: str) -> Response:
    found = webhooks.attempts(call.store, tenant, name)
    return answers.shown({"items": [plain(attempt) for attempt in found]})


def _with_secret(made: NewWebhook) -> dict[str, object]:
    return {**plain(made.webhook), "secret": made.secret}
