"""`hub.json` in the data directory: what `iothub status` reads of a hub that starts or serves, also where HTTP is off.

Knows the directory, and no part of the hub.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime

from iothub.base import log
from iothub.base.errors import UnavailableError
from iothub.config.datadir import DataDir

_LOADING = "sessions are being loaded"


class HubFile:
    """On the reactor thread."""

    def __init__(self, data_dir: DataDir, version: str, twin: str, started_at: float) -> None:
        self._data_dir = data_dir
        self._facts = {"pid": os.getpid(), "version": version, "twin": twin, "started": started_at}
        self._http: dict[str, str] = {}
        self._is_ready = False

    def report_last_run(self) -> None:
        """Log it if the last hub here left its file behind: a stop removes it, also after a failure."""
        last, seen = self._data_dir.read_hub(), self._data_dir.last_heartbeat()
        if last is not None:
            log.get(__name__).warning(
                "the last hub did not stop cleanly: it was killed, or the machine went down; its sessions are recovered",
                pid=last.get("pid"),
                last_seen=None if seen is None else datetime.fromtimestamp(seen, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            )

    def note_http(self, addresses: Mapping[str, str]) -> None:
        """HTTP listens; the other listeners open when the hub is ready."""
        self._http = dict(addresses)

    def note_start(self, reason: str) -> None:
        """Say what the start waits for. Nothing depends on it, so a full disk does not end the start."""
        if not self._is_ready:
            with suppress(UnavailableError):
                self._write({**self._http, "starting": reason or _LOADING})

    def note_ready(self, addresses: Mapping[str, str]) -> None:
        """Raises UnavailableError."""
        self._is_ready = True
        self._write(addresses)

    def _write(self, more: Mapping[str, str]) -> None:
        self._data_dir.write_hub({**self._facts, **more})
