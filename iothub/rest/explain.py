"""/tenants/{tenant}/explain:connect, :publish and :subscribe: what the hubs would say, step by step, and what decides.

Knows no rule and no limit: `iothub.admin.explaining` puts together what the hubs report.
"""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Response
from pydantic import Field

from iothub.admin import explaining
from iothub.rest import answers
from iothub.rest.models import Anything, Body, Device, TenantName, Topic
from iothub.rest.routes import Call, Routes
from iothub.rest.scopes import Scope
from iothub.rest.texts import ADDRESS, NO_NUL
from iothub_tenants.accounts import tenants

routes = Routes("explain")
_ClientId = Annotated[str, Field(max_length=256, pattern=NO_NUL)]
_Qos = Literal[0, 1, 2]
_Text = Annotated[Topic, Field(pattern=NO_NUL)]


class ExplainConnect(Body):
    """A CONNECT that nobody sends. `client_id`: absent: the device's name; empty: the hub assigns one."""

    device: Device
    client_id: _ClientId | None = None
    address: Annotated[str, Field(min_length=2, max_length=45, pattern=ADDRESS)] = "127.0.0.1"
    listener: Literal["tcp", "tls", "ws", "wss"] = "tcp"
    is_persistent: bool = False


class ExplainPublish(Body):
    """A PUBLISH that nobody sends, of a payload of `size` bytes."""

    device: Device
    topic: _Text
    client_id: _ClientId | None = None
    qos: _Qos = 0
    is_retained: bool = False
    size: Annotated[int, Field(ge=0, le=268_435_455)] = 0


class ExplainSubscribe(Body):
    """A SUBSCRIBE that nobody sends."""

    device: Device
    filter: _Text
    client_id: _ClientId | None = None
    qos: _Qos = 0


@routes.post("/tenants/{tenant}/explain:connect", Scope.RULES_READ, status=200, returns=Anything)
def explain_connect(call: Call, tenant: TenantName, body: ExplainConnect) -> Response:
    """Say whether a client of a device may connect, and which step decides. No secret is tested, and nothing counts as an attempt."""
    asked = explaining.connect_request(
        body.device, body.client_id, body.address, body.listener, is_persistent=body.is_persistent
    )
    return _explained(call, tenant, body.device, asked)


@routes.post("/tenants/{tenant}/explain:publish", Scope.RULES_READ, status=200, returns=Anything)
def explain_publish(call: Call, tenant: TenantName, body: ExplainPublish) -> Response:
    """Say whether a connected client of a device may publish to a topic, and which step decides."""
    asked = explaining.publish_request(
        body.device, body.client_id, body.topic, body.qos, body.size, is_retained=body.is_retained
    )
    return _explained(call, tenant, body.device, asked)


@routes.post("/tenants/{tenant}/explain:subscribe", Scope.RULES_READ, status=200, returns=Anything)
def explain_subscribe(call: Call, tenant: TenantName, body: ExplainSubscribe) -> Response:
    """Say whether a connected client of a device may subscribe to a Topic Filter, and which step decides."""
    asked = explaining.subscribe_request(body.device, body.client_id, body.filter, body.qos)
    return _explained(call, tenant, body.device, asked)


def _explained(call: Call, tenant: str, device: str, asked: explaining.Asked) -> Response:
    tenants.show(call.store, tenant)
    answer = call.hub.ask(asked.verb, tenant, asked.argument)
    verdict = explaining.verdict_of(answer.rows)
    return answers.shown({"name": f"{tenant}/{device}", **verdict, "unanswered": call.unanswered(answer.result)})
