"""Retained messages that nobody can read, of all tenants of a hub: the log names each, an alarm the first, which ends when there is none any more.

Knows no store: whoever reads one tells what it could not read, and what is replaced, deleted or readable again.

Theory: such a message may be of a newer program, so it is kept, and every other is served. Each is told once, however many subscribers it is for.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import islice

from iothub.base import log as logging

log = logging.get(__name__)

WORD = "retained_unreadable"  # the alarm's
_SHOWN = 100  # characters of a Topic Name

Alarm = Callable[[str, str], None]  # (word, text); an empty text: the cause is gone


class UnreadableRetained:
    """On the reactor thread. Invariants: the alarm is raised while there are any, and names one of them; each costs its key and two words."""

    def __init__(self, on_alarm: Alarm) -> None:
        self._on_alarm = on_alarm
        self._found: dict[tuple[int, bytes], tuple[str, str]] = {}  # the tenant's name, and why
        self._named: tuple[int, bytes] | None = None

    def __len__(self) -> int:
        return len(self._found)

    def found(self, tenant_id: int, tenant: str, topic: bytes, why: str) -> None:
        """It could not be read."""
        if (tenant_id, topic) in self._found:
            return
        shown = topic[:_SHOWN].decode(errors="replace")
        log.warning("a retained message cannot be read, nobody gets it", tenant=tenant, topic=shown, cause=why)
        self._found[tenant_id, topic] = tenant, sys.intern(why)
        self._name_one()

    def forget(self, tenant_id: int, topic: bytes) -> None:
        """It is replaced, deleted, or readable again."""
        if self._found.pop((tenant_id, topic), None) is not None:
            self._name_one()

    def forget_tenant(self, tenant_id: int) -> None:
        self._found = {key: text for key, text in self._found.items() if key[0] != tenant_id}
        self._name_one()

    def some(self, most: int) -> dict[int, list[bytes]]:
        """Return topics by tenant, those first that were returned longest ago."""
        chosen: dict[int, list[bytes]] = {}
        for key in list(islice(self._found, most)):
            self._found[key] = self._found.pop(key)
            chosen.setdefault(key[0], []).append(key[1])
        return chosen

    def _name_one(self) -> None:
        if self._named in self._found:
            return
        if self._named is not None:
            self._on_alarm(WORD, "")
        self._named = next(iter(self._found), None)
        if self._named is not None:
            self._on_alarm(WORD, self._text(self._named))

    def _text(self, named: tuple[int, bytes]) -> str:
        tenant, why = self._found[named]
        shown = named[1][:_SHOWN].decode(errors="replace")
        return (
            f"retained message {shown!r} of tenant {tenant} cannot be read: {why}; it is kept, and nobody gets it. Upgrade this hub if a "
            f"newer one has written it; `iothub retain delete {tenant} TOPIC` removes it, and what is published to its topic replaces it; "
            f"`iothub retain list {tenant}` marks all of them"
        )
