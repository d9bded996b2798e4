"""What is wrong in settings of several workers that are valid alone.

Knows no file: it gets where each setting is set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from iothub.config.sections import Config

_MOST_NODES = 65535
_MOST_PORTS = 65535
_NAME_CHARS = 60  # of a node with workers: `-w64` comes after it

Where = Callable[[str], str | None]
"""Returns where a setting is set; None: it is not, and has its default."""


def mistakes(config: Config, where: Where) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield each mistake: the settings that it follows from, and its text."""
    if config.node.workers == 1:
        return
    yield from _of_nodes(config, where)
    yield from _of_ports(config, where)
    yield from _of_links(config, where)
    if config.quota.ledger == "local" and (place := where("quota.ledger")):
        yield (
            ("quota.ledger",),
            f'{place}: quota.ledger = "local": each of {config.node.workers} workers would grant the full limit: remove the setting, and the '
            "workers count together",
        )


def _of_nodes(config: Config, where: Where) -> Iterator[tuple[tuple[str, ...], str]]:
    node = config.node
    if node.number + node.workers - 1 > _MOST_NODES:
        yield (
            ("node.number", "node.workers"),
            f"{where('node.number')}: node.number = {node.number}: {node.workers} workers need the numbers {node.number} to "
            f"{node.number + node.workers - 1}, and the last one is {_MOST_NODES}: choose a lower number",
        )
    if len(node.name) > _NAME_CHARS:
        yield (
            ("node.name",),
            f'{where("node.name")}: node.name = "{node.name}": workers add -wK to it, so it has at most {_NAME_CHARS} characters',
        )


def _of_ports(config: Config, where: Where) -> Iterator[tuple[tuple[str, ...], str]]:
    ports = {f"listeners.{name}.port": listener.port for name, listener in config.listeners.by_name().items()}
    for name, port in {**ports, "http.port": config.http.port}.items():
        if port == 0:
            yield (
                (name,),
                f"{where(name)}: {name} = 0: the system would choose another port for each worker: choose a port",
            )


def _of_links(config: Config, where: Where) -> Iterator[tuple[tuple[str, ...], str]]:
    cluster, workers = config.cluster, config.node.workers
    if not cluster.listen:
        return
    place = f'{where("cluster.listen")}: cluster.listen = "{cluster.listen}"'
    if cluster.listen.startswith("unix:"):
        yield ("cluster.listen",), f"{place}: each worker has a socket of its own in the data directory: remove it"
        return
    for name, address in (("cluster.listen", cluster.listen), ("cluster.advertise", cluster.advertise)):
        port = int(address.rpartition(":")[2] or 0)
        if port + workers - 1 > _MOST_PORTS:
            yield (
                (name, "node.workers"),
                f'{where(name)}: {name} = "{address}": {workers} workers need the ports {port} to {port + workers - 1}, and the last one is '
                f"{_MOST_PORTS}: choose a lower port",
            )
    yield from _of_taken_ports(config, place)
    for name, file in (
        ("cluster.certificate_file", cluster.certificate_file),
        ("cluster.key_file", cluster.key_file),
    ):
        if file is not None:
            yield (
                (name,),
                f"{where(name)}: {name} is the file of one node, and each worker is a node: remove it, and make the certificate of each "
                "with `iothub cluster issue NODE`",
            )


def _of_taken_ports(config: Config, place: str) -> Iterator[tuple[tuple[str, ...], str]]:
    first = int(config.cluster.listen.rpartition(":")[2])
    last = first + config.node.workers - 1
    taken = {f"listeners.{name}.port": each.port for name, each in config.listeners.by_name().items()}
    for name, port in {**taken, "http.port": config.http.port}.items():
        if port and first < port <= last:
            yield (
                (name, "node.workers"),
                f"{place}: the workers' links need the ports {first} to {last}, and {name} is {port}: choose another port",
            )
