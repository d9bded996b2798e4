"""The usage of a tenant summed by hour, day or in total, in the form in which the command line and the REST API show it.

Knows no log: the hours come from the accounts, where the job `usage` has written them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from iothub.admin.content import time_of

if TYPE_CHECKING:
    from iothub_tenants.accounts.usage_hours import UsageHour

BY: dict[str, Callable[[UsageHour], str]] = {
    "hour": lambda hour: str(time_of(hour.hour_ms)),
    "day": lambda hour: str(time_of(hour.hour_ms))[:10],
    "total": lambda _hour: "total",
}
WEEK_MS = 7 * 24 * 3_600_000


def rows(hours: Iterable[UsageHour], by: str) -> list[dict[str, object]]:
    """Return a row for each period; `by` is one of BY."""
    return [_row(name, list(some)) for name, some in groupby(hours, BY[by])]


def _row(name: str, hours: Sequence[UsageHour]) -> dict[str, object]:
    blocks_in, blocks_out = (sum(hour.blocks_in for hour in hours), sum(hour.blocks_out for hour in hours))
    return {
        "name": name,
        "hours": len(hours),
        "messages_in": sum(hour.messages_in for hour in hours),
        "messages_out": sum(hour.messages_out for hour in hours),
        "equivalents": blocks_in + blocks_out,
        "equivalents_in": blocks_in,
        "equivalents_out": blocks_out,
        "bytes_in": sum(hour.bytes_in for hour in hours),
        "bytes_out": sum(hour.bytes_out for hour in hours),
        "connection_minutes": round(sum(hour.connection_ms for hour in hours) / 60_000, 3),
        "stored_byte_hours": round(sum(hour.stored_byte_s for hour in hours) / 3_600, 3),
        "fanout": sum(hour.fanout for hour in hours),
    }
