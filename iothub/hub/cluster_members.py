"""What `iothub cluster status` shows: every hub of the accounts, and how this hub is linked to it.

Knows the accounts' rows as the heartbeat last read them, asks no store, and asks each linked hub how many clients it has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from iothub.hub.cluster.node_commands import NodeState
from iothub.hub.parts import Control, Process, Sockets
from iothub.peers.ports import LinkStatus
from iothub.records.admin_commands import Json, Reply, Request
from iothub_tenants.accounts.hubs import CUT_OFF, ENDED, EVICTED, LEFT, SILENT, UP, HubRow

_NO_ADDRESS = "its cluster.listen is not set"
_GONE = {
    ENDED: "its process ended; its supervisor starts it again",
    SILENT: "its heartbeat and its link stood still; one that still runs begins again by itself, else start it",
    CUT_OFF: "the link to another hub was down; it begins again by itself",
    EVICTED: "an administrator has evicted it; one that still runs begins again by itself",
}
_NO_LINKS = "cluster.listen is not set at this hub"


class ClusterMembers:
    """On the reactor thread."""

    def __init__(self, process: Process, control: Control, sockets: Sockets) -> None:
        self._process = process
        self._cluster = control.cluster
        self._links = control.links
        self._nodes = sockets.nodes

    async def answer(self, _request: Request, reply: Reply) -> Json:
        """Raises UnavailableError: nobody listens."""
        await reply.rows(self.rows(await self._nodes.states()))
        return {}

    def counts(self) -> Counter[str]:
        """Return how many hubs are in which state, this one among them. Asks nobody."""
        return Counter(str(row["state"]) for row in self.rows({}))

    def rows(self, states: Mapping[int, NodeState]) -> list[Json]:
        """Return all hubs by number. `states`: what those say of themselves that have answered."""
        node = self._process.settings.node
        address = "" if self._links is None else self._links.address
        own = HubRow(node.number, 0, node.name, 0, 0, address=address, version=self._process.version)
        state = UP if self._cluster is None else self._cluster.state
        rows = [_row(own, state, said=states.get(node.number), is_self=True)]
        if self._cluster is not None:
            statuses = {} if self._links is None else {each.peer.node: each for each in self._links.status()}
            rows += [
                self._other(row, statuses.get(row.number), states.get(row.number), is_living=is_living)
                for row, is_living in self._cluster.members.rows()
            ]
        return sorted(rows, key=lambda row: int(str(row["node"])))

    def _other(self, row: HubRow, status: LinkStatus | None, said: NodeState | None, *, is_living: bool) -> Json:
        if row.is_gone or not is_living:
            return _row(row, LEFT if row.has_left else "gone", cause=_GONE.get(row.gone_why, ""))
        state = "down" if status is None else status.state
        if state == "down" and self._links is not None and self._links.is_refused(row.number):
            state = "refused"
        return _row(row, row.state if state == UP else state, status, said, cause=self._cause(row))

    def _cause(self, row: HubRow) -> str:
        if self._links is None:
            return _NO_LINKS
        return self._links.trouble(row.number) if row.address else _NO_ADDRESS


def _row(
    row: HubRow,
    link: str,
    status: LinkStatus | None = None,
    said: NodeState | None = None,
    *,
    is_self: bool = False,
    cause: str = "",
) -> Json:
    trip_s = None if status is None else status.round_trip_s
    return {
        "node": row.number,
        "name": row.name,
        "address": row.address,
        "version": row.version,
        "state": "draining" if link == "up" and said is not None and said.is_draining else link,
        "is_self": is_self,
        "clients": None if said is None else said.clients,
        "round_trip_ms": None if trip_s is None else round(trip_s * 1000, 2),
        "unacknowledged_bytes": None if status is None else status.unacknowledged_bytes,
        "cause": cause or ("" if said is None else said.clock_fault),
    }
