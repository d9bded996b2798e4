"""The links of a hub, made before everything that travels over them."""

from __future__ import annotations

from iothub.hub.cluster.peer_links import LinkParts, PeerLinks
from iothub.hub.from_settings import link_files
from iothub.hub.late import LateBound
from iothub.hub.parts import Monitoring, Process, Stores
from iothub.net.listeners import Listeners


def make_links(
    process: Process, stores: Stores, monitoring: Monitoring, listeners: LateBound[Listeners]
) -> PeerLinks | None:
    """Make the links to other hubs; None: this hub has none."""
    if process.cluster_clock is None:
        return None
    return PeerLinks(
        LinkParts(
            settings=process.settings,
            files=link_files(process.settings, process.data_dir),
            version=process.version,
            installation=lambda: stores.installation.id,
            listeners=listeners,
            reactor=process.reactor,
            run=process.threads.run,
            alarms=monitoring.alarms,
            cluster_clock=process.cluster_clock,
        )
    )
