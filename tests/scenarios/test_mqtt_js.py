"""One long story with mqtt.js (story.js), over TCP and WebSocket, in 3.1.1 and 5.0."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.clients.clients import unique
from tests.support.hubs.hub import Hub
from tests.support.waiting import PATIENCE_S

HERE = Path(__file__).parent


@pytest.mark.parametrize("level", [4, 5], ids=["3.1.1", "5.0"])
@pytest.mark.parametrize("transport", ["tcp", "ws"])
def test_a_web_page_and_a_service(hub: Hub, program: Callable[[str], str], transport: str, level: int) -> None:
    """Offline, back, cut in the middle, a Will, a retained state and 5.0's properties: nothing lost, nothing twice, in order."""
    node = program("node")
    assert (HERE / "node_modules" / "mqtt").is_dir(), "mqtt.js is not installed: cd tests/scenarios && npm ci"
    path = "/mqtt" if transport == "ws" else ""
    url = f"{'ws' if transport == 'ws' else 'mqtt'}://127.0.0.1:{hub.ports[transport]}{path}"

    done = subprocess.run(
        [node, str(HERE / "story.js"), url, str(level), unique("page")],
        text=True,
        capture_output=True,
        check=False,
        timeout=PATIENCE_S,
    )

    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    numbers = [str(number) for number in range(60)]
    assert seen["granted"] == [2]
    assert seen["sessionPresent"] is True
    assert seen["missed"] == numbers[:30]
    assert seen["all"] == numbers
    assert (seen["will"], seen["retained"], seen["surplus"]) == ("gone", ["gone", True], 0)
    if level == 5:
        assert seen["properties"] == {
            "contentType": "text/plain",
            "responseTopic": "reply",
            "correlationData": "42",
            "userProperties": {"b": ["1", "2"]},
        }
