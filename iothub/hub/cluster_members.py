"""What `iothub cluster status` shows: every hub of the accounts, and how this hub is linked to it.

Knows the accounts' rows as the heartbeat last read them, and asks no store.
"""

from __future__ import annotations

from iothub.hub.parts import Parts
from iothub.peers.ports import LinkStatus
from iothub.records.admin_commands import Json, Reply, Request
from iothub_tenants.accounts.hubs import HubRow

_NO_ADDRESS = "its cluster.listen is not set"
_NO_LINKS = "cluster.listen is not set at this hub"


class ClusterMembers:
    """On the reactor thread."""

    def __init__(self, parts: Parts) -> None:
        self._process = parts.process
        self._cluster = parts.control.cluster
        self._links = parts.control.links

    async def answer(self, _request: Request, reply: Reply) -> Json:
        """Raises UnavailableError: nobody listens."""
        await reply.rows(self.rows())
        return {}

    def rows(self) -> list[Json]:
        """Return all hubs by number."""
        node = self._process.settings.node
        address = "" if self._links is None else self._links.address
        rows = [_row(node.number, node.name, address, self._process.version, "up", is_self=True)]
        if self._cluster is not None:
            statuses = {} if self._links is None else {each.peer.node: each for each in self._links.status()}
            rows += [
                self._other(row, statuses.get(row.number), is_living=is_living)
                for row, is_living in self._cluster.members.rows()
            ]
        return sorted(rows, key=lambda row: int(str(row["node"])))

    def _other(self, row: HubRow, status: LinkStatus | None, *, is_living: bool) -> Json:
        if not is_living:
            return _row(row.number, row.name, row.address, row.version, "gone")
        state = "down" if status is None else status.state
        return _row(row.number, row.name, row.address, row.version, state, status, cause=self._cause(row))

    def _cause(self, row: HubRow) -> str:
        if self._links is None:
            return _NO_LINKS
        return self._links.trouble(row.number) if row.address else _NO_ADDRESS


def _row(
    node: int,
    name: str,
    address: str,
    version: str,
    state: str,
    status: LinkStatus | None = None,
    *,
    is_self: bool = False,
    cause: str = "",
) -> Json:
    trip_s = None if status is None else status.round_trip_s
    return {
        "node": node,
        "name": name,
        "address": address,
        "version": version,
        "state": state,
        "is_self": is_self,
        "round_trip_ms": None if trip_s is None else round(trip_s * 1000, 2),
        "unacknowledged_bytes": None if status is None else status.unacknowledged_bytes,
        "cause": cause,
    }
