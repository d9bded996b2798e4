"""/tenants/{tenant}/clients, /sessions, /queues, /retained, /rejected, and /rejected: what a running hub knows, and does.

Knows no socket: the hub is asked through `iothub.rest.caller`. A client id and a topic may hold any character, so they stand last in a path.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Path, Query, Response

from iothub.admin import hub_rows
from iothub.admin.content import describe
from iothub.base.errors import NotFoundError
from iothub.records.admin_commands import Verb, messages_in
from iothub.rest import answers
from iothub.rest.answers import Page
from iothub.rest.models import Anything, Items, ItemsOfHubs, TenantName, TopicFilter
from iothub.rest.routes import Call, Routes
from iothub.rest.scopes import Scope

routes = Routes("live")
ClientId = Annotated[str, Path(description="A Client Identifier.")]
TopicName = Annotated[str, Path(description="A Topic Name.")]
_REJECTED = 1000


@routes.get("/tenants/{tenant}/clients", Scope.CLIENTS_READ, returns=ItemsOfHubs)
def list_clients(call: Call, tenant: TenantName, page: Page) -> Response:
    """List the connected clients of a tenant by client id, those of all hubs."""
    asked = call.hub.ask(Verb.CLIENT_LIST, tenant, {"after": page.after, "limit": page.limit})
    rows = [hub_rows.client_row(each) for each in asked.rows]
    return page.of(rows, asked.result["next"], unanswered=call.unanswered(asked.result))


@routes.get("/tenants/{tenant}/clients:top", Scope.CLIENTS_READ, returns=ItemsOfHubs)
def list_slow_clients(
    call: Call,
    tenant: TenantName,
    by: Annotated[
        Literal["queue", "in-flight"], Query(description="Messages that wait, or that were sent and not acknowledged.")
    ] = "queue",
    limit: Annotated[int, Query(ge=1, le=500, description="Maximum number of rows.")] = 10,
) -> Response:
    """List the connected clients of a tenant that have most messages waiting, those of all hubs."""
    asked = call.hub.ask(Verb.CLIENT_TOP, tenant, {"by": by, "limit": limit})
    rows = [hub_rows.client_row(each) for each in asked.rows]
    return answers.shown({"items": rows, "unanswered": call.unanswered(asked.result)})


@routes.get("/tenants/{tenant}/clients/{client_id:path}", Scope.CLIENTS_READ, returns=Anything)
def show_client(call: Call, tenant: TenantName, client_id: ClientId) -> Response:
    """Show one connected client with its subscriptions."""
    asked = call.hub.ask(Verb.CLIENT_SHOW, tenant, {"client_id": client_id})
    subscriptions = [hub_rows.subscription_row(each) for each in asked.rows]
    return answers.shown({**hub_rows.client_facts(asked.result), "subscriptions": subscriptions})


@routes.post("/tenants/{tenant}/clients/{client_id:path}:kick", Scope.CLIENTS_WRITE, status=200, returns=Anything)
def kick_client(call: Call, tenant: TenantName, client_id: ClientId) -> Response:
    """Close a client's connection; its Will is published, its session stays."""
    row = hub_rows.client_row(call.hub.change(Verb.CLIENT_KICK, tenant, {"client_id": client_id}))
    call.note(tenant, "client", client_id, "kicked", address=row["address"], node=row["node"])
    return answers.shown(row)


@routes.get("/tenants/{tenant}/sessions", Scope.SESSIONS_READ, returns=Items)
def list_sessions(call: Call, tenant: TenantName, page: Page) -> Response:
    """List the persistent sessions of a tenant by client id."""
    asked = call.hub.ask(Verb.SESSION_LIST, tenant, {"after": page.after, "limit": page.limit})
    return page.of([hub_rows.session_row(each) for each in asked.rows], asked.result["next"])


@routes.get("/tenants/{tenant}/sessions/{client_id:path}", Scope.SESSIONS_READ, returns=Anything)
def show_session(call: Call, tenant: TenantName, client_id: ClientId) -> Response:
    """Show one persistent session with its subscriptions, will and queue."""
    asked = call.hub.ask(Verb.SESSION_SHOW, tenant, {"client_id": client_id})
    subscriptions = [hub_rows.subscription_row(each) for each in asked.rows]
    return answers.shown({**hub_rows.session_facts(asked.result), "subscriptions": subscriptions})


@routes.delete("/tenants/{tenant}/sessions/{client_id:path}", Scope.SESSIONS_WRITE)
def discard_session(call: Call, tenant: TenantName, client_id: ClientId) -> Response:
    """End a session: close its connection, delete its subscriptions and queued messages."""
    call.hub.change(Verb.SESSION_DISCARD, tenant, {"client_id": client_id})
    call.note(tenant, "session", client_id, "discarded")
    return answers.gone()


@routes.get("/tenants/{tenant}/queues", Scope.SESSIONS_READ, returns=Items)
def list_queues(call: Call, tenant: TenantName, page: Page) -> Response:
    """List the queues of a tenant by client id."""
    asked = call.hub.ask(Verb.QUEUE_LIST, tenant, {"after": page.after, "limit": page.limit})
    rows: list[Any] = asked.rows
    return page.of([hub_rows.queue_row(str(each["client_id"]), each) for each in rows], asked.result["next"])


@routes.get("/tenants/{tenant}/queues/{client_id:path}", Scope.SESSIONS_READ, returns=Anything)
def show_queue(call: Call, tenant: TenantName, client_id: ClientId) -> Response:
    """Show one queue: its driver, length, positions and limits."""
    reported: Any = call.hub.ask(Verb.QUEUE_SHOW, tenant, {"client_id": client_id, "messages": 0}).result
    return answers.shown(
        {**hub_rows.queue_row(client_id, reported), "limits": hub_rows.queue_limits(reported["limits"])}
    )


@routes.get("/tenants/{tenant}/queued-messages/{client_id:path}", Scope.MESSAGES_READ, returns=Items)
def list_queued_messages(
    call: Call,
    tenant: TenantName,
    client_id: ClientId,
    limit: Annotated[int, Query(ge=1, le=1000, description="Number of oldest messages.")] = 10,
) -> Response:
    """List the oldest messages of a queue, with their payloads."""
    asked = call.hub.ask(Verb.QUEUE_SHOW, tenant, {"client_id": client_id, "messages": limit})
    return answers.shown({"items": [hub_rows.queued_message(facts, body) for facts, body in messages_in(asked.rows)]})


@routes.delete("/tenants/{tenant}/queued-messages/{client_id:path}", Scope.SESSIONS_WRITE, status=200, returns=Anything)
def purge_queue(call: Call, tenant: TenantName, client_id: ClientId) -> Response:
    """Remove every message from a queue; the session and its subscriptions stay."""
    result = call.hub.change(Verb.QUEUE_PURGE, tenant, {"client_id": client_id})
    call.note(tenant, "queue", client_id, "purged", messages=result["messages"])
    return answers.shown({"name": client_id, "messages": result["messages"]})


@routes.get("/tenants/{tenant}/retained", Scope.RETAINED_READ, returns=Items)
def list_retained(call: Call, tenant: TenantName, page: Page, topic_filter: TopicFilter = "#") -> Response:
    """List the topics of a tenant that have a retained message."""
    argument = {"filter": topic_filter, "after": page.after, "limit": page.limit}
    asked = call.hub.ask(Verb.RETAIN_LIST, tenant, argument)
    return page.of([hub_rows.retained_row(each) for each in asked.rows], asked.result["next"])


@routes.delete("/tenants/{tenant}/retained", Scope.RETAINED_WRITE, status=200, returns=Anything)
def delete_retained(
    call: Call,
    tenant: TenantName,
    topic_filter: TopicFilter,
    is_dry_run: Annotated[bool, Query(alias="dry_run", description="Count what would be deleted.")] = False,
) -> Response:
    """Delete the retained messages of all topics that match a filter."""
    if is_dry_run:
        result = call.hub.ask(Verb.RETAIN_COUNT, tenant, {"filter": topic_filter}).result
    else:
        result = call.hub.change(Verb.RETAIN_DELETE, tenant, {"filter": topic_filter})
        call.note(tenant, "retained", topic_filter, "deleted", messages=result["messages"])
    return answers.shown({"name": topic_filter, "messages": result["messages"], "is_deleted": not is_dry_run})


@routes.get("/tenants/{tenant}/retained/{topic:path}", Scope.MESSAGES_READ, returns=Anything)
def show_retained(call: Call, tenant: TenantName, topic: TopicName) -> Response:
    """Show one retained message, with its payload."""
    asked = call.hub.ask(Verb.RETAIN_SHOW, tenant, {"topic": topic})
    found = next(iter(messages_in(asked.rows)), None)
    if found is None:
        raise NotFoundError("there is no retained message on this topic")
    return answers.shown({"name": topic, "version": asked.result["version"], **describe(found[1])})


@routes.get("/tenants/{tenant}/rejected", Scope.REJECTED_READ, returns=Items)
def list_rejected(
    call: Call,
    tenant: TenantName,
    limit: Annotated[int, Query(ge=1, le=_REJECTED, description="The newest so many.")] = _REJECTED,
) -> Response:
    """List the last refused CONNECTs of a tenant, oldest first, with the rule that decided."""
    asked = call.hub.ask(Verb.REJECTED_LIST, tenant, {"is_unknown": False})
    return answers.shown({"items": [hub_rows.rejected_row(each) for each in asked.rows[-limit:]]})


@routes.get("/rejected", Scope.STATUS_READ, returns=Items)
def list_rejected_unknown(
    call: Call, limit: Annotated[int, Query(ge=1, le=_REJECTED, description="The newest so many.")] = _REJECTED
) -> Response:
    """List the last refused CONNECTs that named no known tenant, oldest first."""
    asked = call.hub.ask(Verb.REJECTED_LIST, "", {"is_unknown": True})
    return answers.shown({"items": [hub_rows.rejected_row(each) for each in asked.rows[-limit:]]})
