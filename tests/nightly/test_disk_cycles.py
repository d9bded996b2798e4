"""The disk of a running hub fills up and is freed, ten times."""

from __future__ import annotations

from pathlib import Path

from tests.support.clients.backlog import Backlog, make_sleeper, wake_sleeper
from tests.support.hubs.datadirs import fresh_hub
from tests.support.hubs.wrapped import SmallDiskHub

CYCLES = 10


def test_ten_full_disks_lose_nothing_acknowledged(tmp_path: Path) -> None:
    """Every time publishers wait, every time the hub recovers within 30 s without a restart; a kill at the end finds everything."""
    plain = fresh_hub(tmp_path, alarms__disk_free="0")
    hub = SmallDiskHub(plain.data_dir, settings=plain.settings, disk_kib=16 << 10)
    hub.start()
    try:
        make_sleeper(hub.ports["tcp"])
        publisher = Backlog(hub.ports["tcp"])
        for cycle in range(CYCLES):
            publisher.deliver(30)
            hub.fill(leave_kib=16 * cycle)
            publisher.until_stuck()
            hub.make_room()
            assert publisher.take(30), f"cycle {cycle}: not acknowledged within 30 s of free space"
        assert publisher.acknowledged == list(range(1, publisher.sent + 1))
        assert wake_sleeper(hub.ports["tcp"], publisher.sent) == publisher.acknowledged
        publisher.client.close()
        assert "Traceback" not in hub.log
    finally:
        hub.close()
