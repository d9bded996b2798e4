"""/status, /alarms, /nodes, /api-keys and /metrics: the platform as a whole."""

from __future__ import annotations

import http.client
from typing import Annotated
from urllib.parse import quote

from fastapi import Body, Path, Query, Response

from iothub.admin import hub_rows
from iothub.base.errors import NotFoundError, UnavailableError
from iothub.records.admin_commands import Verb
from iothub.rest import answers, models
from iothub.rest.answers import Page
from iothub.rest.caller import Caller
from iothub.rest.models import Anything, Items, ItemsOfHubs, Name, TenantName
from iothub.rest.routes import Call, Routes
from iothub.rest.scopes import Scope
from iothub_tenants.accounts import api_keys, tenants
from iothub_tenants.accounts.plain import plain

routes = Routes("platform")
Node = Annotated[int, Path(ge=0, le=65_535, description="A node number.")]
_METRICS_BYTES = 64 << 20
_METRICS_S = 10.0
_TEXT = "text/plain"


@routes.get("/status", Scope.STATUS_READ, returns=Anything)
def show_status(call: Call) -> Response:
    """Show what the running hub says of itself, with its alarms; and how many tenants the accounts have."""
    return answers.shown({"tenants": tenants.count(call.store), "hub": dict(_status(call))})


@routes.get("/alarms", Scope.STATUS_READ, returns=ItemsOfHubs)
def list_alarms(call: Call) -> Response:
    """List the alarms that the hubs have raised, the oldest first."""
    asked = call.hub.ask(Verb.ALARM_LIST, "", {})
    rows = hub_rows.alarm_rows(asked.rows)
    return answers.shown({"items": rows, "unanswered": call.unanswered(asked.result)})


@routes.get("/nodes", Scope.STATUS_READ, returns=Items)
def list_nodes(call: Call) -> Response:
    """List the hubs of the accounts, and how this one is linked to each."""
    return answers.shown({"items": [dict(row) for row in call.hub.ask(Verb.CLUSTER_STATUS, "", {}).rows]})


@routes.post("/nodes/{node}:drain", Scope.NODES_WRITE, status=202, returns=Anything)
def drain_node(call: Call, node: Node, body: models.Drain | None = None) -> Response:
    """Let no client connect to a hub any more, and ask those that are connected to go. It goes on behind the answer."""
    rate = (body or models.Drain()).rate_per_s
    result = call.hub.change(Verb.CLUSTER_DRAIN, "", {"node": node, "rate_per_s": rate, "is_waited": False})
    call.note("", "node", str(node), "drained", rate_per_s=rate)
    return answers.shown(dict(result), status=202)


@routes.post("/nodes/{node}:resume", Scope.NODES_WRITE, status=200, returns=Anything)
def resume_node(call: Call, node: Node) -> Response:
    """End the drain of a hub."""
    result = call.hub.change(Verb.CLUSTER_RESUME, "", {"node": node})
    call.note("", "node", str(node), "resumed")
    return answers.shown(dict(result))


@routes.post("/nodes/{node}:evict", Scope.NODES_WRITE, status=200, returns=Anything)
def evict_node(call: Call, node: Node) -> Response:
    """Take a hub that is gone for good out of the cluster; the others take over what it had."""
    result = call.hub.change(Verb.CLUSTER_EVICT, "", {"node": node})
    call.note("", "node", str(node), "evicted")
    return answers.shown(dict(result))


@routes.get("/api-keys", Scope.KEYS_READ, returns=Items)
def list_keys(call: Call, page: Page) -> Response:
    """List all keys, without their texts."""
    return page.behind([plain(key) for key in api_keys.list_all(call.store)])


@routes.post("/api-keys", Scope.KEYS_WRITE, returns=models.KeyWithText)
def create_key(
    call: Call,
    body: Annotated[models.NewPlatformKey | models.NewTenantKey | models.NewScrapeKey, Body(discriminator="role")],
) -> Response:
    """Create a key. Its text is returned this once, in `key`."""
    made = api_keys.create(call.store, body.name, body.role, getattr(body, "tenant", None))
    return answers.created({**plain(made.key), "key": made.text}, f"/api/v1/api-keys/{body.name}")


@routes.get("/api-keys/{name}", Scope.KEYS_READ, returns=models.KeyShown)
def show_key(call: Call, name: Name) -> Response:
    """Show one key, without its text."""
    return answers.shown(plain(api_keys.show(call.store, name)))


@routes.delete("/api-keys/{name}", Scope.KEYS_WRITE)
def delete_key(call: Call, name: Name) -> Response:
    """Delete a key; it is refused at once. No key deletes itself."""
    call.require_other("key", name, "deletes")
    api_keys.remove(call.store, name)
    return answers.gone()


@routes.post("/api-keys/{name}:rotate", Scope.KEYS_WRITE, status=200, returns=models.KeyWithText)
def rotate_key(call: Call, name: Name) -> Response:
    """Replace the text of a key. The old one is refused at once; the new one is returned this once, in `key`."""
    made = api_keys.rotate(call.store, name)
    return answers.secret({**plain(made.key), "key": made.text})


@routes.post("/api-keys/{name}:disable", Scope.KEYS_WRITE, status=200, returns=models.KeyShown)
def disable_key(call: Call, name: Name) -> Response:
    """Refuse a key from now on. No key disables itself."""
    call.require_other("key", name, "disables")
    return answers.shown(plain(api_keys.disable(call.store, name)))


@routes.post("/api-keys/{name}:enable", Scope.KEYS_WRITE, status=200, returns=models.KeyShown)
def enable_key(call: Call, name: Name) -> Response:
    """Let a disabled key in again."""
    return answers.shown(plain(api_keys.enable(call.store, name)))


@routes.get("/metrics", Scope.METRICS_READ, media_type=_TEXT)
def show_metrics(call: Call) -> Response:
    """Give the metrics of the hub that runs here, in Prometheus's form."""
    return _metrics(call, "/metrics")


@routes.get("/metrics/tenants", Scope.METRICS_READ, media_type=_TEXT)
def list_tenant_metrics(
    call: Call,
    limit: Annotated[int, Query(ge=1, le=1000, description="Maximum number of tenants.")] = 100,
    after: Annotated[str, Query(max_length=64, description="Start after this tenant.")] = "",
) -> Response:
    """Give the metrics of the tenants that the hub knows, by name, in Prometheus's form."""
    return _metrics(call, f"/metrics/tenants?limit={limit}&after={quote(after, safe='')}")


@routes.get("/tenants/{tenant}/metrics", Scope.TENANT_METRICS_READ, media_type=_TEXT)
def show_tenant_metrics(call: Call, tenant: TenantName) -> Response:
    """Give the metrics of one tenant, in Prometheus's form."""
    name = tenants.show(call.store, tenant).name
    return _metrics(call, f"/metrics/tenants?tenant={quote(name, safe='')}")


def _status(call: Caller) -> dict[str, object]:
    return dict(call.hub.ask(Verb.STATUS, "", {}).result)


def _metrics(call: Caller, path: str) -> Response:
    """Fetch a page from the hub's own HTTP port. Raises UnavailableError."""
    address = call.hub.address("http")
    if not address:
        raise NotFoundError("there are no metrics: no hub runs here with an HTTP port (the setting http.port)")
    host, _, port = address.rpartition(":")
    connection = http.client.HTTPConnection(host.strip("[]"), int(port), timeout=_METRICS_S)
    try:
        connection.request("GET", path)
        found = connection.getresponse()
        body, status = found.read(_METRICS_BYTES), found.status
    except (OSError, http.client.HTTPException) as error:
        raise UnavailableError(f"the metrics of the hub cannot be read from {address}: {error}") from None
    finally:
        connection.close()
    if status != 200:
        raise UnavailableError(f"the hub answers {status} on {path.partition('?')[0]}")
    return Response(body, 200, {"Cache-Control": "no-store"}, found.getheader("Content-Type") or _TEXT)
