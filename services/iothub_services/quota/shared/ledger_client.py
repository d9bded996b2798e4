"""Requests this hub's counts from the ledger: many requests in one script, one answer for all callers that wait for the same count.

Knows the ledger's scripts and no tenant. A caller that needs units waits in `room`; all other changes are reported with the next turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from math import inf

from twisted.internet.defer import Deferred

from iothub.base.clock import Clock
from iothub.base.errors import BackendError, UnavailableError
from iothub_services.quota.shared import scripts
from iothub_services.quota.shared.grants import Grant, Question, Verdict, Waiting
from iothub_services.quota.shared.lease import LapsedError, Lease

BATCH = 200  # questions in one script: some milliseconds of Redis
PATIENCE_S = 1.0  # for others to give back what they do not use
REJOIN_S = 5.0  # and to come back

Later = Callable[[float, Callable[[], object]], object]


class LedgerClient:
    """On the reactor thread.

    Invariant: one request per grant is under way at a time. While the ledger does not answer (`is_away`) every hub keeps what it was granted.

    Invariant: a hub that was stopped for longer than its lease, or whose lease has ended, uses no more units until it has declared what it has:
    the ledger may have granted them to others.
    """

    def __init__(self, lease: Lease, clock: Clock, later: Later, on_trouble: Callable[[BackendError], None]) -> None:
        self._lease = lease
        self._clock = clock
        self._later = later
        self._on_trouble = on_trouble
        self._grants: dict[str, Grant] = {}
        self._changed: dict[str, Grant] = {}  # in the order of their changes
        self._eager: dict[str, Grant] = {}
        self._is_called = False
        self.is_open = False  # the ledger can be asked
        self.is_away = False  # it does not answer: callers do not wait for it
        self.heard_at = (
            -inf
        )  # monotonic: when the last turn that was answered had begun, or was found to have no answer
        self.asked = 0

    # --- grants

    def open(self, grant: Grant) -> Grant:
        """Count it from now on; what is in use is reported with the next turn."""
        before = self._grants.get(grant.name)
        if before is not None:
            grant.granted, grant.others = before.granted, before.others
            self._end(before)
        self._grants[grant.name] = grant
        self._changed[grant.name] = grant
        self._eager.pop(grant.name, None)
        if grant.is_eager:
            self._eager[grant.name] = grant
        return grant

    def close(self, grant: Grant) -> None:
        """Give back what it held."""
        grant.close()
        if self._grants.get(grant.name) is grant:
            self._changed[grant.name] = grant
        for each in grant.waiting:
            each.answer.callback(False)
        grant.waiting = []

    def changed(self, grant: Grant) -> None:
        """More or less of it is used."""
        self._changed[grant.name] = grant

    def wanted(self, name: str) -> None:
        """Another hub is short of it."""
        grant = self._grants.get(name)
        if grant is not None:
            grant.is_wanted = True
            self._changed[name] = grant

    def change_all(self) -> None:
        """Report everything again."""
        self._changed.update(self._grants)

    # --- asking

    def fits(self, grant: Grant, count: int) -> bool:
        """Whether `count` more may be used now. What was granted before our lease ended may have been granted to others since."""
        return self._has_share and grant.fits(count)

    @property
    def _has_share(self) -> bool:
        return self._clock.monotonic() - self.heard_at <= scripts.LEASE_MS / 1000

    async def room(self, wanted: Sequence[tuple[Grant, int]]) -> bool:
        """Return True when all fit, and may be taken if that is done at once; False when the ledger says no.

        Raises UnavailableError: something is short, and the ledger does not answer.
        """
        while (short := next((each for each in wanted if not self.fits(*each)), None)) is not None:
            if not await self._ask(*short):
                return False
        return True

    def _ask(self, grant: Grant, count: int) -> Deferred[bool]:
        answer: Deferred[bool] = Deferred()
        if self.is_away:
            answer.errback(UnavailableError("the quota ledger does not answer, and this hub's share is used up"))
            return answer
        grant.waiting.append(Waiting(count, self._clock.monotonic() + PATIENCE_S, answer))
        self._changed[grant.name] = grant
        self._call_soon()
        return answer

    def _call_soon(self) -> None:
        if not self._is_called and self.is_open:
            self._is_called = True
            self._later(0, self._called)

    def _called(self) -> None:
        self._is_called = False
        Deferred.fromCoroutine(self._send_waiting())

    async def _send_waiting(self) -> None:
        waiting = [grant for grant in self._changed.values() if grant.waiting and not grant.is_asked]
        try:
            for start in range(0, len(waiting), BATCH):
                await self._send([grant for grant in waiting[start : start + BATCH] if not grant.is_asked])
        except BackendError as error:
            self._on_trouble(error)

    async def report(self) -> None:
        """Report a batch of changes. Raises LapsedError, BackendError."""
        self._expire()
        for grant in islice(self._eager.values(), BATCH):
            if grant.is_running_out:
                self._changed[grant.name] = grant
        await self._send(list(islice((grant for grant in self._changed.values() if not grant.is_asked), BATCH)))

    async def report_all(self) -> None:
        """Report all changes until now. Raises LapsedError, BackendError."""
        names = list(self._changed)
        for start in range(0, len(names), BATCH):
            found = [self._changed[name] for name in names[start : start + BATCH] if name in self._changed]
            await self._send([grant for grant in found if not grant.is_asked])

    async def _send(self, grants: Sequence[Grant]) -> None:
        if not grants:
            return
        for grant in grants:
            self._changed.pop(grant.name, None)
        questions = [(grant.name, grant.question()) for grant in grants]
        self.asked += len(questions)
        try:
            verdicts = await self._reserve(questions)
        except BaseException:
            for grant in grants:
                grant.is_asked = False
                self._changed[grant.name] = grant
            raise
        for grant, verdict in zip(grants, verdicts, strict=True):
            self._apply_verdict(grant, verdict)

    def _apply_verdict(self, grant: Grant, verdict: Verdict) -> None:
        if grant.apply_verdict(verdict, self._clock.monotonic()):
            self._changed[grant.name] = grant
            if not all(each.was_asked for each in grant.waiting):
                self._call_soon()
        elif grant.is_fading and grant.used:
            self._changed[grant.name] = grant
        if grant.is_closed and grant.name not in self._changed and self._grants.get(grant.name) is grant:
            del self._grants[grant.name]
            self._eager.pop(grant.name, None)

    async def _reserve(self, questions: Sequence[tuple[str, Question]]) -> list[Verdict]:
        keys = self._lease.keys
        arguments = [
            part for name, each in questions for part in (name, each.limit, each.used, each.needed, each.wished)
        ]
        names = [keys.wanted, *(keys.count(name) for name, _ in questions)]
        answer = await self._lease.ask(scripts.RESERVE, names, scripts.WANTED_MS, scripts.KEPT_S, *arguments)
        figures = [int(part) for part in answer if isinstance(part, int)]
        if len(figures) != 1 + 3 * len(questions):
            raise LapsedError("unexpected answer of the quota ledger")
        is_initialising = figures[0] > 0
        return [
            Verdict(granted, others, spare, is_initialising)
            for granted, others, spare in zip(figures[1::3], figures[2::3], figures[3::3], strict=True)
        ]

    def _expire(self) -> None:
        """End the wait of callers after the time that a client would wait."""
        now = self._clock.monotonic()
        for grant in [grant for grant in self._changed.values() if grant.waiting and not grant.is_asked]:
            late = [each for each in grant.waiting if now > each.until + REJOIN_S]
            grant.waiting = [each for each in grant.waiting if each not in late]
            for each in late:
                each.answer.errback(UnavailableError("the quota ledger did not answer in time"))

    def fail(self, error: BackendError) -> None:
        """The ledger does not answer: waiting callers get an error, and what was granted stays."""
        self.is_open, self.is_away = False, True
        if self._has_share:  # else it was this hub that was away
            self.heard_at = self._clock.monotonic()
        for grant in list(self._grants.values()):
            grant.fail(UnavailableError(f"the quota ledger cannot be used: {error}"))

    def lapse(self) -> None:
        """Use no more units until everything is declared: the ledger may have granted them to others."""
        self.is_open, self.heard_at = False, -inf

    def _end(self, before: Grant) -> None:
        waiting, before.waiting = before.waiting, []
        for each in waiting:
            each.answer.callback(False)
