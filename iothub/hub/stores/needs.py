"""What a hub needs of the machine, by its settings, before it opens anything: file descriptors, and room on the disk of its data directory.

`serve`, `serve --check` and `doctor` say the same because they ask here; the limit of connections comes from the same figures.
Knows no store and no server: what they open is a figure.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from iothub.base.errors import ConfigError
from iothub.config.datadir import DataDir
from iothub.config.sections import Config
from iothub.hub.from_settings import listener_infos, plane_limits
from iothub.hub.stores.choices import file_versions
from iothub.net.descriptors import count_open, least_limit
from iothub_services.queues.journal.segments import MOST_READING
from iothub_services.queues.journal.sizes import SMALLEST
from iothub_services.quota.slots import SIZE_BYTES as SLOTS_BYTES

_STANDARD = 3  # standard input, output and error
_PROCESS = 10  # lock, two pollers, a pipe that wakes, two spare ones, usage.map, the local socket and its directory
_OF_A_FILE = 5  # of SQLite: it and its log, each for writing and for reading, and the index of the log
_SQLITE_FILES = 6  # stores, accounts and usage; those on servers are counted as well, which are then not opened
_OF_THE_JOURNAL = MOST_READING + 3  # the segment that is written, the next one, and their folder
_OF_A_SERVER = 32  # connections of all clients to it, and what wakes their threads
_ROOM_OF_A_FILE = (
    64 << 10
)  # of SQLite: the index of its log, and what the start writes into the log; a new one needs it twice
_ROOM_OF_NOTES = 64 << 10  # small files, such as hub.json
_RAISE = "raise it (LimitNOFILE in systemd, `ulimit -n`)"


def own_descriptors(settings: Config) -> int:
    """Return how many file descriptors a hub has open without any client."""
    listeners = len(listener_infos(settings)) + (settings.http.port is not None) + bool(settings.cluster.listen)
    servers = (settings.sql.url_file, settings.redis.addresses, settings.kafka.brokers, settings.cluster.listen)
    gateways = len(settings.hbase.thrift) * (settings.hbase.connections + 1)  # and one that looks whether it answers
    on_servers = sum(map(bool, servers)) * _OF_A_SERVER + gateways
    journal = settings.queues.journal * _OF_THE_JOURNAL
    return _STANDARD + _PROCESS + _SQLITE_FILES * _OF_A_FILE + journal + listeners + on_servers


def require_descriptors(settings: Config, limit: int, count: Callable[[], int] = count_open) -> None:
    """Raise ConfigError if the limit leaves no client a descriptor. Call it before anything is opened: what is open was inherited."""
    try:
        inherited = max(count() - _STANDARD, 0)
    except OSError:  # no descriptor is free to count with
        inherited = limit
    own, wanted = own_descriptors(settings) + inherited, plane_limits(settings).connections
    if limit < (least := least_limit(own + 1)):
        raise ConfigError(
            f"the limit of {limit} file descriptors is too low: with these settings the hub needs at least {least}, "
            f"and {least_limit(own + wanted)} for {wanted} connections; {_RAISE}"
        )


def room_bytes(settings: Config, data_dir: DataDir) -> int:
    """Return how much a start writes at most into the data directory; what it recovers from a damaged store comes on top."""
    files = list(file_versions(settings, data_dir))
    has_journal = settings.queues.journal and data_dir.queues in files
    if settings.sql.url_file is None:
        files.append(data_dir.accounts)
    new = sum(not _size(file) for file in files)
    slots = max(SLOTS_BYTES - _size(data_dir.usage_slots), 0)
    return (len(files) + new) * _ROOM_OF_A_FILE + slots + has_journal * SMALLEST + _ROOM_OF_NOTES


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:  # whoever opens it says why
        return 0
