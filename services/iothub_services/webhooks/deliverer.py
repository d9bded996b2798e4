"""Delivers events to webhooks, in a thread with an event loop of its own: the reactor hands events over and goes on.

Knows no account and no event's meaning. Each webhook has a task: it posts up to `AT_ONCE` events at a time and waits longer after each round in
which none was delivered. An event that failed is put off behind the others, so neither a webhook nor an event that fails delays another.

Invariants: an event is stored before it is sent, and removed only after a 2xx answer or with a named loss. At most `queue_bytes` wait for each
webhook, and in memory on their way to the file. What is lost is counted by its name in `counts`, and reported.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping

from iothub.base import log as logging
from iothub.base.clock import Clock
from iothub.base.errors import BackendError
from iothub_services.webhooks.lookups import Lookups
from iothub_services.webhooks.outbox import Outbox, Waiting
from iothub_services.webhooks.port import Attempt, Delivery, Result, Target
from iothub_services.webhooks.sending import Sent, send
from iothub_services.webhooks.turns import Turns

AT_ONCE = 4  # requests to one webhook
MOST_QUEUES = 128  # full ones: what may wait for all webhooks together
FIRST_RETRY_S, LONGEST_RETRY_S = 1.0, 600.0
MOST_ATTEMPTS = 20  # that are kept for the delivery log of a webhook until somebody takes them

log = logging.get(__name__)

OnLost = Callable[[Target, Result, int], None]
"""In the thread of the deliverer: so many events of a webhook are lost."""


class Deliverer:
    """`open_outbox` is called in the thread. `put`, `set_targets`, `take_attempts` and `close` are called on the reactor thread."""

    def __init__(
        self, open_outbox: Callable[[], Outbox], clock: Clock, delivery: Delivery, agent: str, on_lost: OnLost
    ) -> None:
        self.counts: Counter[str] = Counter()
        self._open_outbox = open_outbox
        self._clock = clock
        self._delivery = delivery
        self._agent = agent
        self._on_lost = on_lost
        self._lock = threading.Lock()
        self._inbox: list[tuple[Target, Waiting]] = []
        self._inbox_bytes = 0
        self._attempts: dict[int, deque[Attempt]] = {}
        self._targets: Mapping[int, Target] = {}
        self._sizes: Counter[int] = Counter()
        self._outbox: Outbox | None = None
        self._thread: threading.Thread | None = None
        self._running: asyncio.AbstractEventLoop | None = None
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._woken: dict[int, asyncio.Event] = {}
        self._ended = asyncio.Event()
        self._turns = Turns()
        self._lookups = Lookups()

    # --- on the reactor thread

    def set_targets(self, targets: Iterable[Target]) -> None:
        """Deliver to these webhooks from now on; what waits for others is dropped. The thread starts with the first webhook."""
        found = {target.id: target for target in targets}
        if self._thread is None:
            self._running = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._run, args=(self._running,), name="webhooks", daemon=True)
            self._thread.start()
        self._call(self._apply, found)

    def _call(self, function: Callable[..., object], *arguments: object) -> None:
        """Have the thread do something."""
        if self._running is not None:
            self._running.call_soon_threadsafe(function, *arguments)

    def apply(self, delivery: Delivery) -> None:
        """Use other settings from the next attempt on."""
        self._delivery = delivery

    def put(self, target: Target, event: Waiting) -> None:
        """Take an event for a webhook. O(1)."""
        if self._running is None:  # the hub ends
            self._lose(target, Result.STORE_FAILED, [event])
            return
        with self._lock:
            is_first, is_full = not self._inbox, self._inbox_bytes + event.size > self._delivery.queue_bytes
            if not is_full:
                self._inbox.append((target, event))
                self._inbox_bytes += event.size
        if is_full:
            self._lose(target, Result.QUEUE_FULL, [event])
        elif is_first:
            self._call(self._store_inbox)

    def take_attempts(self) -> list[Attempt]:
        """Return the attempts since the last call, the last `MOST_ATTEMPTS` of each webhook."""
        with self._lock:
            found, self._attempts = self._attempts, {}
        return [attempt for each in found.values() for attempt in each]

    def waiting_bytes(self) -> int:
        return sum(self._sizes.values())

    def close(self, timeout_s: float) -> None:
        """Store what was put and end; what is not delivered is delivered after the next start. Blocks."""
        self._call(self._ended.set)
        self._running = None
        if self._thread is not None:
            self._thread.join(timeout_s)

    # --- in the thread

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            self._outbox = self._open_outbox()
            self._sizes.update(self._outbox.sizes())
        except BackendError as error:
            log.error(
                "webhook queue cannot be opened; its events are lost until the hub is started again", error=str(error)
            )
        try:
            loop.run_until_complete(self._main())
        finally:
            loop.close()

    async def _main(self) -> None:
        await self._ended.wait()
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        self._store_inbox()
        if self._outbox is not None:
            self._outbox.close()

    def _apply(self, targets: Mapping[int, Target]) -> None:
        self._store_inbox()
        gone = [webhook for webhook in (*self._targets, *self._sizes) if webhook not in targets]
        self._targets = targets
        for webhook in dict.fromkeys(gone):
            self._forget(webhook)
        for webhook in targets:
            if webhook not in self._tasks:
                self._woken[webhook] = asyncio.Event()
                self._tasks[webhook] = asyncio.get_running_loop().create_task(self._deliver(webhook))

    def _forget(self, webhook: int) -> None:
        task = self._tasks.pop(webhook, None)
        if task is not None:
            task.cancel()
        try:
            count = self._outbox.forget(webhook) if self._outbox is not None else 0
        except BackendError as error:
            log.warning("events of a deleted webhook not removed; the next start does it", error=str(error))
            return
        self._sizes.pop(webhook, None)
        if count:
            self.counts[Result.DELETED.value] += count
            log.info("events of a deleted or disabled webhook dropped", webhook_id=webhook, count=count)

    def _store_inbox(self) -> None:
        with self._lock:
            inbox, self._inbox, self._inbox_bytes = self._inbox, [], 0
        kept: list[Waiting] = []
        of_all, limit = self.waiting_bytes(), self._delivery.queue_bytes
        for target, event in inbox:
            if self._sizes[event.webhook_id] + event.size > limit or of_all + event.size > limit * MOST_QUEUES:
                self._lose(target, Result.QUEUE_FULL, [event])
            else:
                of_all += event.size
                self._sizes[event.webhook_id] += event.size
                kept.append(event)
        if not kept:
            return
        try:
            if self._outbox is None:
                raise BackendError("the webhook queue is not open", retryable=False)
            self._outbox.add(kept)
        except BackendError as error:
            log.warning("webhook queue cannot be written", error=str(error))
            by_id = {target.id: target for target, _ in inbox}
            for event in kept:
                self._sizes[event.webhook_id] -= event.size
                self._lose(by_id[event.webhook_id], Result.STORE_FAILED, [event])
            return
        for webhook in {event.webhook_id for event in kept}:
            if webhook in self._woken:
                self._woken[webhook].set()

    async def _deliver(self, webhook: int) -> None:
        """The task of one webhook: a round fails if no event of it was delivered, and the next one comes later each time."""
        failures = 0
        while True:
            self._woken[webhook].clear()
            try:
                is_good, wait_s = await self._round(self._targets[webhook])
            except BackendError as error:
                log.warning("webhook queue cannot be used, will retry", error=str(error))
                is_good, wait_s = False, 0.0
            failures = 0 if is_good else failures + 1
            if not is_good:
                await asyncio.sleep(retry_after_s(failures, random.random()))  # noqa: S311 - spreads the load
            elif wait_s is None or wait_s > 0:
                await self._wait(webhook, wait_s)

    async def _wait(self, webhook: int, seconds: float | None) -> None:
        """Return when an event comes, or after so many seconds; None: not before."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._woken[webhook].wait(), seconds)

    async def _round(self, target: Target) -> tuple[bool, float | None]:
        """Try the events that are due; say whether the webhook works, and how long to wait for the next ones (None: there are none)."""
        if self._outbox is None:
            return True, None
        events = self._outbox.due(target.id, self._now_ms(), AT_ONCE)
        if not events:
            due_ms = self._outbox.next_due_ms(target.id)
            return True, None if due_ms is None else max(due_ms - self._now_ms(), 1) / 1000
        results = await asyncio.gather(*(self._deliver_one(target, event) for event in events))
        done: list[Waiting] = []
        deferred: list[tuple[int, int]] = []
        for event, sent in zip(events, results, strict=True):
            result = self._result(event, sent)
            self._note(target, event, result, sent.status, sent.detail)
            if result is Result.FAILED:
                delay_s = retry_after_s(event.tries + 1, random.random())  # noqa: S311 - spreads the load
                deferred.append((self._now_ms() + int(delay_s * 1000), event.id))
            else:
                done.append(event)
            if result is Result.GIVEN_UP:
                self._on_lost(target, result, 1)
        self._outbox.finish([event.id for event in done], deferred)
        self._sizes[target.id] -= sum(event.size for event in done)
        return any(sent.is_delivered for sent in results), 0.0

    def _result(self, event: Waiting, sent: Sent) -> Result:
        if sent.is_delivered:
            return Result.DELIVERED
        is_late = self._now_ms() - event.made_ms >= self._delivery.give_up_s * 1000
        return Result.GIVEN_UP if is_late else Result.FAILED

    async def _deliver_one(self, target: Target, event: Waiting) -> Sent:
        return await self._turns.take(
            target.tenant_id,
            lambda: send(target, event.event_id, event.body, self._delivery, self._agent, self._lookups),
        )

    # --- in either thread

    def _lose(self, target: Target, result: Result, events: list[Waiting]) -> None:
        for event in events:
            self._note(target, event, result, 0, "")
        self._on_lost(target, result, len(events))

    def _note(self, target: Target, event: Waiting, result: Result, status: int, detail: str) -> None:
        attempt = Attempt(target.id, self._now_ms(), event.event_id, event.event, result.value, status, detail[:200])
        with self._lock:
            self.counts[result.value] += 1
            self._attempts.setdefault(target.id, deque(maxlen=MOST_ATTEMPTS)).append(attempt)

    def _now_ms(self) -> int:
        return int(self._clock.wall() * 1000)


def retry_after_s(failures: int, chance: float) -> float:
    """Return how long to wait after so many failed rounds: twice as long each time, from half of it to all of it by chance (0 to 1)."""
    longest: float = min(FIRST_RETRY_S * 2 ** min(failures - 1, 30), LONGEST_RETRY_S)
    return longest * (0.5 + chance / 2)
