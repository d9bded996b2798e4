"""Keeps track of the hubs that share the stores: writes this hub's heartbeat and reads those of the others.

Knows no session: it says whose sessions this hub must take over. It trusts no clock of another machine: a hub is gone when its counter has not
changed, at reads that succeeded, for `GONE_S` of this hub's own monotonic clock. Time without a successful read does not count: the accounts may
have been unreachable for all hubs.
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

HEARTBEAT_S = 1.0
GONE_S = 10.0
UNSEEN_S = 2.5  # after so long without a read there may be a new hub
_GAP_S = 2.0  # at most so much of the time between two reads counts as silence

log = logging.get(__name__)

Pause = Callable[[float], Awaitable[None]]


@dataclass(slots=True)
class _Seen:
    """Another hub, as last read. `silent_s`: for how long its counter has not changed."""

    row: HubRow
    silent_s: float = 0.0
    is_taken_over: bool = False  # by this hub, its successor

    @property
    def is_living(self) -> bool:
        return not self.row.is_over and self.silent_s < GONE_S


class Members:
    """On the reactor thread. Invariant: `incarnation` is 0 until `join` has succeeded; only this hub raises its row's counter."""

    def __init__(self, store: AccountStore, run: Run, clock: Clock, number: int, name: str, version: str = "") -> None:
        self._store = store
        self._run = run
        self._clock = clock
        self.number = number
        self._name = name[:64]
        self._version = version
        self._others: dict[int, _Seen] = {}
        self._read_at = 0.0
        self.incarnation = 0
        self.is_replaced = False  # another hub has this number by now

    def signature(self) -> str:
        """Return the name that this hub writes on its events; empty until it has joined."""
        return hub_name(self.number, self.incarnation) if self.incarnation else ""

    async def join(self, known: int | None, pause: Pause, address: str = "") -> None:
        """Become the hub of this number. `known`: the incarnation of the last hub of this data directory, which cannot be running.

        `address`: where the others connect to this hub; empty: nowhere.

        A hub of another incarnation is watched until it has been silent for long enough. Raises ConflictError: it lives; UnavailableError.
        """
        before = await self._read_own()
        if before is not None and not before.is_over and before.incarnation != known:
            before = await self._watch(before, pause)
        row = await self._run(
            "members.begin", hubs.begin, self._store, self.number, self._name, before, address, self._version
        )
        if row is None:
            raise self._conflict(self._name)
        self.incarnation = row.incarnation
        await self.refresh()

    async def _watch(self, before: HubRow, pause: Pause) -> HubRow | None:
        log.warning(
            "node number was used with another data directory; waiting to see whether that hub is running",
            number=self.number,
            hub=before.name,
            seconds=GONE_S,
        )
        until = self._clock.monotonic() + GONE_S
        while self._clock.monotonic() < until:
            await pause(HEARTBEAT_S)
            now = await self._read_own()
            if now is None or now.is_over:
                return now
            if (now.incarnation, now.heartbeat) != (before.incarnation, before.heartbeat):
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

    async def refresh(self, *, is_silent: bool = False) -> None:
        """Write this hub's heartbeat, unless `is_silent`, and read those of the others. Raises UnavailableError."""
        began = self._clock.monotonic()
        if is_silent:
            rows = await self._run("members.read", hubs.read, self._store)
        else:
            rows = await self._run("members.heartbeat", hubs.heartbeat, self._store, self.number, self.incarnation)
        gap_s = min(began - self._read_at, _GAP_S) if self._read_at else 0.0
        self._read_at = began
        for row in rows:
            if row.number == self.number:
                self.is_replaced = row.incarnation != self.incarnation
            else:
                self._note_row(row, gap_s)

    def _note_row(self, row: HubRow, gap_s: float) -> None:
        seen = self._others.get(row.number)
        if seen is None:
            self._others[row.number] = _Seen(row)
            if not row.is_over:
                log.info("another hub uses the same stores", number=row.number, hub=row.name)
            return
        was_living = seen.is_living
        is_moving = (row.incarnation, row.heartbeat) != (seen.row.incarnation, seen.row.heartbeat)
        seen.silent_s = 0.0 if is_moving else seen.silent_s + gap_s
        seen.is_taken_over &= not is_moving
        seen.row = row
        if was_living != seen.is_living:
            text = "another hub uses the same stores" if seen.is_living else "another hub is gone"
            log.info(text, number=row.number, hub=row.name, is_deregistered=row.is_ended)

    @property
    def living(self) -> frozenset[int]:
        """The numbers of the other hubs that live, as far as this hub knows."""
        return frozenset(number for number, seen in self._others.items() if seen.is_living)

    def living_rows(self) -> list[HubRow]:
        """Return their rows, ascending by number."""
        return [seen.row for _, seen in sorted(self._others.items()) if seen.is_living]

    def rows(self) -> list[tuple[HubRow, bool]]:
        """Return the rows of all other hubs that were ever there, ascending by number, each with whether it lives."""
        return [(seen.row, seen.is_living) for _, seen in sorted(self._others.items())]

    @property
    def names(self) -> dict[int, str]:
        """The names of the other hubs that live, by number."""
        return {number: seen.row.name for number, seen in self._others.items() if seen.is_living}

    @property
    def is_alone(self) -> bool:
        """Whether no other hub can be there: all are gone, and the last read was just now."""
        return not self.living and self.is_fresh

    @property
    def is_fresh(self) -> bool:
        """Whether the last read was just now: no hub can be there that this one has not seen."""
        return self._clock.monotonic() < self.alone_until

    @property
    def alone_until(self) -> float:
        """When `is_alone` ends unless `refresh` succeeds before: monotonic."""
        return self._read_at + UNSEEN_S

    async def take_over(self) -> dict[frozenset[int], float]:
        """Become the successor of the hubs that are gone and have none; return whose sessions are this hub's now, with their silence in seconds.

        Those whose successor a gone hub was come with it. A row that names this hub already is returned once more, if this hub has not returned it
        since its start: the answer of the database may have been lost. Raises UnavailableError.
        """
        taken_over: dict[frozenset[int], float] = {}
        for number, seen in list(self._others.items()):
            if (
                seen.silent_s < GONE_S
                or seen.is_taken_over
                or seen.row.successor not in (hubs.NO_SUCCESSOR, self.number)
            ):
                continue
            is_ours = seen.row.successor == self.number
            if is_ours or await self._run("members.take_over", hubs.take_over, self._store, seen.row, self.number):
                taken_over[self._with_predecessors(number)] = seen.silent_s
        for number in frozenset[int]().union(*taken_over):
            self._others[number].is_taken_over = True
        return taken_over

    def _with_predecessors(self, number: int) -> frozenset[int]:
        found = {number}
        while more := {other for other, seen in self._others.items() if seen.row.successor in found} - found:
            found |= more
        return frozenset(found)

    async def deregister(self) -> None:
        """Let the other hubs take over at once, without waiting for a heartbeat. Raises UnavailableError."""
        if self.incarnation and not self.is_replaced:
            await self._run("members.end", hubs.end, self._store, self.number, self.incarnation)
