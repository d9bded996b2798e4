"""Calendar windows in UTC: when the one that holds a moment began, and when it ends.

Knows no counts. Hours and days are aligned with midnight, `7d` is the week from Monday, `30d` the calendar month.
"""

from __future__ import annotations

from datetime import UTC, datetime

from iothub_services.quota.grammar import DAY_S

WEEK_S = 7 * DAY_S
MONTH_S = 30 * DAY_S
_FIRST_MONDAY = 4 * DAY_S  # 5 January 1970


def window_at(seconds: int, wall: float) -> tuple[int, int]:
    """Return (start, end) of the window of this length that holds `wall`; all in Unix seconds, `end` is not part of it."""
    if seconds == MONTH_S:
        return _month_at(wall)
    origin = _FIRST_MONDAY if seconds == WEEK_S else 0
    start = origin + int((wall - origin) // seconds) * seconds
    return start, start + seconds


def _month_at(wall: float) -> tuple[int, int]:
    now = datetime.fromtimestamp(wall, UTC)
    start = datetime(now.year, now.month, 1, tzinfo=UTC)
    end = datetime(now.year + now.month // 12, now.month % 12 + 1, 1, tzinfo=UTC)
    return int(start.timestamp()), int(end.timestamp())
