"""What a form would send, checked by the API before it may be sent: what is sent is what was checked.

Knows neither a form nor a path. Answers come in while somebody goes on typing: one about something else than is asked now is passed over.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from iothub.dashboard.api import Json, RefusalError

Asked = TypeVar("Asked")

Send = Callable[[Asked, bool], Awaitable[Json]]
"""`send(asked, is_dry_run)`. Raises RefusalError."""


class Checked(Generic[Asked]):
    """`allow(is_allowed)` says whether it may be sent.

    Invariant: `_is_checked`: the API has allowed what is asked now.
    """

    def __init__(self, send: Send[Asked], allow: Callable[[bool], object]) -> None:
        self._send = send
        self._allow = allow
        self._asked: Asked | None = None
        self._is_checked = False

    def forget(self) -> None:
        """Something else is in the form now."""
        self._ask(None)

    async def check(self, asked: Asked) -> Json | None:
        """Return what would be done; None: something else is asked meanwhile. Raises RefusalError."""
        self._ask(asked)
        try:
            found = await self._send(asked, True)
        except RefusalError:
            if self._asked is not asked:
                return None
            raise
        if self._asked is not asked:
            return None
        self._is_checked = True
        self._allow(True)
        return found

    async def do(self) -> tuple[Asked, Json] | None:
        """Do what was checked, once; None: there is nothing. Raises RefusalError."""
        asked, is_checked = self._asked, self._is_checked
        if asked is None or not is_checked:
            return None
        self.forget()
        return asked, await self._send(asked, False)

    def _ask(self, asked: Asked | None) -> None:
        self._asked, self._is_checked = asked, False
        self._allow(False)
