"""HBase and Kafka of one's own, under strace from their starts: which of their files they synced.

strace that attaches to a running JVM stops each of its threads at each call, and one that it does not let go again hangs the server.
From the start on it stops only what is asked for, and it never has to let go. The servers are apart from those of the other tests.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ops.services.places import Places, Ports
from ops.services.probes import is_free
from ops.services.servers import NAMES, ports_of
from ops.services.services import Services
from tests.support.hubs.strace import SYNCING, Call, calls, syncs_written_to

TRACED = ("hbase", "kafka")
_SHIFTS = range(80, 900, 100)  # beside those of other sets, below the ports of hubs


class TracedServices(Services):
    """The servers, and what they have synced up to now."""

    def __init__(self, folder: Path, libraries: Path) -> None:
        folder.mkdir()
        self._traces = {name: folder / f"{name}.trace" for name in TRACED}
        within = {name: (*syncs_written_to(trace), "-D") for name, trace in self._traces.items()}  # as a grandchild
        super().__init__(Places(folder), _free_ports(), print, within)
        self.places.libraries.symlink_to(libraries)

    def syncs(self, name: str) -> Sequence[Call]:
        """Return each that has ended well: strace has written it down before the server hears of its end."""
        return [each for each in calls(self._traces[name]) if each.name in SYNCING and each.result == 0]


@contextmanager
def traced_services(folder: Path, libraries: Path) -> Iterator[TracedServices]:
    """Start HBase and Kafka in a new folder, with libraries that are there already; they are ended afterwards."""
    servers = TracedServices(folder, libraries)
    try:
        servers.up(*TRACED)
        yield servers
    finally:
        for name in TRACED:
            servers.kill(name)


def _free_ports() -> Ports:
    sets = map(Ports, _SHIFTS)
    return next(ports for ports in sets if all(is_free(port) for name in NAMES for port in ports_of(name, ports)))
