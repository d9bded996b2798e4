"""After a damaged page of the queue store: sessions whose queue lost its row get it back, and an alarm says what is known and what is not.

Knows the folded session states and one verb of the store; knows no table.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Protocol

from iothub.base import log as logging
from iothub.base.clock import Clock
from iothub.records.state import SessionState
from iothub_services.queues.port import Place, Rebuilt

log = logging.get(__name__)

_LOST = "queues_gone"  # `iothub.hub.stores.store_alarms`: store_lost, with the store's name


class RebuildingQueues(Protocol):
    """The awaitable verb of the store that is used here."""

    def rebuild(self, places: Sequence[Place], now_us: int) -> Awaitable[Rebuilt]: ...


async def rebuild_queues(
    queues: RebuildingQueues, states: Iterable[SessionState], clock: Clock, on_alarm: Callable[[str, str], None]
) -> None:
    """Make the lost rows anew before the sessions are given their places. Raises BackendError."""
    places = [Place(state.tenant_id, state.queue_id, state.epoch) for state in states]
    rebuilt = await queues.rebuild(places, int(clock.wall() * 1_000_000))
    if not rebuilt.queues:
        return
    log.warning("lost queues rebuilt", queues=rebuilt.queues, sessions=len(places), messages=rebuilt.messages)
    on_alarm(_LOST, lost_queues_text(rebuilt, len(places)))


def lost_queues_text(rebuilt: Rebuilt, sessions: int) -> str:
    """Say it to an operator."""
    return (
        f"the queues of {rebuilt.queues} of {sessions} sessions were lost with the damaged part of queues.db or of the folder "
        "queues.journal (`store_corrupt` in the alarms or in the log says which) and were rebuilt: "
        f"the sessions go on, {rebuilt.messages} saved messages are delivered (marked as perhaps sent before); "
        f"not known: how many messages more there were ({rebuilt.empty} of these queues have none now), "
        "and which QoS 2 messages were under way: one of those may come twice or not at all"
    )
