"""The rows of a running hub's queues: `queues.db` alone has those of the last checkpoint, without what is young in the journal.

Knows no table.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.support.hubs.hub import Hub


def put_down(hub: Hub) -> None:
    """Have the queues' rows in `queues.db` as they are now, which a hub does for each backup when that begins."""
    with tempfile.TemporaryDirectory() as folder:
        hub.run("backup", str(Path(folder) / "backup"))
