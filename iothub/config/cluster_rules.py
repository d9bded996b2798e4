"""What is wrong in settings of links that are valid alone.

Knows no file: it gets where `cluster.listen` is set.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from iothub.config.sections import Config


def mistakes(config: Config, place: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield each mistake: the settings that it follows from, and its text."""
    cluster = config.cluster
    where = f'{place}: cluster.listen = "{cluster.listen}"'
    if config.events.driver == "sqlite":
        yield (
            ("events.driver",),
            f'{where}: this hub\'s stores are files of its own (events.driver = "sqlite"), so no other hub can share them: remove the setting',
        )
    if cluster.listen.startswith("unix:"):
        if cluster.advertise:
            yield (
                ("cluster.advertise",),
                f"{where} is a Unix socket, at which no other address reaches it: remove cluster.advertise",
            )
    elif cluster.insecure and not _is_loopback(cluster.listen):
        yield (
            ("cluster.insecure",),
            f"{where} is not a loopback address, and cluster.insecure = true allows links without TLS there alone: remove it, and make "
            "certificates with `iothub cluster init-ca` and `iothub cluster issue`",
        )


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address.rpartition(":")[0].strip("[]")).is_loopback
