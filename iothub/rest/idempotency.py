"""Answers that are given again: a POST with an `Idempotency-Key` that was seen before is not done twice.

In the memory of this process: after its end a repeated create is refused as a conflict, for what it creates has a name. Answers may hold a secret
that is shown once, so they are written nowhere.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from iothub.rest.problems import Code, ProblemError

KEEP_S = 86_400.0
MOST = 10_000
MOST_BYTES = 16 << 20


@dataclass(slots=True)
class Kept:
    """One answer; without a status it is under way."""

    fingerprint: bytes
    at_s: float
    status: int | None = None
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    body: bytes = field(default=b"", repr=False)


class Answers:
    """Answers by who asked, path and key. Used by the event loop alone.

    Invariant: within MOST and MOST_BYTES; the oldest go first.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._kept: OrderedDict[tuple[str, str, str], Kept] = OrderedDict()
        self._bytes = 0

    def begin(self, name: tuple[str, str, str], body: bytes) -> Kept | None:
        """Return the answer that was given; None: do it now, and say `finish` or `forget`.

        Raises ProblemError: the key was used for another request, or its request is under way.
        """
        self._drop_old()
        fingerprint = hashlib.sha256(body).digest()
        known = self._kept.get(name)
        if known is None:
            self._kept[name] = Kept(fingerprint, self._monotonic())
            return None
        if known.fingerprint != fingerprint:
            raise ProblemError(
                Code.IDEMPOTENCY_KEY_REUSED, "this Idempotency-Key was used for another request: use a new one"
            )
        if known.status is None:
            raise ProblemError(
                Code.IDEMPOTENCY_IN_PROGRESS,
                "the first request with this Idempotency-Key is not finished: try again",
                headers={"Retry-After": "1"},
            )
        return known

    def finish(self, name: tuple[str, str, str], status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        """Keep an answer. What says nothing about the request itself is tried again."""
        kept = self._kept.get(name)
        if kept is None:
            return
        if status >= 500 or status in (401, 408, 429):
            self.forget(name)
            return
        kept.status, kept.headers, kept.body = status, headers, body
        self._bytes += len(body)
        self._drop_old()

    def forget(self, name: tuple[str, str, str]) -> None:
        kept = self._kept.pop(name, None)
        if kept is not None:
            self._bytes -= len(kept.body)

    def _drop_old(self) -> None:
        oldest_s = self._monotonic() - KEEP_S
        while self._kept:
            name, kept = next(iter(self._kept.items()))
            if kept.at_s > oldest_s and len(self._kept) <= MOST and self._bytes <= MOST_BYTES:
                return
            self.forget(name)
