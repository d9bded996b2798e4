"""Sessions of the dashboard: a cookie that no script can read, and behind it, in this process, the key that was given at the login.

Knows no page. A session ends after a while without use, with this process, and when the API refuses its key.
"""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

IDLE_S = 12 * 3600.0
MOST = 10_000


@dataclass(slots=True)
class _Session:
    key: str = field(repr=False)
    used_s: float


class Sessions:
    """Keys by cookie. Used by the event loop alone.

    Invariant: at most MOST, in the order of their last use; the longest unused go first.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._found: OrderedDict[str, _Session] = OrderedDict()

    def begin(self, key: str) -> str:
        """Return the value of a new cookie."""
        self._drop_old()
        if len(self._found) >= MOST:
            self._found.popitem(last=False)
        token = secrets.token_urlsafe(32)
        self._found[token] = _Session(key, self._monotonic())
        return token

    def end(self, cookies: Mapping[str, str], name: str) -> None:
        self._found.pop(cookies.get(name, ""), None)

    def headers(self, cookies: Mapping[str, str], name: str) -> dict[str, str]:
        """Return what a request of this session has; nothing: there is no session."""
        self._drop_old()
        token = cookies.get(name, "")
        found = self._found.get(token)
        if found is None:
            return {}
        found.used_s = self._monotonic()
        self._found.move_to_end(token)
        return {"Authorization": f"Bearer {found.key}"}

    def _drop_old(self) -> None:
        oldest_s = self._monotonic() - IDLE_S
        while self._found:
            token, found = next(iter(self._found.items()))
            if found.used_s > oldest_s:
                return
            del self._found[token]


def cookie_name(scheme: str) -> str:
    """Return the name of the cookie: over https one that only this host, over https, can set."""
    return "__Host-iothub" if scheme == "https" else "iothub"
