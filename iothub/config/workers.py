"""The settings of one of several workers, made from those of the whole.

Opens nothing. A worker is a whole hub with a node number, a name and an address of links of its own; all else is as the configuration has it.
"""

from __future__ import annotations

from dataclasses import replace

from iothub.base.errors import ConfigError
from iothub.config.datadir import DataDir
from iothub.config.sections import Cluster, Config

_ADDRESS_CHARS = 255  # of a hub, in the accounts


def worker_name(settings: Config, worker: int) -> str:
    """`settings`: those of the whole."""
    return f"{settings.node.name}-w{worker}"


def node_numbers(settings: Config, data_dir: DataDir) -> range:
    """Return the node numbers of a data directory's hub, or of its workers. `settings`, `data_dir`: those of the whole, or of one worker."""
    first = settings.node.number - max(data_dir.worker - 1, 0)
    return range(first, first + settings.node.workers)


def of_worker(settings: Config, data_dir: DataDir) -> Config:
    """Return the settings of a worker. `settings`: those of the whole; `data_dir`: the worker's. Raises ConfigError: the path is too long."""
    node = replace(
        settings.node,
        number=settings.node.number + data_dir.worker - 1,
        name=worker_name(settings, data_dir.worker),
    )
    return replace(settings, node=node, cluster=_links_of(settings.cluster, data_dir))


def _links_of(cluster: Cluster, data_dir: DataDir) -> Cluster:
    if cluster.listen:
        listen, advertise = (
            _with_port(address, data_dir.worker - 1) for address in (cluster.listen, cluster.advertise)
        )
        return replace(cluster, listen=listen, advertise=advertise)
    listen = f"unix:{data_dir.run.absolute() / f'peer-{data_dir.worker}.sock'}"
    if len(listen) > _ADDRESS_CHARS:
        raise ConfigError(
            f"{data_dir.path.absolute()}: the path is too long for several workers: their sockets have at most {_ADDRESS_CHARS} characters; "
            "use another --data-dir"
        )
    return replace(cluster, listen=listen)


def _with_port(address: str, more: int) -> str:
    host, _, port = address.rpartition(":")
    return f"{host}:{int(port) + more}" if port else ""
