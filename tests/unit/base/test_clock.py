"""Which of the machine's clocks is asked."""

from __future__ import annotations

import time

from iothub.base.clock import SystemClock


def test_evidence_is_timed_by_a_clock_that_goes_on_while_the_machine_is_suspended() -> None:
    """CLOCK_MONOTONIC stands still then: a peer that slept for an hour would take itself for fresh."""
    asks = SystemClock.boottime

    assert (asks.func, asks.args) == (time.clock_gettime, (time.CLOCK_BOOTTIME,))
    assert asks() <= SystemClock().boottime() <= asks()
