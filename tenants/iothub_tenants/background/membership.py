"""Which hubs share the stores now: this one says that it lives, and sees by their heartbeats who else does.

Knows no session: it is told by whom the sessions of a hub that is gone are to be taken. No clock of another machine is trusted: a hub is gone when
its counter was seen to stand still, at looks that succeeded, for `GONE_S` of this hub's own monotonic clock. Time in which nobody could look
counts for nobody: the accounts may have been away for all.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from iothub.base import log as logging
from iothub.base.clock import Clock
from iothub.base.errors import ConflictError
from iothub.records.events import hub_name
from iothub_services.auth.port import Run
from iothub_tenants.accounts import hubs
from iothub_tenants.accounts.hubs import HubRow
from iothub_tenants.accounts.store import AccountStore

BEAT_S = 1.0
GONE_S = 10.0
UNSEEN_S = 2.5  # without a look for so long there may be somebody new
_GAP_S = 2.0  # of the time between two looks no more counts as silence

log = logging.get(__name__)

Pause = Callable[[float], Awaitable[None]]


@dataclass(slots=True)
class _Seen:
    """What the looks found of another hub. `silent_s`: so long its counter has not moved."""

    row: HubRow
    silent_s: float = 0.0
    is_taken: bool = False  # this hub, as its heir, has been told

    @property
    def is_living(self) -> bool:
        return not self.row.is_over and self.silent_s < GONE_S


class Members:
    """On the reactor thread. Invariant: `incarnation` is 0 until `join` has succeeded; nobody but this hub moves its row's counter."""

    def __init__(self, store: AccountStore, run: Run, clock: Clock, number: int, name: str) -> None:
        self._store = store
        self._run = run
        self._clock = clock
        self.number = number
        self._name = name[:64]
        self._others: dict[int, _Seen] = {}
        self._looked_at = 0.0
        self.incarnation = 0
        self.is_replaced = False  # another hub has this number by now

    def signature(self) -> str:
        """Return the name that this hub writes on its events; empty until it has joined."""
        return hub_name(self.number, self.incarnation) if self.incarnation else ""

    async def join(self, known: int | None, pause: Pause) -> None:
        """Become the hub of this number. `known`: the incarnation of the last hub of this data directory, which is surely dead.

        Another one is watched until it has been silent for long enough. Raises ConflictError: it lives; UnavailableError.
        """
        before = await self._read_own()
        if before is not None and not before.is_over and before.incarnation != known:
            before = await self._watch(before, pause)
        row = await self._run("members.begin", hubs.begin, self._store, self.number, self._name, before)
        if row is None:
            raise self._conflict(self._name)
        self.incarnation = row.incarnation
        await self.look()

    async def _watch(self, before: HubRow, pause: Pause) -> HubRow | None:
        log.warning(
            "another data directory had this node number; waiting to see whether its hub lives",
            number=self.number,
            hub=before.name,
            seconds=GONE_S,
        )
        until = self._clock.monotonic() + GONE_S
        while self._clock.monotonic() < until:
            await pause(BEAT_S)
            now = await self._read_own()
            if now is None or now.is_over:
                return now
            if (now.incarnation, now.beat) != (before.incarnation, before.beat):
                raise self._conflict(now.name)
        return before

    def _conflict(self, name: str) -> ConflictError:
        return ConflictError(
            f"node.number {self.number} belongs to a hub that runs on the same stores ({name}): "
            "give each hub a node.number of its own, or stop that one first"
        )

    async def _read_own(self) -> HubRow | None:
        rows = await self._run("members.read", hubs.read, self._store)
        return next((row for row in rows if row.number == self.number), None)

    async def look(self, *, is_silent: bool = False) -> None:
        """Say that this hub lives, unless it is to be silent, and see who else does. Raises UnavailableError."""
        began = self._clock.monotonic()
        if is_silent:
            rows = await self._run("members.read", hubs.read, self._store)
        else:
            rows = await self._run("members.beat", hubs.beat, self._store, self.number, self.incarnation)
        gap_s = min(began - self._looked_at, _GAP_S) if self._looked_at else 0.0
        self._looked_at = began
        for row in rows:
            if row.number == self.number:
                self.is_replaced = row.incarnation != self.incarnation
            else:
                self._see(row, gap_s)

    def _see(self, row: HubRow, gap_s: float) -> None:
        seen = self._others.get(row.number)
        if seen is None:
            self._others[row.number] = _Seen(row)
            if not row.is_over:
                log.info("another hub uses the same stores", number=row.number, hub=row.name)
            return
        was_living = seen.is_living
        is_moving = (row.incarnation, row.beat) != (seen.row.incarnation, seen.row.beat)
        seen.silent_s = 0.0 if is_moving else seen.silent_s + gap_s
        seen.is_taken &= not is_moving
        seen.row = row
        if was_living != seen.is_living:
            text = "another hub uses the same stores" if seen.is_living else "another hub is gone"
            log.info(text, number=row.number, hub=row.name, said_goodbye=row.is_ended)

    @property
    def living(self) -> frozenset[int]:
        """The numbers of the others that live, as far as anybody knows."""
        return frozenset(number for number, seen in self._others.items() if seen.is_living)

    @property
    def is_alone(self) -> bool:
        """No other hub can be there: those that were are gone, and the last look was just now."""
        return not self.living and self.is_fresh

    @property
    def is_fresh(self) -> bool:
        """The last look was just now: nobody can be there whom this hub has not seen."""
        return self._clock.monotonic() < self.alone_until

    @property
    def alone_until(self) -> float:
        """When `is_alone` ends unless somebody looks before: monotonic."""
        return self._looked_at + UNSEEN_S

    async def inherit(self) -> dict[frozenset[int], float]:
        """Become the heir of those that are gone and have none; return whose sessions are this hub's now, and for how long they were silent.

        With a hub come those whose heir it was. A row that names this hub counts until it was told: an answer may have been lost, or a start
        have come in between. Raises UnavailableError.
        """
        inherited: dict[frozenset[int], float] = {}
        for number, seen in list(self._others.items()):
            if seen.silent_s < GONE_S or seen.is_taken or seen.row.heir not in (hubs.NOBODY, self.number):
                continue
            is_ours = seen.row.heir == self.number
            if is_ours or await self._run("members.inherit", hubs.inherit, self._store, seen.row, self.number):
                inherited[self._with_heritage(number)] = seen.silent_s
        for number in frozenset[int]().union(*inherited):
            self._others[number].is_taken = True
        return inherited

    def _with_heritage(self, number: int) -> frozenset[int]:
        found = {number}
        while more := {other for other, seen in self._others.items() if seen.row.heir in found} - found:
            found |= more
        return frozenset(found)

    async def leave(self) -> None:
        """Say goodbye. Raises UnavailableError."""
        if self.incarnation and not self.is_replaced:
            await self._run("members.end", hubs.end, self._store, self.number, self.incarnation)
