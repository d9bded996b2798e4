"""The rows of a running hub's queues: with a journal, `queues.db` alone has those of the last checkpoint.

Knows no table.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.support.hubs.hub import Hub


def put_down(hub: Hub) -> None:
    """Have everything in `queues.db`, which a hub does for each backup when that begins."""
    with tempfile.TemporaryDirectory() as folder:
        hub.run("backup", str(Path(folder) / "backup"))
