"""Calls of the queues on their way to Redis: in parts of a bounded size, and what is written is on the disk when the answer is given.

Knows no key but one, and no script.

Theory: what was not answered may be done, so its outcome is an error that says so; what was behind it was not sent, and says that it was not.
Where Redis syncs its file before it answers, an answer is enough. Where it does not, it is asked (`WAITAOF`) behind the batch: a write of this
connection, however small, stands in the file behind everything that any connection has written before, so when that one is on the disk all of
it is (!).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from iothub.errors import BackendError
from iothub_services.redis.calls import Call, RedisUnavailableError, Reply, command

Ask = Callable[[Sequence[Call]], list[Reply]]
"""Does a pipeline and returns the answer, or the error, to each. Raises BackendError: none was answered."""

PART_BYTES = 1 << 20  # of one pipeline: Redis holds all answers until it is read, and a slow disk has its time for each
PART_CALLS = 512
SYNC_MS = 1_000  # so long Redis may take to sync


class Sender:
    """Sends for one thread at a time.

    Args:
        write: The connection of the writing thread.
        read: One for reads, which never wait for a commit.

    `must_ask`: answers do not say that what was written is on the disk; it is asked for.
    """

    def __init__(self, write: Ask, read: Ask, probe: bytes) -> None:
        self._write = write
        self._read = read
        self._probe = probe
        self.must_ask = False

    def write(self, calls: Sequence[Call]) -> list[Reply]:
        """Return what became of each; nothing is raised but what is our own mistake."""
        outcomes: list[Reply] = []
        for part in _parts(calls):
            try:
                outcomes += self._write(part)
            except BackendError as error:
                outcomes += [error] * len(part)
            if isinstance(outcomes[-1], BackendError) and len(outcomes) < len(calls):
                why = RedisUnavailableError(str(outcomes[-1]))
                return self._synced([*outcomes, *[why] * (len(calls) - len(outcomes))])
        return self._synced(outcomes)

    def read(self, calls: Sequence[Call]) -> list[Reply]:
        """Return all answers. Raises BackendError."""
        return require([outcome for part in _parts(calls) for outcome in self._read(part)])

    def read_one(self, call: Call) -> Reply:
        return self.read((call,))[0]

    def write_one(self, call: Call) -> Reply:
        return require(self.write((call,)))[0]

    def probe(self) -> None:
        """Write something small. Raises BackendError: Redis takes no writes now."""
        require(self.write((command("SET", self._probe, 1),)))

    def _synced(self, outcomes: list[Reply]) -> list[Reply]:
        if not self.must_ask or not outcomes or all(isinstance(outcome, BackendError) for outcome in outcomes):
            return outcomes
        try:
            synced = self._write((command("SET", self._probe, 1), command("WAITAOF", 1, 0, SYNC_MS)))
            _require_synced(synced)
        except BackendError as error:
            unsynced = RedisUnavailableError(str(error), is_written=True)
            return [outcome if isinstance(outcome, BackendError) else unsynced for outcome in outcomes]
        return outcomes


def require(outcomes: Sequence[Reply]) -> list[Reply]:
    """Return all answers. Raises BackendError: of several errors one that will not pass by itself."""
    errors = [outcome for outcome in outcomes if isinstance(outcome, BackendError)]
    if not errors:
        return list(outcomes)
    worst = min(errors, key=lambda error: error.retryable)
    is_written = len(errors) < len(outcomes) or any(error.is_written for error in errors)
    raise BackendError(str(worst), retryable=worst.retryable, is_written=is_written)


def _require_synced(outcomes: Sequence[Reply]) -> None:
    synced = require(outcomes)[-1]
    if not (isinstance(synced, list) and synced and isinstance(synced[0], int) and synced[0] >= 1):
        raise RedisUnavailableError(
            f"Redis has not synced its append-only file within {SYNC_MS} ms (WAITAOF says {synced!r})"
        )


def _parts(calls: Sequence[Call]) -> Iterator[list[Call]]:
    """Yield what one pipeline takes."""
    part: list[Call] = []
    size_bytes = 0
    for call in calls:
        size = call.size
        if part and (size_bytes + size > PART_BYTES or len(part) >= PART_CALLS):
            yield part
            part, size_bytes = [], 0
        part.append(call)
        size_bytes += size
    if part:
        yield part
