"""Admin requests to one hub of the cluster, named by its node number: drain, resume, evict, and how many clients it has.

`OwnNode` answers for this hub, here and over links. `Nodes` takes what is asked at this hub to the hub that it is for. Neither knows how a hub
is drained: `iothub.hub.cluster.draining` does.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import cast

from iothub.base.errors import ConfigError, ConflictError, NotFoundError, UnavailableError
from iothub.config.sections import Config
from iothub.hub.cluster.draining import CLIENTS_PER_S, REFERENCES, Destination, Draining
from iothub.hub.stores.wait_for_servers import Pause
from iothub.peers.commands import PeerCommands
from iothub.records.admin_commands import Json, Reply, Request, Verb, Verbs
from iothub_tenants.accounts.hubs import HubRow

MOST_PER_S = 1_000_000
SILENCE_S = 2.0
REPORT_S = 0.5

Evict = Callable[[HubRow], Awaitable[None]]
Rows = Callable[[], Sequence[tuple[HubRow, bool]]]


@dataclass(frozen=True, slots=True)
class NodeState:
    """What a hub says of itself. `reference`: where it is for clients; empty: it does not say. `clock_fault`: empty: its clock is right."""

    node: int
    clients: int
    is_draining: bool
    reference: str
    clock_fault: str = ""


class OwnNode:
    """On the reactor thread."""

    def __init__(
        self, settings: Config, draining: Draining, pause: Pause, clock_fault: Callable[[], str] = str
    ) -> None:
        self.number, self.name = settings.node.number, settings.node.name
        self._reference = settings.cluster.advertise_clients
        self._draining = draining
        self._pause = pause
        self._clock_fault = clock_fault
        self.verbs: Verbs = {
            Verb.CLUSTER_DRAIN: self._drain,
            Verb.CLUSTER_RESUME: self._resume,
            Verb.CLUSTER_NODE: self._describe,
        }

    @property
    def state(self) -> NodeState:
        draining = self._draining
        return NodeState(self.number, draining.clients, draining.is_draining, self._reference, self._clock_fault())

    async def drain_until(self, deadline: Callable[[], bool], rate_per_s: float, destination: Destination) -> int:
        """Drain, and wait until the hub is empty, or until `deadline()`; return how many clients are left. Nothing is drained after it."""
        self._draining.begin(rate_per_s, destination)
        while not self._draining.is_done and not deadline():
            await self._pause(REPORT_S / 10)
        self._draining.stop()
        return self._draining.clients

    async def _drain(self, request: Request, reply: Reply) -> Json:
        """Raises ConfigError. ConflictError: it was resumed meanwhile. UnavailableError: nobody listens, or the hub is not ready."""
        rate_per_s, is_waited = request.number("rate_per_s"), request.flag("is_waited")
        if not 1 <= rate_per_s <= MOST_PER_S:
            raise ConfigError(f"a rate of {rate_per_s}/s: expected 1/s to {MOST_PER_S}/s")
        draining = self._draining
        draining.require_ready()
        draining.begin(rate_per_s, _destination_in(request))
        while is_waited and not draining.is_done:
            if not draining.is_draining:
                raise ConflictError(f"hub {self.name} ({self.number}) was resumed before it was empty")
            left = draining.clients
            await reply.rows([{"node": self.number, "done": draining.closed, "total": draining.closed + left}])
            await self._pause(REPORT_S)
        return {"node": self.number, "name": self.name, "clients": draining.clients, "closed": draining.closed}

    async def _resume(self, _request: Request, _reply: Reply) -> Json:
        """Raises UnavailableError: a port has been taken meanwhile, or the hub stops."""
        self._draining.require_ready()
        return {"node": self.number, "name": self.name, "was_draining": self._draining.resume()}

    async def _describe(self, _request: Request, reply: Reply) -> Json:
        state = self.state
        facts = {
            "clients": state.clients,
            "is_draining": state.is_draining,
            "reference": state.reference,
            "clock_fault": state.clock_fault,
        }
        await reply.rows([{"node": state.node, **facts}])
        return {}


class Nodes:
    """On the reactor thread. `verbs`: what administrators ask at this hub, for whichever hub."""

    def __init__(self, own: OwnNode, peers: PeerCommands, rows: Rows, evict: Evict) -> None:
        """`rows`: of the other hubs in the accounts, each with whether it lives. `evict`: declares one of them gone, or notes that it is known."""
        self._own = own
        self._peers = peers
        self._rows = rows
        self._declare_gone = evict
        self.verbs: Verbs = {
            Verb.CLUSTER_DRAIN: self._drain,
            Verb.CLUSTER_RESUME: self._resume,
            Verb.CLUSTER_EVICT: self._evict,
        }

    async def states(self) -> dict[int, NodeState]:
        """Return what this hub and each linked one say of themselves; one that does not answer is missing."""
        gathered = _Gathered()
        if any(is_living for _, is_living in self._rows()):
            await self._peers.ask_all(Request(Verb.CLUSTER_NODE, "", {}), gathered, SILENCE_S)
        return {state.node: state for state in (*gathered.states, self._own.state)}

    async def drain_own(self, limit_s: float, now: Callable[[], float]) -> int:
        """Empty this hub within `limit_s`; return how many clients are left. At the usual rate, or as fast as it takes."""
        until = now() + limit_s
        destination = _destination_of(await self.states(), self._own.number)
        rate_per_s = max(CLIENTS_PER_S, self._own.state.clients / (limit_s / 2))
        return await self._own.drain_until(lambda: now() >= until, rate_per_s, destination)

    async def _drain(self, request: Request, reply: Reply) -> Json:
        node = self._node_of(request)
        destination = _destination_of(await self.states(), node)
        facts = {"has_hubs": destination.has_hubs, "references": list(destination.references)}
        return await self._at(node, Request(request.verb, "", {**request.argument, **facts}), reply)

    async def _resume(self, request: Request, reply: Reply) -> Json:
        return await self._at(self._node_of(request), request, reply)

    async def _evict(self, request: Request, _reply: Reply) -> Json:
        """Nothing is asked of that hub: it may be frozen, or not there. Raises NotFoundError, ConflictError, UnavailableError."""
        node = request.number("node")
        if node == self._own.number:
            raise ConflictError(
                f"hub {self._own.name} ({node}) is the one that was asked, and no hub evicts itself: stop it, or run the command at another hub"
            )
        row, _ = self._known(node)
        if not row.has_left:
            await self._declare_gone(row)
        return {"node": node, "name": row.name, "was_gone": row.is_gone, "has_left": row.has_left}

    def _node_of(self, request: Request) -> int:
        return self._own.number if request.argument.get("node") is None else request.number("node")

    async def _at(self, node: int, request: Request, reply: Reply) -> Json:
        """Raises NotFoundError: there is no such hub, or it is gone. UnavailableError: it does not answer. IotHubError: its refusal."""
        if node == self._own.number:
            return await self._own.verbs[request.verb](request, reply)
        row, is_living = self._known(node)
        if not is_living:
            raise NotFoundError(f"hub {row.name} ({node}) is gone: it has stopped, or its heartbeat has")
        answer = await self._peers.ask(node, request, reply, SILENCE_S)
        if isinstance(answer.error, UnavailableError):
            raise UnavailableError(f"hub {row.name} ({node}): {answer.error}")
        if answer.error is not None:
            raise answer.error
        return answer.result

    def _known(self, node: int) -> tuple[HubRow, bool]:
        """Return the row of another hub, and whether it lives. Raises NotFoundError: there was never one."""
        found = next(((row, is_living) for row, is_living in self._rows() if row.number == node), None)
        if found is None:
            raise NotFoundError(f"there is no hub {node}; `iothub cluster status` shows the hubs")
        return found


class _Gathered:
    """Fulfils `Reply`: keeps what hubs say of themselves."""

    def __init__(self) -> None:
        self.states: list[NodeState] = []

    async def rows(self, rows: Sequence[Json]) -> None:
        for row in rows:
            node, clients, reference = row.get("node"), row.get("clients"), row.get("reference")
            if isinstance(node, int) and isinstance(clients, int) and isinstance(reference, str):
                fault = row.get("clock_fault")  # a hub of the version before does not say it
                clock_fault = fault if isinstance(fault, str) else ""
                self.states.append(NodeState(node, clients, row.get("is_draining") is True, reference, clock_fault))


def _destination_of(states: dict[int, NodeState], node: int) -> Destination:
    """Return where the clients of a hub shall go: to all that answer and are not draining themselves."""
    others = [state for number, state in sorted(states.items()) if number != node and not state.is_draining]
    return Destination(bool(others), tuple(state.reference for state in others if state.reference)[:REFERENCES])


def _destination_in(request: Request) -> Destination:
    """Raises ConfigError."""
    references = request.argument.get("references", [])
    if not isinstance(references, list) or not all(isinstance(each, str) for each in references):
        raise ConfigError(f"{request.verb}: references: expected a list of texts")
    return Destination(request.flag("has_hubs"), tuple(cast("list[str]", references)))
