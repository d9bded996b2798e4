"""Keeps track of the hubs that share the stores: this hub's row in the accounts, its heartbeat, and the rows of the others as last read.

Knows no session and no link. What a look at the rows means - who lives, who is gone for good - is decided above it, and noted here (`note_standing`)
for everybody who asks. It trusts no clock of another machine.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from iothub.base import log as logging
from iothub.base.clock import Clock
from iothub.base.errors import ConflictError
from iothub.records.events import hub_name
from iothub_services.auth.port import Run
from iothub_tenants.accounts import hubs
from iothub_tenants.accounts.hubs import HubRow, View
from iothub_tenants.accounts.store import AccountStore

HEARTBEAT_S = 1.0
GONE_S = 10.0  # a hub that has this number in another data directory, and does not move its counter for so long, does not run
UNSEEN_S = 2.5  # after so long without a read there may be a new hub

log = logging.get(__name__)

Pause = Callable[[float], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Standing:
    """What another hub is to this one. `silent_s`: for how long its counter has not moved. `is_over`: this hub goes on without it.

    `is_silent`: its start is held up, so somebody else does what is due for the sessions of its earlier run.
    """

    silent_s: float = 0.0
    is_over: bool = False
    is_silent: bool = False

    @property
    def is_living(self) -> bool:
        return not self.is_over and not self.is_silent


class Members:
    """On the reactor thread. Invariant: `incarnation` is 0 until `join` has succeeded; only this hub raises its row's counter."""

    def __init__(self, store: AccountStore, run: Run, clock: Clock, number: int, name: str, version: str = "") -> None:
        self._store = store
        self._run = run
        self._clock = clock
        self.number = number
        self._name = name[:64]
        self._version = version
        self._others: dict[int, HubRow] = {}
        self._standing: Mapping[int, Standing] = {}
        self._taken_over: set[tuple[int, int, int]] = set()  # counters of rows, by this hub, their successor
        self._read_at = 0.0
        self.view = View(0, [])  # as last read
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
        if before is not None and not before.is_gone and before.incarnation != known:
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
            if now is None or now.is_gone:
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
        view = await self._run("members.read", hubs.read, self._store)
        return next((row for row in view.rows if row.number == self.number), None)

    async def refresh(self, *, links: int = 0, is_silent: bool = False) -> View:
        """Write this hub's heartbeat, unless `is_silent`, and read those of the others. `links`: how many are up. Raises UnavailableError."""
        began = self._clock.monotonic()
        if is_silent:
            view = await self._run("members.read", hubs.read, self._store)
        else:
            view = await self._run(
                "members.heartbeat", hubs.heartbeat, self._store, self.number, self.incarnation, links
            )
        self._read_at = began
        self.view = view
        for row in view.rows:
            if row.number == self.number:
                self.is_replaced = row.incarnation != self.incarnation
            else:
                self._note_row(row)
        return view

    def _note_row(self, row: HubRow) -> None:
        before = self._others.get(row.number)
        self._others[row.number] = row
        if not row.is_gone and (before is None or before.incarnation != row.incarnation):
            log.info("another hub uses the same stores", number=row.number, hub=row.name)

    def note_standing(self, standing: Mapping[int, Standing]) -> None:
        """Note what the rows mean: each hub that is not named lives."""
        for number, row in self._others.items():
            now = standing.get(number)
            if now is not None and self._is_living(number) and not now.is_living:
                log.info(
                    "another hub is gone", number=number, hub=row.name, cause=row.gone_why or "its start is held up"
                )
        self._standing = dict(standing)

    def _standing_of(self, number: int) -> Standing:
        """Before anything is noted, who is gone by its row is."""
        return self._standing.get(number) or Standing(is_over=self._others[number].is_gone)

    def _is_living(self, number: int) -> bool:
        return self._standing_of(number).is_living

    @property
    def living(self) -> frozenset[int]:
        """The numbers of the other hubs that live, as far as this hub knows."""
        return frozenset(number for number in self._others if self._is_living(number))

    def present_rows(self) -> list[HubRow]:
        """Return the rows of those that this hub does not go on without, ascending by number: it answers them, and waits for them."""
        return [row for number, row in sorted(self._others.items()) if not self._standing_of(number).is_over]

    def rows(self) -> list[tuple[HubRow, bool]]:
        """Return the rows of all other hubs that were ever there, ascending by number, each with whether it lives."""
        return [(row, self._is_living(number)) for number, row in sorted(self._others.items())]

    @property
    def names(self) -> dict[int, str]:
        """The names of the other hubs that live, by number."""
        return {number: row.name for number, row in self._others.items() if self._is_living(number)}

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

    async def server_clock(self) -> float | None:
        """As `hubs.server_clock`. Raises UnavailableError."""
        wall_s: float | None = await self._run("members.clock", hubs.server_clock, self._store)
        return wall_s

    async def set_up(self, seen: int) -> bool:
        """Serve clients from now on; False: who there is has changed since version `seen`. Raises UnavailableError."""
        done: bool = await self._run("members.set_up", hubs.set_up, self._store, self.number, self.incarnation, seen)
        return done

    async def declare_gone(self, target: tuple[int, int], why: str, seen: int) -> bool:
        """Write that a hub is gone; False: who there is has changed since version `seen`, or this hub is gone itself. Raises UnavailableError."""
        done: bool = await self._run(
            "members.declare_gone",
            hubs.declare_gone,
            self._store,
            self.number,
            self.incarnation,
            target,
            why,
            seen,
        )
        return done

    async def acknowledge_gone(self, target: tuple[int, int]) -> None:
        """Note that an administrator knows that a hub is gone. Raises UnavailableError."""
        await self._run("members.acknowledge_gone", hubs.acknowledge_gone, self._store, *target)

    async def take_over(self) -> dict[frozenset[int], float]:
        """Become the successor of the hubs that are gone and have none; return whose sessions are this hub's now, with their silence in seconds.

        Those whose successor a gone hub was come with it. A row that names this hub already is returned once more, if this hub has not returned it
        since its start: the answer of the database may have been lost. Raises UnavailableError.
        """
        taken_over: dict[frozenset[int], float] = {}
        for number, row in list(self._others.items()):
            counter = (number, row.incarnation, row.heartbeat)
            is_due = not self._is_living(number) and counter not in self._taken_over
            if not is_due or row.successor not in (hubs.NOBODY, self.number):
                continue
            is_ours = row.successor == self.number
            if is_ours or await self._run("members.take_over", hubs.take_over, self._store, row, self.number):
                taken_over[self._with_predecessors(number)] = self._standing_of(number).silent_s
        for number in frozenset[int]().union(*taken_over):
            row = self._others[number]
            self._taken_over.add((number, row.incarnation, row.heartbeat))
        return taken_over

    def _with_predecessors(self, number: int) -> frozenset[int]:
        found = {number}
        while more := {other for other, row in self._others.items() if row.successor in found} - found:
            found |= more
        return frozenset(found)

    async def deregister(self) -> None:
        """Let the other hubs take over at once, without waiting for a heartbeat. Raises UnavailableError."""
        if self.incarnation and not self.is_replaced:
            await self._run("members.leave", hubs.leave, self._store, self.number, self.incarnation)
