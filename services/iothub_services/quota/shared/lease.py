"""This hub's place in the ledger: its name there, its lease, and the scripts that it runs under them, numbered.

Knows no count and no rate. A name is used until anything goes wrong; then the hub comes back under another one, and what became of the last
call under the old one need not be known.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from iothub.base.clock import Clock
from iothub.base.errors import BackendError
from iothub_services.quota.shared import scripts
from iothub_services.quota.shared.keys import Keys
from iothub_services.redis.calls import Argument, Call, Reply, Script, script_call

Caller = Callable[[Call], Awaitable[Reply]]
"""Sends calls in the order in which they are given. Raises BackendError."""


class LapsedError(BackendError):
    """The ledger does not know this hub, or not all that it has said: it must come back under another name.

    `is_past`: it was said under a name that is not used any more.
    """

    def __init__(self, message: str, *, is_past: bool = False) -> None:
        super().__init__(message, retryable=True)
        self.is_past = is_past


class Lease:
    """On the reactor thread. Invariant: `name` is "" until `enter` has succeeded, and again from `lose` on."""

    def __init__(self, call: Caller, keys: Keys, place: str, clock: Clock) -> None:
        """`place`: a unique name of this hub's data directory."""
        self._call = call
        self.keys = keys
        self._place = place
        self._clock = clock
        self._number = 0
        self._last_name = 0
        self._was_there = False
        self.name = ""

    @property
    def place(self) -> str:
        return self._place

    async def enter(self) -> int:
        """Take a new name; return for how many ms others may still come back. Raises BackendError."""
        self._last_name = max(int(self._clock.wall() * 1000), self._last_name + 1)
        self._number = 0
        name = f"{self._place}.{self._last_name}"
        keys = [self.keys.hubs, self.keys.state]
        reply = await self._call(
            script_call(scripts.ENTER, keys, name, 0, scripts.LEASE_MS, scripts.SETTLE_MS, int(self._was_there))
        )
        self.name, self._was_there = name, True
        return reply if isinstance(reply, int) else 0

    async def claim(self) -> None:
        """What this hub held under other names is declared: let those go. Raises BackendError."""
        await self.ask(scripts.CLAIM, (), f"{self._place}.")

    async def leave(self) -> None:
        """Give everything back. Raises BackendError."""
        name, self.name = self.name, ""
        if name:
            keys = [self.keys.hubs, self.keys.state]
            await self._call(script_call(scripts.LEAVE, keys, name, 0, scripts.LEASE_MS))

    def lose(self) -> None:
        self.name = ""

    async def ask(self, script: Script, keys: Sequence[str], *arguments: Argument) -> list[Reply]:
        """Run a script as this hub; return what it answers. Raises LapsedError, BackendError."""
        name = self.name
        if not name:
            raise LapsedError("this hub is not registered in the quota ledger", is_past=True)
        self._number += 1
        all_keys = [self.keys.hubs, self.keys.state, *keys]
        reply = await self._call(script_call(script, all_keys, name, self._number, scripts.LEASE_MS, *arguments))
        answer: list[Reply] = reply if isinstance(reply, list) else [reply]
        if name != self.name:
            raise LapsedError("this hub is registered in the quota ledger under a new name", is_past=True)
        if answer and answer[0] == scripts.LAPSED:
            raise LapsedError("the quota ledger no longer knows this hub")
        return answer
