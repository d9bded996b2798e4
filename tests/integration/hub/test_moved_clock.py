"""Somebody sets the clock of the machine: what waits goes on by a clock that nobody sets."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.support.clients.packets import PUBLISH
from tests.support.clients.raw import RawClient
from tests.support.hubs.datadirs import fresh_hub
from tests.support.hubs.moved_clock import MovedClock

HOUR_S = 3600
KEEP_ALIVE_S = 1


@pytest.mark.parametrize("workers", [1, 2])
def test_hub_goes_on_when_the_clock_is_set_back(tmp_path: Path, workers: int) -> None:
    """Timers run (a silent client is closed by its Keep Alive), clients come, and a message is stored, acknowledged and delivered."""
    clock = MovedClock(tmp_path)
    clock.move_to(HOUR_S)
    hub = fresh_hub(tmp_path, node__workers=str(workers))
    clock.put_before(hub)
    hub.start()
    try:
        assert json.loads((hub.data_dir / "hub.json").read_text())["started"] > time.time() + HOUR_S / 2
        with RawClient(hub.ports["tcp"]) as reader:
            reader.connect("reader", "acme/dev1", clean=False)
            reader.subscribe(("to/reader", 1))
        clock.move_to(-HOUR_S)

        with RawClient(hub.ports["tcp"]) as silent, RawClient(hub.ports["tcp"]) as publisher:
            begun = time.monotonic()
            silent.connect("silent", "acme/dev1", keep_alive=KEEP_ALIVE_S)
            publisher.connect("publisher", "acme/dev2")
            publisher.publish("to/reader", b"stored", 1, 1)
            silent.expect_closed()
            assert time.monotonic() - begun > KEEP_ALIVE_S
        with RawClient(hub.ports["tcp"]) as reader:
            assert reader.connect("reader", "acme/dev1", clean=False).session_present
            assert reader.expect(PUBLISH).payload == b"stored"
    finally:
        assert hub.stop() == 0
