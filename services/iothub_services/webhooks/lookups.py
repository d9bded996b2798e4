"""Looks up names for an event loop, each in a daemon thread: `getaddrinfo` cannot be stopped, so neither others nor the end wait for it.

Invariant: of one tenant at most `AT_ONCE` look-ups run, those that nobody waits for any more among them.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading

AT_ONCE = 4


class Lookups:
    """Of one event loop."""

    def __init__(self) -> None:
        self._free: dict[int, asyncio.Semaphore] = {}

    async def addresses(self, tenant_id: int, host: str, port: int) -> list[str]:
        """Return the addresses of a host. The caller limits the time. Raises OSError, UnicodeError."""
        free = self._free.setdefault(tenant_id, asyncio.Semaphore(AT_ONCE))
        await free.acquire()
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[list[str]] = loop.create_future()

        def end(found: list[str], error: Exception | None) -> None:
            free.release()
            if answer.done():  # its time was over
                return
            if error is None:
                answer.set_result(found)
            else:
                answer.set_exception(error)

        def look_up() -> None:
            found: list[str] = []
            failed: Exception | None = None
            try:
                entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
                found = list(dict.fromkeys(str(entry[4][0]) for entry in entries))
            except (OSError, UnicodeError) as error:
                failed = error
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(end, found, failed)

        try:
            threading.Thread(target=look_up, name="webhook-lookup", daemon=True).start()
        except RuntimeError as error:  # no more threads
            free.release()
            raise OSError(str(error)) from None
        return await answer
