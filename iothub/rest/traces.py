"""/tenants/{tenant}/traces: record what clients and the messages of topics do at all hubs, and read it.

Knows no file: `iothub.admin.tracing` puts together what the hubs report.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any

from fastapi import Path, Query, Response

from iothub.admin import tracing
from iothub.admin.hub_rows import AnyJson, Row
from iothub.base.errors import IotHubError, NotFoundError, UnavailableError
from iothub.records.admin_commands import Verb
from iothub.rest import answers, models
from iothub.rest.models import Anything, Items, TenantName
from iothub.rest.problems import Code, ProblemError
from iothub.rest.routes import Call, Routes
from iothub.rest.scopes import SCOPES_OF, Scope
from iothub.rest.texts import OFFSETS

routes = Routes("traces")
TraceId = Annotated[str, Path(description="Name of a trace.")]


@routes.post("/tenants/{tenant}/traces", Scope.TRACES_WRITE, returns=Anything)
def start_trace(call: Call, tenant: TenantName, body: models.NewTrace) -> Response:
    """Start a trace at every hub. It ends by itself. A tenant has 5 at most: the oldest one that has ended makes room for it."""
    if body.payload_bytes and not _may_read_payloads(call):
        raise ProblemError(Code.FORBIDDEN, f"payloads need the scope {Scope.MESSAGES_READ.value}")
    trace_id = tracing.new_id()
    try:
        begun = call.hub.change(Verb.TRACE_START, tenant, {"id": trace_id, **body.model_dump()})
    except UnavailableError:  # of some hubs: nobody gets its name, so nobody could stop it at the others
        with suppress(IotHubError):
            call.hub.change(Verb.TRACE_STOP, tenant, {"id": trace_id})
        raise
    call.note(tenant, "trace", trace_id, "started", selects=f"{body.kind}: {body.value}")
    row = {"name": trace_id, **body.model_dump(), "hubs": begun["hubs"]}
    return answers.created(row, f"/api/v1/tenants/{tenant}/traces/{trace_id}")


@routes.get("/tenants/{tenant}/traces", Scope.TRACES_READ, returns=Items)
def list_traces(call: Call, tenant: TenantName) -> Response:
    """List the traces of a tenant, those that have ended included: they are deleted 24 hours after their end, at `kept_until`."""
    return answers.shown({"items": _traces(call, tenant)})


@routes.get("/tenants/{tenant}/traces/{trace}", Scope.TRACES_READ, returns=Anything)
def show_trace(call: Call, tenant: TenantName, trace: TraceId) -> Response:
    """Show one trace, and which hubs have a part of it."""
    return answers.shown(_found(call, tenant, trace))


@routes.get("/tenants/{tenant}/traces/{trace}/log", Scope.TRACES_READ, returns=Anything)
def read_trace(
    call: Call,
    tenant: TenantName,
    trace: TraceId,
    after: Annotated[str, Query(max_length=4096, pattern=OFFSETS, description="`next` of the page before.")] = "",
    limit: Annotated[int, Query(ge=1, le=tracing.LINES, description="Maximum number of lines of each hub.")] = 100,
) -> Response:
    """Read the lines that follow, those of all hubs by time. `next`: where the page after begins; `is_active`: more may come."""

    def ask(argument: Row) -> tuple[Sequence[AnyJson], Mapping[str, Any]]:
        asked = call.hub.ask(Verb.TRACE_READ, tenant, argument)
        return asked.rows, asked.result

    cursor = tracing.Cursor(tracing.offsets_of(after))
    lines = cursor.page(trace, ask, limit)
    if not _may_read_payloads(call):
        for line in lines:
            line.pop("payload", None)
    return answers.shown({"items": lines, "next": tracing.text_of(cursor.offsets), "is_active": cursor.is_active})


@routes.post("/tenants/{tenant}/traces/{trace}:stop", Scope.TRACES_WRITE, status=200, returns=Anything)
def stop_trace(call: Call, tenant: TenantName, trace: TraceId) -> Response:
    """End a trace at every hub; its lines stay."""
    result = call.hub.change(Verb.TRACE_STOP, tenant, {"id": trace})
    call.note(tenant, "trace", trace, "stopped")
    return answers.shown({"name": trace, "hubs": result["stopped"]})


@routes.delete("/tenants/{tenant}/traces/{trace}", Scope.TRACES_WRITE)
def delete_trace(call: Call, tenant: TenantName, trace: TraceId) -> Response:
    """Delete the lines of a trace that has ended."""
    call.hub.change(Verb.TRACE_DELETE, tenant, {"id": trace})
    call.note(tenant, "trace", trace, "deleted")
    return answers.gone()


def _may_read_payloads(call: Call) -> bool:
    return Scope.MESSAGES_READ in SCOPES_OF[call.principal.role]


def _traces(call: Call, tenant: str) -> list[Row]:
    return tracing.traces_of(call.hub.ask(Verb.TRACE_LIST, tenant, {}).rows)


def _found(call: Call, tenant: str, trace: str) -> Row:
    """Raises NotFoundError."""
    for row in _traces(call, tenant):
        if row["name"] == trace:
            return row
    raise NotFoundError(f"there is no trace {trace!r}")
