"""Whether Redis keeps what it is given: its settings, looked at now and then, and a word that goes when everything goes.

Knows no queue.

Theory: a server that was started again may have other settings, and another server may have taken its place; so both questions are asked again
every minute and behind every failure, the word every few seconds, and whenever a queue is missing. The word is random and put only where there
is none: another word means that everything was removed meanwhile and another hub has found that first.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import cast

from iothub.base.clock import Clock
from iothub.base.errors import BackendError
from iothub_services.queues.redis.durability import faults, questions
from iothub_services.queues.redis.names import Names
from iothub_services.queues.redis.sending import Sender
from iothub_services.redis.calls import command

LIFE_S = 5.0
SETTINGS_S = 60.0

_LIFE_BYTES = 16


class Watch:
    """In the writing thread, but for `begin`."""

    def __init__(
        self,
        sender: Sender,
        names: Names,
        clock: Clock,
        on_lost: Callable[[str], None],
        *,
        is_memory_enough: bool,
    ) -> None:
        self._sender = sender
        self._names = names
        self._clock = clock
        self._on_lost = on_lost
        self._is_memory_enough = is_memory_enough
        self._life = b""
        self._life_at = self._settings_at = 0.0
        self._is_due = False  # a queue is missing

    def begin(self) -> None:
        """Look at the settings, and put the word if there is none. Raises BackendError."""
        self._look_at_settings()
        self._life = self._put_life()
        self._life_at = self._clock.monotonic()

    def require_kept(self) -> None:
        """Look at the settings. Raises BackendError: Redis cannot be asked, or does not keep what it is given."""
        self._look_at_settings()

    def has_life(self) -> bool:
        """Is the word there? Raises BackendError."""
        return self._sender.read_one(command("GET", self._names.life)) is not None

    def check_if_due(self) -> None:
        """Raises BackendError: Redis cannot be asked, or does not keep what it is given."""
        if self._sender.has_failed:
            self.check()
            self._sender.has_failed = False
        now = self._clock.monotonic()
        if now >= self._settings_at + SETTINGS_S:
            self._look_at_settings()
        if self._is_due or now >= self._life_at + LIFE_S:
            self._look_at_life()

    def hurry(self) -> None:
        """Check the word with the next `check_if_due`: a queue is missing."""
        self._is_due = True

    def check(self) -> None:
        """Check both now. Raises as `check_if_due`."""
        self._look_at_settings()
        self._look_at_life()

    # --- inside

    def _look_at_settings(self) -> None:
        self._settings_at = -SETTINGS_S  # until it is known
        found = faults(self._sender.ask(questions()), is_memory_enough=self._is_memory_enough)
        if found:
            raise BackendError(f"Redis does not keep queues safely: {'; '.join(found)}", retryable=True)
        self._settings_at = self._clock.monotonic()

    def _look_at_life(self) -> None:
        found = self._sender.read_one(command("GET", self._names.life))
        if found != self._life:
            self._on_lost("Redis was emptied (FLUSHALL, FLUSHDB, or a data directory that was lost or replaced)")
            self._life = self._put_life()
        self._life_at = self._clock.monotonic()
        self._is_due = False

    def _put_life(self) -> bytes:
        if not self.has_life():  # a server that is full refuses a SET that changes nothing, too
            self._sender.write_one(command("SET", self._names.life, secrets.token_hex(_LIFE_BYTES), "NX"))
        return cast("bytes", self._sender.read_one(command("GET", self._names.life)))
