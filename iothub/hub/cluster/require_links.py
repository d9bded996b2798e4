"""Hubs that share stores are linked: a hub does not start beside one that it cannot be linked to.

Knows no link, only the rows of the accounts.
"""

from __future__ import annotations

from collections.abc import Collection

from iothub.base.errors import ConfigError
from iothub.hub.stores.wait_for_servers import Pause
from iothub_tenants.accounts.hubs import HubRow
from iothub_tenants.background.membership import GONE_S, HEARTBEAT_S, Members


async def require_links(
    members: Members, *, has_links: bool, pause: Pause, beside: Collection[int] | None = None
) -> None:
    """Return when every other hub that lives can be linked to this one, which has joined; deregister, else.

    A row says that its hub lives, and stays when it is killed: it counts from its next heartbeat on, and one without any for GONE_S does not run.

    `beside`: the node numbers of the workers of this data directory, if the session log is in a file there, which no other hub can reach.

    Raises ConfigError: another hub lives, and it or this one has no `cluster.listen`, or cannot have these stores. UnavailableError.
    """
    seen: dict[int, HubRow] = {}
    left_s = GONE_S
    while rows := [row for row in members.present_rows() if _why_not(row, has_links=has_links, beside=beside)]:
        for row in rows:
            before = seen.setdefault(row.number, row)
            if (row.incarnation, row.heartbeat) != (before.incarnation, before.heartbeat):
                await members.deregister()
                why = _why_not(row, has_links=has_links, beside=beside)
                raise ConfigError(f"another hub ({row.name}, number {row.number}) uses the same {why}")
        if left_s <= 0:
            return
        left_s -= HEARTBEAT_S
        await pause(HEARTBEAT_S)
        await members.refresh()


def _why_not(row: HubRow, *, has_links: bool, beside: Collection[int] | None) -> str:
    """Say why this hub and that one cannot be linked; empty: they can."""
    if beside is not None and row.number not in beside:
        return (
            "accounts, and the stores of this one are files of its data directory, which only its own workers share: give this hub accounts of "
            "its own (sql.url_file), or let both have their stores on servers (profile cluster)"
        )
    if has_links and row.address:
        return ""
    where = "there, and restart that hub first" if has_links else "and cluster.advertise here"
    return f"stores: set cluster.listen {where}; hubs that share stores must be linked"
