"""/tenants/{tenant}/subscriptions, /share-groups and /messages: who gets messages, and publishing one.

Knows no socket: the hub is asked through `iothub.rest.caller`.
"""

from __future__ import annotations

import base64
import binascii
from typing import Annotated

from fastapi import Query, Response

from iothub.admin import hub_rows
from iothub.records.admin_commands import MESSAGE_BYTES, Verb
from iothub.rest import answers, models
from iothub.rest.answers import Page
from iothub.rest.models import Anything, ItemsOfHubs, TenantName
from iothub.rest.problems import Code, ProblemError
from iothub.rest.routes import Call, Routes
from iothub.rest.scopes import Scope
from iothub.rest.texts import NO_NUL

routes = Routes("live")


@routes.get("/tenants/{tenant}/subscriptions", Scope.SESSIONS_READ, returns=ItemsOfHubs)
def list_subscriptions(
    call: Call,
    tenant: TenantName,
    page: Page,
    client_id: Annotated[str, Query(max_length=1024, pattern=NO_NUL, description="Only those of this client.")] = "",
    group: Annotated[
        str, Query(max_length=1024, pattern=NO_NUL, description="Only those of shared groups with this name.")
    ] = "",
) -> Response:
    """List the subscriptions of a tenant by client id: of the clients that are connected to any hub, and of persistent sessions."""
    argument = {"after": page.after, "limit": page.limit, "client_id": client_id, "group": group}
    asked = call.hub.ask(Verb.SUBSCRIPTION_LIST, tenant, argument)
    rows = [hub_rows.client_subscription_row(each) for each in asked.rows]
    return page.of(rows, asked.result["next"], unanswered=call.unanswered(asked.result))


@routes.get("/tenants/{tenant}/share-groups", Scope.SESSIONS_READ, returns=ItemsOfHubs)
def list_share_groups(call: Call, tenant: TenantName, page: Page) -> Response:
    """List the shared groups of a tenant by name and Topic Filter, with the number of their members at all hubs."""
    asked = call.hub.ask(Verb.GROUP_LIST, tenant, {"after": page.after, "limit": page.limit})
    rows = [hub_rows.share_group_row(each) for each in asked.rows]
    return page.of(rows, asked.result["next"], unanswered=call.unanswered(asked.result))


@routes.post("/tenants/{tenant}/messages", Scope.MESSAGES_WRITE, status=200, returns=Anything)
def publish_message(call: Call, tenant: TenantName, body: models.NewMessage) -> Response:
    """Publish a message as the tenant's administrator: no access rule is asked, the limits of the tenant hold.

    The answer comes when the message is stored for every persistent session that is to get it.
    """
    payload = _payload(body)
    argument = {
        "topic": body.topic,
        "payload": base64.b64encode(payload).decode(),
        "qos": body.qos,
        "retain": body.retain,
        "expiry_s": body.expiry_s,
        "properties": None if body.properties is None else body.properties.model_dump(exclude_none=True),
    }
    result = call.hub.change(Verb.MESSAGE_PUBLISH, tenant, argument)
    facts = {"bytes": len(payload), "qos": body.qos, "retain": body.retain}
    call.note(tenant, "message", body.topic, "published", **facts)
    return answers.shown({"name": body.topic, **facts, **result})


def _payload(body: models.NewMessage) -> bytes:
    """Raises ProblemError: there are two payloads, it is no Base64, or too large."""
    if body.payload_base64 is None:
        payload = body.payload.encode()
    elif body.payload:
        raise ProblemError(Code.INVALID, "body: expected `payload` or `payload_base64`, got both")
    else:
        try:
            payload = base64.b64decode(body.payload_base64, validate=True)
        except (binascii.Error, ValueError):
            raise ProblemError(Code.INVALID, "body.payload_base64: not Base64") from None
    if len(payload) > MESSAGE_BYTES:
        raise ProblemError(Code.BODY_TOO_LARGE, f"the payload is larger than {MESSAGE_BYTES} bytes: publish it by MQTT")
    return payload
