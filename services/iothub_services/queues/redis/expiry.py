"""Records in Redis whose time has come: queues are looked at in the order of their hints, records removed by each queue's script.

Knows no clock: who asks says what time it is.

Theory: `due` has for each queue a time that is not behind the first deadline in it, a hint. An append gives its hint behind itself, and only ever an
earlier one; a look puts the hint off by `LOOK_MS`, reads the queue's deadlines, and gives the first that is left. So whatever comes between
the two is either read or gives its own hint. A hint alone is lost when a hub dies between an append and its hint, or while it takes
the hint of a queue away: such a record goes when the queue's next one does, or when its reader comes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from operator import itemgetter
from typing import cast

from iothub.base.errors import BackendError
from iothub_services.queues.port import EARLIEST, DueRecord, Expired, ExpiryMark
from iothub_services.queues.redis.index import KnownQueue, QueueIndex
from iothub_services.queues.redis.names import Names
from iothub_services.queues.redis.scripts import EXPIRE
from iothub_services.queues.redis.sending import GONE, Sender, looked, require
from iothub_services.redis.calls import Argument, Call, Reply, command, script_call

LOOK_MS = 60_000
_QUEUES_AT_ONCE = 256

Places = set[tuple[int, int]]  # queue id, position


class Expiry:
    """Looks and removes; in the writing thread."""

    def __init__(self, index: QueueIndex, sender: Sender, names: Names) -> None:
        self._index = index
        self._sender = sender
        self._names = names

    def expire(self, now_ms: int, count: int, after: ExpiryMark) -> Expired:
        """Fulfil `QueueStore.expire`. Raises BackendError: some may be removed."""
        due = self._due(now_ms, count, after)
        records = [DueRecord(known.tenant_id, mark.queue_id, mark.position) for mark, known in due]
        removed, spared = self._remove(now_ms, records, is_unsent=False)
        self._correct(sorted({mark.queue_id for mark, _ in due}), now_ms)
        return Expired(
            tuple([record for record in records if record[1:] in removed]),
            tuple([record for record in records if record[1:] in spared]),
            due[-1][0] if len(due) >= count else None,
        )

    def expire_unsent(self, now_ms: int, records: Sequence[DueRecord]) -> tuple[DueRecord, ...]:
        """Fulfil `QueueStore.expire_unsent`. Raises BackendError: some may be removed."""
        removed, _ = self._remove(now_ms, records, is_unsent=True)
        return tuple([record for record in records if record[1:] in removed])

    # --- inside

    def _due(self, now_ms: int, count: int, after: ExpiryMark) -> list[tuple[ExpiryMark, KnownQueue]]:
        """Return the first records behind a mark, in the order of their deadlines; hints that are not right are put right."""
        found: list[tuple[ExpiryMark, KnownQueue]] = []
        quiet: list[int] = []
        start = 0
        while True:
            part = self._hinted(now_ms, start)
            marks, without = self._deadlines([queue_id for queue_id, _ in part], now_ms, count, after)
            found = sorted([*found, *marks], key=itemgetter(0))[:count]
            quiet += without
            is_last = len(part) < _QUEUES_AT_ONCE
            if is_last or (len(found) == count and part[-1][1] > found[-1][0].expires_at_ms):
                break
            start += len(part)
        if after == EARLIEST:  # else what is due may lie before the mark
            self._correct(quiet, now_ms)
        return found

    def _hinted(self, now_ms: int, start: int) -> list[tuple[int, int]]:
        """Return queues whose hint has come, with the hint."""
        limit = ("LIMIT", start, _QUEUES_AT_ONCE)
        asked = command("ZRANGEBYSCORE", self._names.due, "-inf", now_ms, "WITHSCORES", *limit)
        return _scored(self._sender.read_one(asked))

    def _deadlines(
        self, queue_ids: Sequence[int], now_ms: int, count: int, after: ExpiryMark
    ) -> tuple[list[tuple[ExpiryMark, KnownQueue]], list[int]]:
        """Return the first deadlines of queues behind a mark, and which queues have none."""
        self._index.find(queue_ids)
        found: list[tuple[ExpiryMark, KnownQueue]] = []
        calls: list[Call] = []
        asked: list[int] = []
        for queue_id in queue_ids:
            more = self._asked(queue_id, now_ms, count, after)
            calls += more
            asked += [queue_id] * len(more)
        outcomes = [
            self._sender.of_queue(queue_id, outcome)
            for queue_id, outcome in zip(asked, self._sender.ask(calls), strict=True)
        ]
        for queue_id, answer in zip(asked, looked(outcomes), strict=True):
            known = self._index.get(queue_id)
            if known is not None and answer != GONE:
                marks = [ExpiryMark(deadline, queue_id, position) for position, deadline in _scored(answer)]
                found += [(mark, known) for mark in marks if mark > after]
        return found, list(set(queue_ids).difference(known.queue_id for _, known in found))

    def _asked(self, queue_id: int, now_ms: int, count: int, after: ExpiryMark) -> list[Call]:
        """Return what to ask of a queue: of the mark's own queue also all that has the mark's deadline, for it may lie before the mark."""
        due = self._names.due_in(queue_id)
        limit = ("WITHSCORES", "LIMIT", 0, count)
        deadline = after.expires_at_ms
        least: Argument = deadline if queue_id > after.queue_id else f"({deadline}"
        calls = [command("ZRANGEBYSCORE", due, least, now_ms, *limit)]
        if queue_id == after.queue_id:
            calls.append(command("ZRANGEBYSCORE", due, deadline, deadline, "WITHSCORES"))
        return calls

    def _remove(self, now_ms: int, records: Iterable[DueRecord], *, is_unsent: bool) -> tuple[Places, Places]:
        """Return what was removed, and what was spared."""
        by_queue: dict[int, list[Argument]] = {}
        for _, queue_id, position in records:
            by_queue.setdefault(queue_id, []).append(position)
        self._index.find(by_queue)
        known = [queue for queue_id in by_queue if (queue := self._index.get(queue_id)) is not None]
        calls = [
            script_call(EXPIRE, self._names.keys(queue.queue_id), now_ms, int(is_unsent), *by_queue[queue.queue_id])
            for queue in known
        ]
        removed: Places = set()
        spared: Places = set()
        for queue, answer in self._answers(known, self._sender.write(calls)):
            if isinstance(answer, list):
                messages, size_bytes, gone, kept = cast("tuple[bytes, bytes, list[bytes], list[bytes]]", tuple(answer))
                queue.holds(int(messages), int(size_bytes))
                removed.update((queue.queue_id, int(position)) for position in gone)
                spared.update((queue.queue_id, int(position)) for position in kept)
        return removed, spared

    def _answers(self, asked: Sequence[KnownQueue], outcomes: Sequence[Reply]) -> list[tuple[KnownQueue, Reply]]:
        """Return what queues say. Raises BackendError."""
        answers = [
            (queue, self._sender.of_queue(queue.queue_id, each)) for queue, each in zip(asked, outcomes, strict=True)
        ]
        require([each for _, each in answers])
        return answers

    # --- hints

    def _correct(self, queue_ids: Sequence[int], now_ms: int) -> None:
        """Give queues the hints that are right, if Redis lets us: it may have no memory for them, and a hint is good later, too."""
        if queue_ids:
            with suppress(BackendError):
                self._put_right(queue_ids, now_ms)

    def _put_right(self, queue_ids: Sequence[int], now_ms: int) -> None:
        """Raises BackendError: some are put off."""
        later: list[Argument] = []
        for queue_id in queue_ids:
            later += (now_ms + LOOK_MS, queue_id)
        require(self._sender.write([command("ZADD", self._names.due, "XX", *later)]))
        without = self._write_hints(queue_ids)
        if without:  # what comes between this and the next look gives its own hint, or is found by it
            require(self._sender.write([command("ZREM", self._names.due, *without)]))
            self._write_hints(without)

    def _write_hints(self, queue_ids: Sequence[int]) -> list[int]:
        """Give queues their first deadlines for hints; return those that have none."""
        first = self._sender.read(
            [command("ZRANGE", self._names.due_in(queue_id), 0, 0, "WITHSCORES") for queue_id in queue_ids]
        )
        pairs: list[Argument] = []
        without = []
        for queue_id, answer in zip(queue_ids, first, strict=True):
            scored = _scored(answer)
            if scored:
                pairs += (scored[0][1], queue_id)
            else:
                without.append(queue_id)
        if pairs:
            require(self._sender.write([command("ZADD", self._names.due, "LT", *pairs)]))
        return without


def _scored(answer: Reply) -> list[tuple[int, int]]:
    """Return members with their scores."""
    words = cast("list[bytes]", answer)
    return [(int(member), int(float(score))) for member, score in zip(words[::2], words[1::2], strict=True)]
