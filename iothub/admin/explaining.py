"""The verdict of an explanation, out of the steps that each hub has reported; and what is asked of the hubs for it.

Knows no transport and decides nothing: each hub did.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

from iothub.admin.hub_rows import AnyJson, Row
from iothub.base.errors import ConfigError
from iothub.records.admin_commands import Verb

LISTENERS = {"tcp": False, "tls": True, "ws": False, "wss": True}
"""The kinds of listeners, and whether they can ask for a client's certificate."""

MOST_BYTES = 268_435_455
"""The largest Remaining Length (§2.1.4)."""

_FAILED = "fail"


@dataclass(frozen=True, slots=True)
class Asked:
    """A request to every hub."""

    verb: Verb
    argument: Row


def connect_request(device: str, client_id: str | None, address: str, listener: str, *, is_persistent: bool) -> Asked:
    """`client_id` None: the device's name, as most clients have it; empty: the hub assigns one. Raises ConfigError: it is no address."""
    try:
        ipaddress.ip_address(address)
    except ValueError:
        raise ConfigError(f"expected an IP address such as 192.0.2.7; got {address!r}") from None
    return Asked(
        Verb.EXPLAIN_CONNECT,
        {
            "device": device,
            "client_id": device if client_id is None else client_id,
            "address": address,
            "has_certificate": LISTENERS[listener],
            "is_persistent": is_persistent,
        },
    )


def publish_request(device: str, client_id: str | None, topic: str, qos: int, size: int, *, is_retained: bool) -> Asked:
    """Raises ConfigError: no packet can have a payload of this size."""
    if size > MOST_BYTES:
        raise ConfigError(f"expected a payload of at most {MOST_BYTES} bytes, the most that MQTT can send; got {size}")
    return Asked(
        Verb.EXPLAIN_PUBLISH,
        {
            "device": device,
            "client_id": device if client_id is None else client_id,
            "topic": topic,
            "qos": qos,
            "size": size,
            "is_retained": is_retained,
        },
    )


def subscribe_request(device: str, client_id: str | None, topic_filter: str, qos: int) -> Asked:
    client_id = device if client_id is None else client_id
    return Asked(Verb.EXPLAIN_SUBSCRIBE, {"device": device, "client_id": client_id, "filter": topic_filter, "qos": qos})


def verdict_of(reported: Sequence[AnyJson]) -> Row:
    """Return whether it is allowed at every hub, the step that decides, and the steps; hubs that report the same ones are one entry.

    `deciding`: of a hub that refuses; None: all that can be tested passes.
    """
    by_node: dict[int, list[Row]] = {}
    for row in reported:
        by_node.setdefault(row["node"], []).append({name: row[name] for name in ("step", "outcome", "reason", "rule")})
    nodes_of: list[tuple[list[int], list[Row]]] = []
    for node, steps in sorted(by_node.items()):
        same = next((nodes for nodes, known in nodes_of if known == steps), None)
        if same is None:
            nodes_of.append(([node], steps))
        else:
            same.append(node)
    deciding = next((steps[-1] for _, steps in nodes_of if steps[-1]["outcome"] == _FAILED), None)
    hubs = [
        {"nodes": nodes, "is_allowed": steps[-1]["outcome"] != _FAILED, "steps": steps} for nodes, steps in nodes_of
    ]
    return {"is_allowed": bool(hubs) and deciding is None, "deciding": deciding, "hubs": hubs}
