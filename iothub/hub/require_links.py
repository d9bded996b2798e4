"""Hubs that share stores are linked: a hub does not start beside one that it cannot be linked to.

Knows no link, only the rows of the accounts.
"""

from __future__ import annotations

from iothub.base.errors import ConfigError
from iothub.hub.wait_for_servers import Pause
from iothub_tenants.accounts.hubs import HubRow
from iothub_tenants.background.membership import GONE_S, HEARTBEAT_S, Members


async def require_links(members: Members, *, has_links: bool, pause: Pause) -> None:
    """Return when every other hub that lives can be linked to this one, which has joined; deregister, else.

    A row says that its hub lives, and stays when it is killed: it counts from its next heartbeat on, and one without any for GONE_S does not run.

    Raises ConfigError: another hub lives, and it or this one has no `cluster.listen`. UnavailableError.
    """
    seen: dict[int, HubRow] = {}
    left_s = GONE_S
    while rows := [row for row in members.present_rows() if not (has_links and row.address)]:
        for row in rows:
            before = seen.setdefault(row.number, row)
            if (row.incarnation, row.heartbeat) != (before.incarnation, before.heartbeat):
                await members.deregister()
                where = "there, and restart that hub first" if has_links else "and cluster.advertise here"
                raise ConfigError(
                    f"another hub ({row.name}, number {row.number}) uses the same stores: set cluster.listen {where}; "
                    "hubs that share stores must be linked"
                )
        if left_s <= 0:
            return
        left_s -= HEARTBEAT_S
        await pause(HEARTBEAT_S)
        await members.refresh()
