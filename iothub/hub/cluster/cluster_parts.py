"""What a hub among others works with: made at composition, used by its heartbeat and by what follows the others' sessions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from iothub.base.clock import BootClock, Clock
from iothub.base.errors import ConflictError
from iothub.config.datadir import DataDir
from iothub.config.sections import Config
from iothub.engine.plane import Plane
from iothub.hub.cluster.peer_links import PeerLinks
from iothub.hub.stores.wait_for_servers import Pause, Waiting
from iothub.peers.known import PeerPlaces
from iothub_services.auth.port import Run
from iothub_services.damaged import OnDamage
from iothub_services.events.port import EventLog
from iothub_services.state.service import StateService
from iothub_tenants.accounts.generator import BlockSource
from iothub_tenants.background.membership import Members
from iothub_tenants.background.remote_sessions import RemoteSessions


@dataclass(frozen=True, slots=True)
class ClusterParts:
    """What a hub among others works with.

    Attributes:
        followed_log: Opens the log for whoever follows it.
        remote: What applies other hubs' events; it works above the sessions, which are made above the cluster.
        links: None: `cluster.listen` is not set.
        places: What says to the others how far the log is known here; None: this hub has no links.
        on_replaced: Called once another hub replaces this one, or, with ExpelledError, once the others go on without it.
    """

    settings: Config
    data_dir: DataDir
    reactor: Any
    clock: Clock
    boot_clock: BootClock
    run: Run
    pause: Pause
    members: Members
    states: StateService
    plane: Plane
    block_source: BlockSource
    waiting: Waiting
    store_alarms: Callable[[str, str], None]
    damaged: OnDamage
    followed_log: Callable[[], EventLog]
    remote: Callable[[], RemoteSessions]
    links: PeerLinks | None
    places: Callable[[], PeerPlaces | None]
    on_replaced: Callable[[ConflictError], None]
