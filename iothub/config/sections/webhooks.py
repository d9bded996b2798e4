"""Webhooks: where they may lead, and how long their events are kept."""

from __future__ import annotations

from dataclasses import dataclass

from iothub.base.units import Network
from iothub.config import value_types
from iothub.config.sections.key import Reload, key


@dataclass(frozen=True, slots=True)
class Webhooks:
    """Delivery of events to webhooks (guide: Webhooks)."""

    allow_networks: tuple[Network, ...] = key(
        value_types.networks,
        (),
        "Private networks, and the host itself, that webhooks may lead to. Whoever may make a webhook can then send requests there.",
        Reload.NOW,
    )
    timeout_s: float = key(
        value_types.duration(1, 60),
        10.0,
        "Maximum time of an attempt, from the look-up of the name to the status.",
        Reload.NOW,
    )
    give_up_s: float = key(
        value_types.duration(60, 30 * 86400),
        86400.0,
        "How long an event is tried; after it the event is dropped, counted and alarmed.",
        Reload.NOW,
    )
    queue_bytes: int = key(
        value_types.size(64 << 10, 1 << 30),
        8 << 20,
        "Limit for the events that wait for one webhook, at each hub and worker; further ones are dropped, counted and alarmed.",
        Reload.NOW,
    )
