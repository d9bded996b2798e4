"""The REST API beside a hub hangs: half a minute of probes, then it is killed and started again."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.integration.rest.test_beside_a_hub import children, hub, is_up
from tests.support.hubs.hub import Hub
from tests.support.waiting import until

__all__ = ["hub"]


def test_api_that_hangs_is_killed_and_started_again(hub: Hub, tmp_path: Path) -> None:
    """The alarm stays when it is up again."""
    hub.start()
    until(lambda: is_up(hub), "the API answers", 60)
    (first,) = children(hub)

    os.kill(first, signal.SIGSTOP)
    until(lambda: children(hub) not in ([], [first]) and is_up(hub), "the API is back", 90)

    until(lambda: "api_silent" in hub.run("status", check=False).stdout, "the alarm is raised", 60)
    assert tmp_path in hub.data_dir.parents
