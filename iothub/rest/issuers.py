"""/tenants/{tenant}/token-issuers and /streams: whose tokens devices may show, and what goes to Kafka and comes from there."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Response

from iothub.admin import issuers
from iothub.admin.issuers import Given
from iothub.records.admin_commands import Verb
from iothub.rest import answers, models
from iothub.rest.answers import Page
from iothub.rest.machine import Here
from iothub.rest.models import Anything, Items, Name, TenantName
from iothub.rest.routes import Call, Routes
from iothub.rest.scopes import Scope
from iothub_services.streams.port import Direction
from iothub_tenants.accounts import streams, tenants, token_issuers
from iothub_tenants.accounts.plain import plain

routes = Routes("access")


@routes.get("/tenants/{tenant}/token-issuers", Scope.ISSUERS_READ, returns=Items)
def list_token_issuers(call: Call, tenant: TenantName, page: Page) -> Response:
    """List the token issuers of a tenant by name."""
    return page.behind([plain(found) for found in token_issuers.list_all(call.store, tenant)])


@routes.post("/tenants/{tenant}/token-issuers", Scope.ISSUERS_WRITE, returns=Anything)
def create_token_issuer(call: Call, tenant: TenantName, body: models.NewTokenIssuer) -> Response:
    """Trust a token issuer. One of `public_key`, `jwks` and `secret` has its keys; a secret is stored encrypted and never shown."""
    made = issuers.add(call.store, tenant, body.name, _given(body))
    return answers.created(plain(made), f"/api/v1/tenants/{tenant}/token-issuers/{made.name}")


@routes.get("/tenants/{tenant}/token-issuers/{name}", Scope.ISSUERS_READ, returns=Anything)
def show_token_issuer(call: Call, tenant: TenantName, name: Name) -> Response:
    """Show one token issuer with the fingerprints of its public keys."""
    return answers.shown(plain(token_issuers.show(call.store, tenant, name)))


@routes.patch("/tenants/{tenant}/token-issuers/{name}", Scope.ISSUERS_WRITE, returns=Anything)
def change_token_issuer(call: Call, tenant: TenantName, name: Name, body: models.TokenIssuerChanges) -> Response:
    """Change what is given; new keys replace all old ones. Connections whose key or claims no longer fit are closed."""
    return answers.shown(plain(issuers.change(call.store, tenant, name, _given(body))))


@routes.delete("/tenants/{tenant}/token-issuers/{name}", Scope.ISSUERS_WRITE)
def delete_token_issuer(call: Call, tenant: TenantName, name: Name) -> Response:
    """Stop trusting a token issuer; connections that logged in with its tokens are closed."""
    token_issuers.remove(call.store, tenant, name)
    return answers.gone()


@routes.get("/tenants/{tenant}/streams", Scope.STREAMS_READ, returns=Items)
def list_streams(call: Call, tenant: TenantName, page: Page, here: Here) -> Response:
    """List the streams of a tenant by name."""
    return page.behind([here.stream_row(found) for found in streams.list_all(call.store, tenant)])


@routes.post("/tenants/{tenant}/streams", Scope.STREAMS_WRITE, returns=Anything)
def create_stream(call: Call, tenant: TenantName, here: Here, body: models.NewStream) -> Response:
    """Create a stream and its Kafka topic. `existing_topics`: those that were there already, and are used as they are."""
    tenants.show(call.store, tenant)
    row = here.create_stream(
        call.store,
        tenant,
        body.name,
        body.filter,
        direction=Direction(body.direction),
        partitions=body.partitions,
        retention_s=body.retention_s,
    )
    return answers.created(row, f"/api/v1/tenants/{tenant}/streams/{body.name}")


@routes.get("/tenants/{tenant}/streams/{name}", Scope.STREAMS_READ, returns=Anything)
def show_stream(call: Call, tenant: TenantName, name: Name, here: Here) -> Response:
    """Show one stream, with the state and the counts of the running hubs."""
    row = here.stream_row(streams.show(call.store, tenant, name))
    return answers.shown({**row, **call.hub.ask(Verb.STREAM_SHOW, tenant, {"name": name}).result})


@routes.delete("/tenants/{tenant}/streams/{name}", Scope.STREAMS_WRITE)
def delete_stream(
    call: Call,
    tenant: TenantName,
    name: Name,
    here: Here,
    is_topic_kept: Annotated[bool, Query(alias="keep_topic", description="Keep the topic in Kafka.")] = False,
) -> Response:
    """Delete a stream, its rules, and its topic with everything in it."""
    here.delete_stream(call.store, streams.show(call.store, tenant, name), is_topic_kept=is_topic_kept)
    return answers.gone()


def _given(body: models.TokenKeys) -> Given:
    return Given(body.public_key, body.jwks, body.secret, body.algorithm, body.issuer, body.audience, body.leeway_s)
