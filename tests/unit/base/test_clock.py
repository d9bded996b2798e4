"""Which of the machine's clocks is asked."""

from __future__ import annotations

import time

import pytest

from iothub.base.clock import SystemClock


def test_evidence_is_timed_by_a_clock_that_goes_on_while_the_machine_is_suspended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """CLOCK_MONOTONIC stands still then: a peer that slept for an hour would take itself for fresh."""
    asked = []

    def clock_gettime(clock: int) -> float:
        asked.append(clock)
        return 12.5

    monkeypatch.setattr(time, "clock_gettime", clock_gettime)

    assert SystemClock().boottime() == 12.5
    assert asked == [time.CLOCK_BOOTTIME]
