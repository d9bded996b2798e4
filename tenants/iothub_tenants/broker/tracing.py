"""Traces: what selected clients of a tenant, or the messages of selected topics, do at this hub, line by line into a file.

Knows no request and no other hub. Without a trace nothing of it is in the way of a message: a traced connection gets a tap in the place of its
byte sink and its transport, and a tenant with a trace of a topic gets the engine's hooks, which cost only tenants that have them.

Invariants: at most `MOST_ACTIVE` traces run, `MOST_OF_TENANT` of one tenant; no file becomes larger than its trace's limit, no trace runs
longer than its time; what a slow disk does not take is dropped, and the line that follows says how many. No line has a secret. A trace that
has ended is kept for `KEPT_S`, or until its tenant starts one more than `MOST_KEPT_OF_TENANT`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from twisted.internet.defer import Deferred

from iothub.base import log as logging
from iothub.base.clock import Clock
from iothub.base.errors import ConflictError
from iothub.base.reasons import Drop, Reason
from iothub.engine.filters import topic_matches
from iothub.engine.message import Message
from iothub.engine.plane import Plane
from iothub.engine.state import Connection, Session, TenantPlane
from iothub.mqtt.packets import Connect
from iothub.records.events import Event
from iothub_services.auth.port import Run
from iothub_tenants.broker.brokers import Brokers
from iothub_tenants.broker.trace_files import KEPT_S, MOST_KEPT, TraceFiles
from iothub_tenants.broker.trace_packets import HEAD_BYTES, PacketReader, describe
from iothub_tenants.identity import Identity, parse_username

MOST_ACTIVE, MOST_OF_TENANT = 10, 3
MOST_KEPT_OF_TENANT = (
    5  # so that one tenant does not take the place of all; more than MOST_OF_TENANT: one has always ended
)
MOST_S, MOST_BYTES, LEAST_BYTES = 24 * 3600, 64 << 20, 64 << 10
MOST_PAYLOAD = 64 << 10
CLIENT, DEVICE, TOPIC, ADDRESS = "client", "device", "topic", "ip"
KINDS = (CLIENT, DEVICE, TOPIC, ADDRESS)
_FLUSH_S = 0.2
_WAITING_BYTES = 1 << 20  # of lines that are not written yet
_LAST_BYTES = 512  # kept free for the last line

Later = Callable[[float, Callable[[], None]], object]
log = logging.get(__name__)


@dataclass(frozen=True, slots=True)
class TraceSpec:
    """What is traced. `kind`: one of `KINDS`; `value`: whose, a Topic Filter for a topic."""

    id: str
    tenant_id: int
    tenant: str
    kind: str
    value: str
    seconds: int
    most_bytes: int
    payload_bytes: int = 0
    has_pings: bool = False


@dataclass(slots=True, eq=False)
class _Trace:
    spec: TraceSpec
    ends_at: float
    used_bytes: int = 0
    lost: int = 0
    waiting: list[bytes] = field(default_factory=list)
    waiting_bytes: int = 0
    is_writing: bool = False
    is_flush_due: bool = False


class Traces(Protocol):
    """What the control plane says to traces: `Hub.traces`."""

    def connecting(self, connection: Connection, packet: Connect) -> None:
        """A CONNECT was read."""

    def admitted(self, connection: Connection, session: Session) -> None:
        """It was accepted."""

    def refused(self, connection: Connection, reason: Reason, rule: str) -> None:
        """It was refused."""

    def closed(self, connection: Connection, reason: Reason) -> None:
        """A connection has ended."""


class NoTraces:
    """Fulfils `Traces` where nothing can be traced."""

    def connecting(self, connection: Connection, packet: Connect) -> None: ...

    def admitted(self, connection: Connection, session: Session) -> None: ...

    def refused(self, connection: Connection, reason: Reason, rule: str) -> None: ...

    def closed(self, connection: Connection, reason: Reason) -> None: ...


class Tracing:
    """Fulfils `Traces`. On the reactor thread; files are written in a thread."""

    def __init__(
        self, plane: Plane, brokers: Brokers, files: TraceFiles, clock: Clock, later: Later, run: Run, node: int
    ) -> None:
        self._plane = plane
        self._brokers = brokers
        self._files = files
        self._clock = clock
        self._later = later
        self._run = run
        self._node = node
        self._active: dict[str, _Trace] = {}
        self._taps: dict[Connection, _Tap] = {}
        self._hooked: dict[TenantPlane, _Hooks] = {}
        self._observer: Any = None  # the plane's own, while traces are active

    def __len__(self) -> int:
        return len(self._active)

    def is_active(self, trace_id: str) -> bool:
        return trace_id in self._active

    # --- begin and end

    async def start(self, spec: TraceSpec) -> None:
        """Start one; in a tenant that has as many as it may keep, the oldest one that has ended is deleted for it.

        Raises ConflictError: too many run, or are kept of all tenants. UnavailableError: the file cannot be written.
        """
        if spec.id in self._active:
            raise ConflictError(f"trace {spec.id} is active already")
        of_tenant = sum(each.spec.tenant_id == spec.tenant_id for each in self._active.values())
        if len(self._active) >= MOST_ACTIVE or of_tenant >= MOST_OF_TENANT:
            raise ConflictError(
                f"{len(self._active)} traces are active at hub {self._node}, {of_tenant} of them of this tenant: at most {MOST_ACTIVE} and "
                f"{MOST_OF_TENANT} may be; stop one with `iothub trace stop`"
            )
        trace = self._active[spec.id] = _Trace(spec, self._clock.monotonic() + spec.seconds)
        try:
            running = frozenset(self._active)
            await self._run("housekeeping.traces", self._files.make_room, spec.tenant_id, MOST_KEPT_OF_TENANT, running)
            kept = await self._run("housekeeping.traces", self._files.kept)
            if len(kept) >= MOST_KEPT:
                raise ConflictError(
                    f"{len(kept)} traces of all tenants are kept at hub {self._node}, at most {MOST_KEPT}: delete one with `iothub trace delete`, "
                    f"or wait: each goes {KEPT_S // 3600} hours after its end"
                )
            first = self._line(trace, "trace_started", **self._facts(spec))
            trace.used_bytes = len(first)
            await self._run("housekeeping.traces", self._files.create, spec.id, first)
        except BaseException:
            self._remove(trace)
            raise
        if self._observer is None:
            self._observer = self._plane.turn.observer
            self._plane.observe(_TracedObserver(self._observer, self))
        self._later(spec.seconds, partial(self._end_by_time, spec.id))
        self._select_present(spec)

    def end(self, trace_id: str, reason: str) -> bool:
        """End a trace; its file stays. False: it does not run."""
        trace = self._active.get(trace_id)
        if trace is None:
            return False
        self._remove(trace)
        last = self._line(trace, "trace_ended", reason=reason, lost_lines=trace.lost)
        trace.waiting.append(last)
        self._flush(trace)
        return True

    def _remove(self, trace: _Trace) -> None:
        """Take it out of the way of everything: also one that began and could not, for which a client may have come meanwhile."""
        self._active.pop(trace.spec.id, None)
        for connection, tap in list(self._taps.items()):
            tap.traces.discard(trace)
            if not tap.traces:
                tap.remove()
                del self._taps[connection]
        for plane, hooks in list(self._hooked.items()):
            hooks.traces.discard(trace)
            if not hooks.traces:
                hooks.remove()
                del self._hooked[plane]
        if not self._active and self._observer is not None:
            self._plane.observe(self._observer)
            self._observer = None

    def _end_by_time(self, trace_id: str) -> None:
        self.end(trace_id, "time")

    async def delete(self, trace_id: str) -> None:
        """Raises NotFoundError. ConflictError: it runs."""
        if trace_id in self._active:
            raise ConflictError(f"trace {trace_id} is active: stop it first, with `iothub trace stop`")
        await self._run("housekeeping.traces", self._files.delete, trace_id)

    async def expire(self) -> None:
        """Delete the files of traces that ended a while ago."""
        now_ms = int(self._clock.wall() * 1000)
        await self._run("housekeeping.traces", self._files.expire, frozenset(self._active), now_ms)

    def forget_tenant(self, tenant_id: int) -> None:
        """A tenant is being deleted: its traces go with it."""
        for trace in list(self._active.values()):
            if trace.spec.tenant_id == tenant_id:
                self.end(trace.spec.id, "tenant_deleted")
        Deferred.fromCoroutine(self._forget_files(tenant_id))

    async def _forget_files(self, tenant_id: int) -> None:
        try:
            await self._run("housekeeping.traces", self._files.forget, tenant_id)
        except Exception as error:  # the edge of a service loop: nobody reads them any more, whatever is left
            log.warning("traces of a deleted tenant not removed", tenant_id=tenant_id, error=str(error))

    @staticmethod
    def _facts(spec: TraceSpec) -> dict[str, object]:
        return {
            "id": spec.id,
            "tenant_id": spec.tenant_id,
            "kind": spec.kind,
            "value": spec.value,
            "for_s": spec.seconds,
            "max_bytes": spec.most_bytes,
            "payload_bytes_most": spec.payload_bytes,
        }

    def _select_present(self, spec: TraceSpec) -> None:
        """Clients that are connected already are traced from now on."""
        trace, broker = self._active[spec.id], self._brokers.present(spec.tenant_id)
        if broker is None:
            return
        if spec.kind == TOPIC:
            self._hook(broker.plane, trace)
            return
        for session in list(broker.plane.sessions.awake.values()):
            connection = session.connection
            if connection is not None and not connection.is_closing:
                who = Identity(spec.tenant, session.device)
                if _selects(spec, who, session.client_id, connection.peer_ip):
                    self._tap(connection, session.client_id, connection.version, {trace})

    # --- what the control plane says

    def connecting(self, connection: Connection, packet: Connect) -> None:
        who = parse_username(packet.username) if self._active else None
        if who is None:
            return
        chosen = {
            trace
            for trace in self._active.values()
            if trace.spec.tenant == who.tenant and _selects(trace.spec, who, packet.client_id, connection.peer_ip)
        }
        if not chosen:
            return
        self._tap(connection, packet.client_id, packet.version, chosen)
        self.write(
            chosen,
            "packet",
            client=packet.client_id,
            direction="in",
            packet="CONNECT",
            device=who.device,
            address=connection.peer,
            listener=connection.listener.name,
            version=packet.version,
            clean_start=packet.is_clean_start,
            keep_alive_s=packet.keep_alive_s,
            has_will=packet.will is not None,
        )

    def admitted(self, connection: Connection, session: Session) -> None:
        if not self._active:
            return
        tap = self._taps.get(connection)
        if tap is not None:
            tap.client_id = session.client_id  # it may be assigned
        plane = session.tenant
        for trace in self._active.values():
            if trace.spec.kind == TOPIC and trace.spec.tenant_id == plane.tenant_id:
                self._hook(plane, trace)  # the broker may be a new one

    def refused(self, connection: Connection, reason: Reason, rule: str) -> None:
        tap = self._taps.get(connection)
        if tap is not None:
            self.write(tap.traces, "refused", client=tap.client_id, reason=reason.word, rule=rule)

    def closed(self, connection: Connection, reason: Reason) -> None:
        tap = self._taps.pop(connection, None)
        if tap is not None:
            self.write(tap.traces, "closed", client=tap.client_id, reason=reason.word)
            tap.remove()

    def on_event(self, event: Event) -> None:
        """Something happened to a session."""
        if not self._active:
            return
        broker = self._brokers.present(event.tenant_id)
        session = None if broker is None else broker.plane.sessions.get(event.client_id)
        device = str(event.facts.get("device", "" if session is None else session.device))
        chosen = {
            trace
            for trace in self._active.values()
            if trace.spec.tenant_id == event.tenant_id
            and _selects(trace.spec, Identity(trace.spec.tenant, device), event.client_id, "")
        }
        if chosen:
            facts = {name: fact for name, fact in event.facts.items() if name in _EVENT_FACTS}
            self.write(chosen, "session", client=event.client_id, happened=event.type.value, **facts)

    def dropped(self, tenant: TenantPlane, session: Session | None, drop: Drop, count: int) -> None:
        """A message of a client, or for it, was dropped."""
        if session is None:
            return
        connection = session.connection
        address = "" if connection is None else connection.peer_ip
        chosen = {
            trace
            for trace in self._active.values()
            if trace.spec.tenant_id == tenant.tenant_id
            and _selects(trace.spec, Identity(trace.spec.tenant, session.device), session.client_id, address)
        }
        if chosen:
            self.write(chosen, "dropped", client=session.client_id, reason=drop.value, count=count)

    # --- taps and hooks

    def _tap(self, connection: Connection, client_id: str, version: int, traces: set[_Trace]) -> None:
        tap = self._taps.get(connection)
        if tap is None:
            self._taps[connection] = _Tap(self, connection, client_id, version, traces)
        else:
            tap.traces |= traces

    def _hook(self, plane: TenantPlane, trace: _Trace) -> None:
        hooks = self._hooked.get(plane)
        if hooks is None:
            hooks = self._hooked[plane] = _Hooks(self, plane)
        hooks.traces.add(trace)

    # --- lines

    def write(self, traces: Iterable[_Trace], event: str, **facts: object) -> None:
        """Write a line to each of these traces; one that is full ends, and says so."""
        for trace in list(traces):
            if self._active.get(trace.spec.id) is not trace:
                continue
            line = self._line(trace, event, **facts)
            if trace.used_bytes + len(line) + _LAST_BYTES > trace.spec.most_bytes:
                self.end(trace.spec.id, "size")
            elif trace.waiting_bytes + len(line) > _WAITING_BYTES:
                trace.lost += 1
            else:
                trace.used_bytes += len(line)
                trace.waiting_bytes += len(line)
                trace.waiting.append(line)
                self._flush_soon(trace)

    def _line(self, trace: _Trace, event: str, **facts: object) -> bytes:
        content = {"at_ms": int(self._clock.wall() * 1000), "node": self._node, "tenant": trace.spec.tenant}
        text = json.dumps({**content, "event": event, **facts}, separators=(",", ":"), default=str)
        return text.encode() + b"\n"

    def _flush_soon(self, trace: _Trace) -> None:
        if not trace.is_flush_due:
            trace.is_flush_due = True
            self._later(_FLUSH_S, lambda: self._flush(trace))

    def _flush(self, trace: _Trace) -> None:
        trace.is_flush_due = False
        if trace.is_writing or not trace.waiting:
            return  # what is being written calls again
        lines, trace.waiting, trace.waiting_bytes = b"".join(trace.waiting), [], 0
        trace.is_writing = True
        Deferred.fromCoroutine(self._write(trace, lines))

    async def _write(self, trace: _Trace, lines: bytes) -> None:
        try:
            await self._run("housekeeping.traces", self._files.append, trace.spec.id, lines)
        except Exception as error:  # the edge of a service loop: a full disk ends a trace, and nothing else
            log.warning("trace ended: its file cannot be written", trace=trace.spec.id, error=str(error))
            trace.waiting.clear()
            self.end(trace.spec.id, "disk")
            trace.waiting.clear()
        finally:
            trace.is_writing = False
        self._flush(trace)


_EVENT_FACTS = frozenset({"reason", "filter", "group", "qos", "device", "protocol_version", "session_expiry_s"})


class _Tap:
    """Stands in the place of a connection's byte sink and of its transport, and writes down each packet that passes."""

    def __init__(
        self, tracing: Tracing, connection: Connection, client_id: str, version: int, traces: set[_Trace]
    ) -> None:
        self.client_id = client_id
        self.traces = traces
        self._tracing = tracing
        self._connection = connection
        self._version = version
        self._sink, self._transport = connection.plane, connection.transport
        most = HEAD_BYTES + max(trace.spec.payload_bytes for trace in traces)
        self._inward = PacketReader(lambda size, head: self._note("in", size, head), most)
        self._outward = PacketReader(lambda size, head: self._note("out", size, head), most)
        self._is_closed = False
        connection.plane, connection.transport = self, self

    def remove(self) -> None:
        """Put back what was there."""
        if self._connection.plane is self:
            self._connection.plane, self._connection.transport = self._sink, self._transport

    def _note(self, direction: str, size: int, head: bytes) -> None:
        for trace in list(self.traces):
            spec = trace.spec
            facts = describe(size, head, self._version, spec.payload_bytes, has_pings=spec.has_pings)
            if facts is not None:
                self._tracing.write((trace,), "packet", client=self.client_id, direction=direction, **facts)

    # --- the byte sink

    def feed(self, connection: Connection, data: bytes) -> None:
        self._inward.feed(data)
        self._sink.feed(connection, data)

    def lost(self, connection: Connection, reason: Reason) -> None:
        self._sink.lost(connection, reason)

    # --- the transport

    def wake(self) -> None:
        if not self._is_closed:
            self._note_output()
        self._transport.wake()

    def pause(self) -> None:
        self._transport.pause()

    def resume(self) -> None:
        self._transport.resume()

    def close(self, *, abort: bool = False, drains: bool = False) -> None:
        if self._connection.is_dirty:
            self._note_output()
        self._is_closed = True
        self._transport.close(abort=abort, drains=drains)

    def _note_output(self) -> None:
        """Read what this batch has appended. Behind what the client has not read yet nobody knows where that begins."""
        connection = self._connection
        if connection.is_congested:
            self._tracing.write(self.traces, "congested", client=self.client_id, unsent_bytes=len(connection.out))
        else:
            self._outward.feed(bytes(connection.out))


class _Hooks:
    """Stands in front of a tenant's plug-ins, and writes down the messages of traced topics."""

    def __init__(self, tracing: Tracing, tenant: TenantPlane) -> None:
        self.traces: set[_Trace] = set()
        self._tracing = tracing
        self._tenant = tenant
        self._publish, self._deliver = tenant.publish_hook, tenant.deliver_hook
        tenant.publish_hook, tenant.deliver_hook = self._on_publish, self._on_deliver

    def remove(self) -> None:
        self._tenant.publish_hook, self._tenant.deliver_hook = self._publish, self._deliver

    def _on_publish(self, session: Session, message: Message) -> Message | None:
        chosen = self._chosen(message.topic)
        if chosen:
            route = self._tenant.router.match(message.topic)
            queues = (
                sum(target.session.is_persistent and target.qos > 0 for target in route.targets) if message.qos else 0
            )
            receivers = len(route.targets) + len(route.groups)
            self._note(chosen, "published", session, message, receivers=receivers, queues=queues)
        return message if self._publish is None else self._publish(session, message)

    def _on_deliver(self, session: Session, message: Message) -> bool:
        chosen = self._chosen(message.topic)
        if chosen:
            self._note(chosen, "delivered", session, message)
        return True if self._deliver is None else self._deliver(session, message)

    def _chosen(self, topic: bytes) -> list[_Trace]:
        return [trace for trace in self.traces if topic_matches(trace.spec.value.encode(), topic)]

    def _note(self, traces: list[_Trace], event: str, session: Session, message: Message, **facts: object) -> None:
        said = {
            "client": session.client_id,
            "topic": message.topic.decode(errors="backslashreplace"),
            "qos": message.qos,
            "retain": message.retain,
            "payload_bytes": len(message.payload),
            "message_id": bytes(message.message_id).hex(),
        }
        for trace in traces:
            most = trace.spec.payload_bytes
            more = {"payload": bytes(message.payload[:most]).decode(errors="backslashreplace")} if most else {}
            self._tracing.write((trace,), event, **said, **facts, **more)


class _TracedObserver:
    """The plane's observer, and the traces beside it."""

    def __init__(self, observer: Any, tracing: Tracing) -> None:
        self._observer = observer
        self._tracing = tracing

    def dropped(self, tenant: TenantPlane, session: Session | None, drop: Drop, count: int) -> None:
        self._observer.dropped(tenant, session, drop, count)
        self._tracing.dropped(tenant, session, drop, count)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._observer, name)


def _selects(spec: TraceSpec, who: Identity, client_id: str, address: str) -> bool:
    if spec.kind == CLIENT:
        return spec.value == client_id
    if spec.kind == DEVICE:
        return spec.value == who.device
    return spec.kind == ADDRESS and spec.value == address
