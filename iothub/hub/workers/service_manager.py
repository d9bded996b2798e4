"""What a hub tells the service manager that started it: ready, reloading, stopping, alive - the protocol of sd_notify(3), one datagram each.

Knows no unit. Without `NOTIFY_SOCKET` in the environment nobody listens, and nothing is sent.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping

from iothub.base import log

_BEATS = 3  # within the time after which the manager takes a silent process for dead

Later = Callable[[float, Callable[[], None]], object]


class ServiceManager:
    """One process and its manager. Sending never waits and never fails: a hub works on without its manager.

    `watchdog_s`: after how long a silence the manager kills this process; 0: never.
    """

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        """`environment`: of this process; None: somebody else speaks for it."""
        given = environment or {}
        path = given.get("NOTIFY_SOCKET", "")
        self._address = "\0" + path[1:] if path.startswith("@") else path
        is_for_us = given.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        usec = given.get("WATCHDOG_USEC", "")
        self.watchdog_s = int(usec) / 1e6 if self._address and is_for_us and usec.isdecimal() else 0.0
        self._log = log.get(__name__)

    def ready(self, status: str) -> None:
        """The start or a reload has ended. `status`: what `systemctl status` shows."""
        self._send("READY=1", f"STATUS={status}")

    def reloading(self) -> None:
        """Until `ready`. The time is what `Type=notify-reload` of systemd 253 wants beside it."""
        self._send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}", "STATUS=reloading")

    def stopping(self) -> None:
        self._send("STOPPING=1", "STATUS=stopping")

    def keep_alive(self, later: Later) -> None:
        """Report as long as `later` calls back, in time for the watchdog: a reactor that stands still reports nothing, and is started again."""
        if self.watchdog_s:
            self._send("WATCHDOG=1")
            later(self.watchdog_s / _BEATS, lambda: self.keep_alive(later))

    def _send(self, *lines: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(
                socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
            ) as sender:
                sender.sendto("\n".join(lines).encode(), self._address)
        except OSError as error:
            self._log.warning("could not notify the service manager", message=lines[0], cause=str(error))
