"""Calendar windows in UTC."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from iothub_services.quota.calendar import window_at
from iothub_services.quota.grammar import DURABLE_WINDOWS_S

DAY = 86_400


def moment(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("seconds", "start", "end"),
    [
        (3600, "2024-02-29T13:00:00", "2024-02-29T14:00:00"),
        (6 * 3600, "2024-02-29T12:00:00", "2024-02-29T18:00:00"),
        (DAY, "2024-02-29T00:00:00", "2024-03-01T00:00:00"),
        (7 * DAY, "2024-02-26T00:00:00", "2024-03-04T00:00:00"),  # Monday to Monday
        (30 * DAY, "2024-02-01T00:00:00", "2024-03-01T00:00:00"),  # the month
    ],
)
def test_windows_are_aligned_with_the_calendar(seconds: int, start: str, end: str) -> None:
    """A person can say when an allowance begins anew."""
    assert window_at(seconds, moment("2024-02-29T13:45:12")) == (moment(start), moment(end))


def test_month_ends_with_the_year() -> None:
    """December is followed by January."""
    assert window_at(30 * DAY, moment("2024-12-31T23:59:59"))[1] == moment("2025-01-01T00:00:00")


@pytest.mark.parametrize("seconds", DURABLE_WINDOWS_S)
def test_windows_follow_each_other_without_gap(seconds: int) -> None:
    """The end is the next one's start, and not part of this one."""
    start, end = window_at(seconds, moment("2024-05-05T05:05:05"))

    assert window_at(seconds, start) == (start, end)
    assert window_at(seconds, end - 0.001) == (start, end)
    assert window_at(seconds, end)[0] == end
