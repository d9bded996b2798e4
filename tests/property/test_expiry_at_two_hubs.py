"""A session expires at one hub while its client comes to another one: in whatever order both get on, the client is connected and stays so."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.defer import Deferred

from iothub.engine.state import Place
from iothub.records.events import Event
from iothub.records.state import SessionState, fold
from iothub_services.sessions.port import HERE, SingleHub
from iothub_tenants.background.remote_sessions import RemoteSessions
from tests.support.clients import property_names as names
from tests.support.in_process.control_harness import Harness, now, run
from tests.support.night import by_day

KEPT = [(names.SESSION_EXPIRY, 100)]
MOST_STEPS = 40

T = TypeVar("T")


class TwoHubsLog:
    """What both have logged, signed."""

    def __init__(self) -> None:
        self.events: list[Event] = []


class OneHub(SingleHub):
    """One of two. While `is_stepped`, whatever it asks of a store or of the log is done by `step`, one at a time. Fulfils `Cluster`."""

    is_alone = False

    def __init__(self, path: Path, log: TwoHubsLog, number: int) -> None:
        self.number = number
        self._log = log
        self._read = 0
        self._asked: deque[Deferred[None]] = deque()
        self.is_stepped = False
        path.mkdir()
        self.harness = harness = Harness(path, cluster=self)
        registry = SimpleNamespace(tenant_by_id=lambda _id: harness.accounts.tenants["acme"])
        self._remote = RemoteSessions(harness.hub, cast("Any", registry), cast("Any", run), lambda: self.name, number)
        journal, queues = cast("Any", harness.journal), cast("Any", harness.queues)
        journal.record, journal.note = self._stepped(self._record), self._append
        queues.claim, queues.stats, queues.drop = map(self._stepped, (queues.claim, queues.stats, queues.drop))

    @property
    def name(self) -> str:
        return f"{self.number}.1"

    def place(self, epoch: int) -> Place:
        return Place(HERE, epoch)

    async def catch_up(self, ago_s: float = 0.0) -> None:
        await self._turn()
        page, self._read = self._log.events[self._read :], len(self._log.events)
        await self._remote.apply_events(page)

    def step(self) -> None:
        """Let it get on to its next question, if it waits for the answer to one."""
        if self._asked:
            self._asked.popleft().callback(None)
            self.harness.settle()

    async def _turn(self) -> None:
        if self.is_stepped:
            self._asked.append(Deferred())
            await self._asked[-1]

    def _stepped(self, call: Callable[..., Awaitable[T]]) -> Callable[..., Awaitable[T]]:
        async def stepped(*arguments: Any) -> T:
            await self._turn()
            return await call(*arguments)

        return stepped

    async def _record(self, events: Sequence[Event]) -> None:
        self._append(events)

    def _append(self, events: Sequence[Event]) -> None:
        self._log.events += [event.written_by(self.name) for event in events]


def pair(path: Path) -> tuple[TwoHubsLog, OneHub, OneHub]:
    """Both have the same queues; the first has a session `c` whose client has gone."""
    log = TwoHubsLog()
    first, second = OneHub(path / "1", log, 1), OneHub(path / "2", log, 2)
    second.harness.store.rows = first.harness.store.rows
    second.harness.queues.owners = first.harness.queues.owners
    second.harness.ids.last = 1000
    first.harness.join("c", props=KEPT).drop()
    for hub in (first, second):
        now(hub.catch_up())
        hub.harness.settle()
        hub.is_stepped = True
    return log, first, second


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hubs")


@settings(max_examples=by_day(40, 60), deadline=None)
@given(order=st.lists(st.booleans(), min_size=6, max_size=14), begins=st.integers(0, 4))
def test_client_is_connected_and_stays_so(directory: Path, order: list[bool], begins: int) -> None:
    """`order`: whose turn it is; `begins`: when the session expires. Both see the session that the log says there is."""
    path = directory / str(sum(1 for _ in directory.iterdir()))
    path.mkdir()
    log, first, second = pair(path)
    client = second.harness.open_connection()
    client.timeout = 0.2  # all is done at once
    client.send(client.connect_bytes("c", "acme/dev1", "secret", clean=False, props=KEPT, keep_alive=0))

    for number, is_first in enumerate(order):
        if number == begins:
            first.harness.clock.advance(101)
            now(first.harness.sessions.run_deadlines())
        (first if is_first else second).step()
    for _ in range(MOST_STEPS):
        second.step()
        first.step()
    for hub in (first, second):
        hub.is_stepped = False
        now(hub.catch_up())
        hub.harness.settle()

    assert client.next().code == 0
    client.ping()
    state: SessionState | None = None
    for event in log.events:
        state = fold(state, event)
    assert state is not None
    assert not state.is_ended
    sessions = [hub.harness.session("c") for hub in (first, second)]
    assert [session.epoch for session in sessions] == [state.epoch] * 2
    assert [session.control.place.holder for session in sessions] == [2, HERE]
    assert state.queue_id in second.harness.queues.owners
    first.harness.close()
    second.harness.close()
