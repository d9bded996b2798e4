"""The queue driver `redis`: virtual queues in Redis, each changed by one Lua script at a time.

Knows no MQTT packet and no session; encoded messages are bytes to it. Writing verbs belong to one thread, `read`, `tails`, `stats` and
`list_queues` to another one (or the same).

Theory: a verb is one script for each queue that it concerns, in one pipeline. There is no transaction around several: what `group` means is in
its docstring. A call whose fate is unknown is repeated so that it is done once: appends by (writer, sequence), claims and creations by their
token, all else because doing it again changes nothing. Bodies lie in their records, once for each queue: messages for very many queues are
better with another driver. What Redis promises of the disk is looked at before the first call and then every minute (`durability`); while
that is less than queues need, nothing is written. A key that is lost when everything is lost shows that somebody has emptied Redis (`watch`): queues
that went that way are gone, and never come back.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from itertools import count as counted

from iothub.base.clock import Clock, SystemClock
from iothub.base.errors import ConflictError
from iothub.records.owner import Owner
from iothub_services.damaged import OnDamage, uncounted
from iothub_services.queues.damage import no_alarm
from iothub_services.queues.port import (
    EARLIEST,
    Claim,
    DueRecord,
    Expired,
    ExpiryMark,
    Page,
    Purged,
    QueueLimits,
    QueueStats,
)
from iothub_services.queues.redis import owners
from iothub_services.queues.redis.append import Appending
from iothub_services.queues.redis.expiry import Expiry
from iothub_services.queues.redis.inbound import Inbounds
from iothub_services.queues.redis.index import KnownQueue, QueueIndex
from iothub_services.queues.redis.moves import Readers
from iothub_services.queues.redis.names import Names
from iothub_services.queues.redis.pages import read_page
from iothub_services.queues.redis.removing import Removing
from iothub_services.queues.redis.scripts import CREATE, LIMIT
from iothub_services.queues.redis.sending import GONE, Ask, Sender, require
from iothub_services.queues.redis.watch import Watch
from iothub_services.queues.remote.store import RemoteQueues
from iothub_services.redis.calls import Script, script_call

_TOKEN_BITS = 52  # Lua's numbers are exact so far


class RedisQueues(RemoteQueues):
    """Fulfils `QueueStore`.

    Args:
        write: The connection of the writing thread.
        read: That of the reading one.
        prefix: What all keys begin with.
        incarnation: A number of this process's life that no other process ever uses; None: a random one.
        is_memory_enough: What Redis has in memory counts as stored.
        on_lost: Called when somebody has emptied Redis, in the thread that finds it; while it raises BackendError it is called again.
        on_back: Called when Redis has lost what it had acknowledged, in the writing thread.
        on_damaged: The alarm for queues that are damaged, in the thread that finds it.
        on_damaged_record: Called with what a claim cannot finish of a publisher, in the writing thread.
        on_close: Closes the connections.

    Invariants: no two calls of this store have the same sequence; what is uncertain has its token in `_tokens`.
    """

    def __init__(  # noqa: PLR0913 - the collaborators of one store, all but four by name
        self,
        write: Ask,
        read: Ask,
        prefix: str,
        incarnation: int | None = None,
        clock: Clock | None = None,
        *,
        is_memory_enough: bool = False,
        on_lost: Callable[[str], None] | None = None,
        on_back: Callable[[str], None] | None = None,
        on_damaged: Callable[[str, str], None] = no_alarm,
        on_damaged_record: OnDamage = uncounted,
        on_close: Callable[[], None] | None = None,
    ) -> None:
        clock = clock or SystemClock()
        writer = _token() if incarnation is None else incarnation
        self._names = names = Names(prefix)
        self._sender = Sender(write, read, names.probe, on_damaged)
        self._index = QueueIndex(self._sender, names)
        self._watch = Watch(self._sender, names, clock, self._forget_all, is_memory_enough=is_memory_enough)
        sequence = counted(1)
        self._readers = Readers(self._index, self._sender, names, clock, sequence)
        self._appending = Appending(
            self._index, self._sender, names, clock, writer, sequence, self._watch.hurry, on_back
        )
        self._inbounds = Inbounds(self._sender, names, self._readers, self._appending, clock, writer, on_damaged_record)
        super().__init__(self._index, self._readers, self._appending, self._inbounds)
        self._expiry = Expiry(self._index, self._sender, names)
        self._removing = Removing(self._index, self._sender, names)
        self._tokens: dict[tuple[str, int], int] = {}  # of creations and claims that may have been done
        self._on_lost = on_lost
        self._on_close = on_close

    def _load(self) -> None:
        self._watch.begin()
        self._index.load()

    def close(self) -> None:
        if self._on_close is not None:
            self._on_close()

    # --- before a hub uses them

    def require_kept(self) -> None:
        """Raise BackendError when Redis cannot be asked, or does not keep what it is given."""
        self._watch.require_kept()

    def is_used(self) -> bool:
        """Has a hub worked with these queues, and has nobody emptied Redis since? Raises BackendError."""
        return self._watch.has_life()

    def owner(self) -> Owner | None:
        """Return whose the queues are; None: nobody's yet. Raises BackendError, CorruptRecordError, ConflictError: a newer iothub's."""
        return owners.owner(self._sender, self._names)

    def claim_store(self, owner: Owner) -> Owner:
        """Take the queues unless somebody has them, and return whose they are then. Raises as `owner`."""
        return owners.claim(self._sender, self._names, owner)

    def probe(self) -> None:
        """Write something small. Raises BackendError: Redis takes no writes now, or does not keep what it takes."""
        self._opened()
        self._watch.check()
        self._sender.probe()

    def idle(self) -> bool:
        super().idle()
        self._writing()
        return False

    # --- the reader

    def claim(self, queue_id: int, owner: bytes) -> Claim:
        known = self._existing(queue_id)
        key = ("claim", queue_id)
        claimed = self._readers.claim(known, self._tokens.setdefault(key, _token()), owner)
        del self._tokens[key]
        inbound = list(claimed.routed)
        if claimed.open:
            inbound += self._inbounds.finish(known, claimed.epoch, claimed.open)
        stands = (claimed.epoch, claimed.head, claimed.tail, claimed.reserved)
        return Claim(*stands, claimed.released, tuple(sorted(inbound)))

    def read(self, queue_id: int, epoch: int, after: int, count: int, size_bytes: int) -> Page:
        return read_page(self._sender, self._names, queue_id, epoch, after, count, size_bytes)

    # --- owners and operators

    def create(self, tenant_id: int, queue_id: int, limits: QueueLimits, first_epoch: int = 1) -> None:
        self._writing()
        if queue_id in self._created_before:
            return
        self._index.find((queue_id,))
        key = ("create", queue_id)
        if self._index.get(queue_id) is not None and key not in self._tokens:
            raise ConflictError(f"queue {queue_id} exists already")
        self._index.enter(tenant_id, queue_id)
        token = self._tokens.setdefault(key, _token())
        bounds = (limits.messages, limits.bytes, int(limits.overflow))
        known = KnownQueue(queue_id, tenant_id, self._index.tenant(tenant_id))
        is_made = self._run(CREATE, known, token, tenant_id, first_epoch - 1, *bounds)
        del self._tokens[key]
        if not is_made:
            raise ConflictError(f"queue {queue_id} exists already")
        self._index.add(tenant_id, queue_id)
        self._created.add(queue_id)

    def set_limits(self, changes: list[tuple[int, QueueLimits]]) -> None:
        self._writing()
        wanted = dict(changes)
        self._index.find(wanted)
        known = [queue for queue_id in wanted if (queue := self._index.get(queue_id)) is not None]
        asked = [
            script_call(LIMIT, self._names.keys(queue_id), limits.messages, limits.bytes, int(limits.overflow))
            for queue_id, limits in ((queue.queue_id, wanted[queue.queue_id]) for queue in known)
        ]
        answers = [
            self._sender.of_queue(queue.queue_id, outcome)
            for queue, outcome in zip(known, self._sender.write(asked), strict=True)
        ]
        for queue, outcome in zip(known, require(answers), strict=True):
            if outcome in (0, GONE):
                self._readers.lost(queue)

    def tails(self, queue_ids: list[int]) -> dict[int, int]:
        return {stats.queue_id: stats.tail for stats in self._index.stats(queue_ids)}

    def existing(self, queue_ids: Sequence[int]) -> set[int]:
        self._opened()
        return self._index.existing_now(queue_ids)

    def stats(self, queue_id: int) -> QueueStats:
        return self._index.existing_stats(queue_id)

    def stats_of(self, queue_ids: Sequence[int]) -> dict[int, QueueStats]:
        return {stats.queue_id: stats for stats in self._index.stats(queue_ids)}

    def list_queues(self, tenant_id: int) -> list[QueueStats]:
        return self._index.list_queues(tenant_id)

    def purge(self, queue_id: int, upto: int = 0) -> Purged:
        return self._removing.purge(self._existing(queue_id), upto)

    def drop(self, queue_id: int) -> int:
        self._writing()
        self._created_before.discard(queue_id)
        return self._removing.drop(queue_id)

    def drop_tenant(self, tenant_id: int) -> int:
        self._writing()
        return self._removing.drop_tenant(tenant_id)

    def expire(self, now_ms: int, count: int, after: ExpiryMark = EARLIEST) -> Expired:
        self._writing()
        return self._expiry.expire(now_ms, count, after)

    def expire_unsent(self, now_ms: int, records: Sequence[DueRecord]) -> tuple[DueRecord, ...]:
        self._writing()
        return self._expiry.expire_unsent(now_ms, records)

    # --- inside

    def _writing(self) -> None:
        """Before anything is written. Raises BackendError: Redis does not keep what it takes."""
        self._opened()
        self._watch.check_if_due()

    def _existing(self, queue_id: int) -> KnownQueue:
        self._writing()
        return self._index.existing(queue_id)

    def _run(self, script: Script, known: KnownQueue, *arguments: int) -> bool:
        """Call a script that returns 0 or 1."""
        call = script_call(script, self._names.keys(known.queue_id), *arguments)
        return self._sender.write_one(call, known.queue_id) == 1

    def _forget_all(self, why: str) -> None:
        """Somebody has emptied Redis. Raises BackendError: what has to be done then was not."""
        count = self._index.forget_all()
        if self._on_lost is not None:
            self._on_lost(f"{why}; {count} queues are gone, with all messages that waited in them")


def _token() -> int:
    """Return what nobody else has; 0 means none."""
    return secrets.randbits(_TOKEN_BITS) or 1
