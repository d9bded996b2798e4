"""The command `iothub` with a dashboard that has an hour behind it: its charts have the same lines in every picture.

Knows no page: it fills the sampler, and lets nothing change it.
"""

from __future__ import annotations

import math
import time
from array import array
from typing import Any

from iothub.cli.entry import main
from iothub.dashboard import app
from iothub.dashboard.sampler import EVERY_S, FIELDS, KEPT, TENANTS_EVERY_S, TENANTS_KEPT, Sampler, TenantSample, Usage

TENANTS = {"acme": 1.0, "harbour": 0.55, "northwind": 0.3, "orchard": 0.12}  # how much of the whole each does
LIMITS = (("acme", "connections", 1_912.0, 2_000.0), ("harbour", "queued_bytes", 53e6, 64e6))
_WHOLE = {
    "connections": 1_912.0,
    "received": 840.0,
    "delivered": 2_300.0,
    "dropped": 0.4,
    "bytes_in": 190e3,
    "bytes_out": 520e3,
    "queued": 1_240.0,
}


def wave(step: int, period: int, depth: float) -> float:
    """Return about 1: a slow wave with a smaller, faster one on it."""
    return 1 + depth * (math.sin(step * 2 * math.pi / period) + 0.4 * math.sin(step * 2 * math.pi / (period / 4.3)))


class Pictured(Sampler):
    """Samples that were made up, and stay."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        now = time.time()
        self.problem = ""
        self.points.extend((now - (KEPT - step) * EVERY_S, _point(step)) for step in range(KEPT))
        places = {name: place for place, name in enumerate(TENANTS)}
        totals = [[0.0] * len(FIELDS) for _ in TENANTS]
        for step in range(TENANTS_KEPT):
            for number, share in enumerate(TENANTS.values()):
                for place, field in enumerate(FIELDS):
                    value = _WHOLE[field] * share * wave(step + 9 * number, 60, 0.12)
                    is_gauge = field in ("connections", "queued")
                    totals[number][place] = (
                        round(value) if is_gauge else totals[number][place] + value * TENANTS_EVERY_S
                    )
            values = array("d", [value for row in totals for value in row])
            self.tenants.append(TenantSample(now - (TENANTS_KEPT - step) * TENANTS_EVERY_S, places, values))
        for tenant, quota, used, limit in LIMITS:
            self.usages.setdefault(tenant, []).append(Usage(tenant, quota, used, limit))

    async def sample(self) -> None:
        """Keep what is there."""

    async def sample_tenants(self) -> None:
        """Keep what is there."""


def _point(step: int) -> dict[str, float | None]:
    whole = sum(TENANTS.values())
    made: dict[str, float | None] = {
        name: value * whole * wave(step, 150, 0.12) for name, value in _WHOLE.items() if name != "connections"
    }
    made["connections"] = float(round(_WHOLE["connections"] * whole * wave(step, 400, 0.02)))
    made |= {"sessions": 4_320.0 + step // 60, "offline": 540.0 - step // 90, "queued_bytes": 310e3, "overload": 0.0}
    made |= {"connects": 2 * wave(step, 90, 0.3), "disconnects": 1.8 * wave(step + 20, 90, 0.3)}
    made |= {"commit_p50": 0.0016 * wave(step, 70, 0.1), "commit_p99": 0.0061 * wave(step, 40, 0.2)}
    made |= {"tick_p99": 0.0034 * wave(step, 50, 0.2)}
    made |= {
        "dropped:queue_full": 0.5 * max(wave(step, 80, 0.9) - 0.6, 0),
        "dropped:expired": 0.2 * wave(step, 120, 0.3),
    }
    return made


if __name__ == "__main__":
    setattr(app, "Sampler", Pictured)  # noqa: B010  # in place of the one that reads a hub
    main()
