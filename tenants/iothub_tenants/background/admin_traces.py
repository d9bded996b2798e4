"""What an administrator asks about traces: begin, end, list, read and delete them.

Fulfils those verbs of `iothub.records.admin_commands.Verb`, for this hub alone: `iothub.hub.cluster.every_hub` asks the others. Knows no transport.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from iothub.base.errors import ConfigError, NotFoundError
from iothub.engine.filters import check_topic_filter
from iothub.records.admin_commands import Json, Reply, Request, Verb, Verbs, no_tenant
from iothub_services.auth.port import Run, TenantRecord
from iothub_tenants.broker.trace_files import ID, KeptTrace, TraceFiles
from iothub_tenants.broker.tracing import (
    KINDS,
    LEAST_BYTES,
    MOST_BYTES,
    MOST_PAYLOAD,
    MOST_S,
    TOPIC,
    TraceSpec,
    Tracing,
)

MOST_LINES = 500  # in one answer
_MOST_VALUE = 65_535

FindTenant = Callable[[str], Awaitable[TenantRecord | None]]


class AdminTraces:
    """On the reactor thread. Invariant: a tenant's traces are those whose file has its number; an id of another tenant's is unknown.

    The number, for a name may be that of a tenant that was deleted.
    """

    def __init__(self, tracing: Tracing, files: TraceFiles, find_tenant: FindTenant, run: Run, node: int) -> None:
        self._tracing = tracing
        self._files = files
        self._find_tenant = find_tenant
        self._run = run
        self._node = node
        self.verbs: Verbs = {
            Verb.TRACE_START: self._start,
            Verb.TRACE_LIST: self._list,
            Verb.TRACE_READ: self._read,
            Verb.TRACE_STOP: self._stop,
            Verb.TRACE_DELETE: self._delete,
        }

    async def _start(self, request: Request, _reply: Reply) -> Json:
        """Raises ConfigError, ConflictError, NotFoundError, UnavailableError."""
        tenant = await self._find_tenant(request.tenant)
        if tenant is None:
            raise no_tenant(request.tenant)
        await self._tracing.start(_spec(request, tenant.id))
        return {"hubs": 1}

    async def _list(self, request: Request, reply: Reply) -> Json:
        rows = []
        tenant = await self._find_tenant(request.tenant)
        found = [] if tenant is None else await self._run("housekeeping.traces", self._files.kept_of, tenant.id)
        for trace_id in found:
            try:
                kept = await self._run("housekeeping.traces", self._files.describe, trace_id)
            except NotFoundError:
                continue  # deleted meanwhile
            rows.append(self._described(trace_id, kept))
        await reply.rows(rows)
        return {}

    async def _read(self, request: Request, reply: Reply) -> Json:
        trace_id = await self._own(request)
        offsets = request.argument.get("offsets")
        offset = offsets.get(str(self._node), 0) if isinstance(offsets, dict) else 0
        if not isinstance(offset, int) or isinstance(offset, bool) or offset < 0:
            raise ConfigError(f"{request.verb}: offsets: expected a number for each hub")
        is_active = self._tracing.is_active(trace_id)  # before it is read: what is written last is not missed
        lines = min(request.number("lines"), MOST_LINES)
        found = await self._run("housekeeping.traces", self._files.read, trace_id, offset, lines)
        await reply.rows([{"node": self._node, "offset": line.offset, "line": line.text} for line in found])
        return {"active": int(is_active)}

    async def _stop(self, request: Request, _reply: Reply) -> Json:
        trace_id = await self._own(request)
        return {"stopped": int(self._tracing.end(trace_id, "stopped"))}

    async def _delete(self, request: Request, _reply: Reply) -> Json:
        await self._tracing.delete(await self._own(request))
        return {"deleted": 1}

    async def _own(self, request: Request) -> str:
        """Raises NotFoundError: the tenant has no such trace here."""
        trace_id, tenant = request.text("id"), await self._find_tenant(request.tenant)
        kept = await self._run("housekeeping.traces", self._files.describe, trace_id)
        if tenant is None or kept.facts.get("tenant_id") != tenant.id:
            raise NotFoundError(f"there is no trace {trace_id!r}; `iothub trace list {request.tenant}` shows them")
        return trace_id

    def _described(self, trace_id: str, kept: KeptTrace) -> Json:
        is_active = self._tracing.is_active(trace_id)
        ended = kept.last.get("reason") if kept.last.get("event") == "trace_ended" else "hub_stopped"
        names = ("kind", "value", "for_s", "max_bytes", "payload_bytes_most")
        return {
            "id": trace_id,
            "node": self._node,
            **{name: kept.facts.get(name) for name in names},
            "started_at_ms": kept.facts.get("at_ms", 0),
            "bytes": kept.size,
            "ended": "" if is_active else ended,
            "until_ms": 0 if is_active else kept.until_ms,
        }


def _spec(request: Request, tenant_id: int) -> TraceSpec:
    """Raises ConfigError."""
    kind, value = request.text("kind"), request.text("value")
    if kind not in KINDS:
        raise ConfigError(f"{request.verb}: kind: expected {', '.join(KINDS)}")
    if not 1 <= len(value) <= _MOST_VALUE:
        raise ConfigError(f"{request.verb}: {kind}: expected 1 to {_MOST_VALUE} characters")
    if kind == TOPIC and check_topic_filter(value.encode(), 1024, _MOST_VALUE):
        raise ConfigError(f"{value!r} is no topic filter: + must be alone in its level, # alone in the last one")
    if not ID.fullmatch(request.text("id")):
        raise ConfigError(f"{request.verb}: id: expected t- and 16 hexadecimal digits")
    return TraceSpec(
        id=request.text("id"),
        tenant_id=tenant_id,
        tenant=request.tenant,
        kind=kind,
        value=value,
        seconds=_between(request, "for_s", 1, MOST_S),
        most_bytes=_between(request, "max_bytes", LEAST_BYTES, MOST_BYTES),
        payload_bytes=_between(request, "payload_bytes", 0, MOST_PAYLOAD),
        has_pings=request.flag("has_pings"),
    )


def _between(request: Request, name: str, least: int, most: int) -> int:
    number = request.number(name)
    if not least <= number <= most:
        raise ConfigError(f"{request.verb}: {name}: expected {least} to {most}")
    return number
