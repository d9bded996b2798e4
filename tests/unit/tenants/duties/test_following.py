"""A hub follows its accounts: deletions, changes and commands, over a real accounts database and a control plane of doubles."""

from __future__ import annotations

from typing import Any, cast

import pytest
from twisted.internet.defer import Deferred

from iothub.errors import BackendError, UnavailableError
from iothub.verbs import Verb
from iothub_services.auth.horizon import Horizon
from iothub_tenants.accounts import commands, devices, tenants
from iothub_tenants.accounts.changes import ChangeWatcher
from iothub_tenants.accounts.commands import CommandState
from iothub_tenants.accounts.registry import Registry
from iothub_tenants.accounts.store import AccountStore
from iothub_tenants.broker.queue_bounds import QueueBounds
from iothub_tenants.duties.departures import Departures
from iothub_tenants.duties.errands import Errands
from iothub_tenants.duties.following import Following
from iothub_tenants.duties.obey import Obedience
from tests.support import property_names as names
from tests.support.control_house import House, now, run

KEPT = [(names.SESSION_EXPIRY, 100)]


class Marks:
    """What a hub has noted; `is_full`: nothing can be."""

    def __init__(self) -> None:
        self.mark: int | None = None
        self.is_full = False

    def read_obeyed(self) -> int | None:
        return self.mark

    def write_obeyed(self, change: int) -> None:
        if self.is_full:
            raise UnavailableError("obeyed.json cannot be written: disk full")
        self.mark = change


class Desk:
    """A hub's accounts with tenant `acme` (id 7, as in the house) and its device `dev1`; `start` begins another life of the hub."""

    def __init__(self, house: House, store: AccountStore) -> None:
        self.house = house
        self.store = store
        self.marks = Marks()
        self.pings = 0
        for number in range(6):
            tenants.create(store, f"other{number}")
        assert tenants.create(store, "acme").id == 7
        self.make()
        self.following = self.start()

    def make(self) -> None:
        """Make `dev1`, with the secret that the house knows."""
        devices.create(self.store, "acme", "dev1", password="secret")
        known = Registry(self.store).find_device(7, "dev1")
        assert known is not None
        self.house.accounts.add(self.house.accounts.tenants["acme"], known)

    def delete(self) -> None:
        devices.delete(self.store, "acme", "dev1")
        del self.house.accounts.devices[7, "dev1"]

    def start(self) -> Following:
        hub, house = self.house.hub, self.house
        queues = cast("Any", house.queues)
        bounds = QueueBounds(queues, hub.brokers, house.later)
        following = Following(
            self.store,
            cast("Any", run),
            self.marks,
            house.later,
            Departures(hub, self._nothing),
            Obedience(hub, bounds, self._nothing, self._nothing),
            Errands(hub, queues, self._nothing, self._ping),
        )
        self.horizon = Horizon(self.store.clock, 60.0)
        now(following.begin(ChangeWatcher(self.store), self.horizon))
        return following

    async def _nothing(self, *_: object) -> Any:
        return {}

    def _ping(self) -> dict[str, object]:
        self.pings += 1
        return {"sessions": len(self.house.acme.plane.sessions)}

    def look(self) -> None:
        now(self.following.look())
        self.house.settle()

    @property
    def last_change(self) -> int:
        return ChangeWatcher(self.store).after


@pytest.fixture
def desk(house: House, store: AccountStore) -> Desk:
    return Desk(house, store)


def test_start_notes_where_it_begins(desk: Desk) -> None:
    """Deletions before it are nobody's business any more."""
    assert desk.marks.mark == desk.last_change


def test_horizon_hears_of_every_look(desk: Desk) -> None:
    """What lies in a shared cache is compared with what was seen, from the start on."""
    before = desk.horizon.as_of()
    assert before.change == desk.last_change
    assert desk.horizon.has_device(7, "dev1", before)

    desk.delete()
    assert desk.horizon.as_of() == before
    desk.look()

    assert desk.horizon.as_of().change == desk.last_change
    assert not desk.horizon.has_device(7, "dev1", before)
    assert desk.horizon.has_device(7, "dev1", desk.horizon.as_of())


def test_deletion_is_noted_when_its_sessions_have_ended(desk: Desk) -> None:
    """Not while a store refuses their end."""
    desk.house.join("c", props=KEPT).disconnect()
    desk.delete()
    desk.house.journal.is_down = True
    before = desk.marks.mark
    desk.look()
    assert desk.marks.mark == before

    desk.house.journal.is_down = False
    desk.look()

    assert desk.house.acme.plane.sessions == {}
    assert desk.marks.mark == desk.last_change


def test_deletion_that_could_not_be_noted_spares_the_successor_at_the_next_start(desk: Desk) -> None:
    """The disk is full when it was obeyed; the device was made anew and has a session when the hub hears of it again."""
    desk.house.join("c", props=KEPT).disconnect()
    desk.marks.is_full = True
    desk.delete()
    desk.look()
    assert desk.house.acme.plane.sessions == {}
    desk.make()
    desk.look()
    successor = desk.house.join("c", props=KEPT)

    desk.start()
    assert list(desk.house.acme.plane.sessions) == ["c"]
    desk.marks.is_full = False
    desk.start()

    assert list(desk.house.acme.plane.sessions) == ["c"]
    assert desk.marks.mark == desk.last_change
    successor.ping()


def test_mark_that_could_not_be_written_is_tried_again_at_the_next_look(desk: Desk) -> None:
    """Without another change."""
    desk.marks.is_full = True
    desk.delete()
    desk.look()
    desk.marks.is_full = False

    desk.look()

    assert desk.marks.mark == desk.last_change


def test_deletion_of_the_meantime_is_not_missed_when_nothing_was_ever_noted(desk: Desk) -> None:
    """The folder could never be written: the log of changes has it all the same."""
    desk.house.join("c", props=KEPT).disconnect()
    desk.marks.mark, desk.marks.is_full = None, True
    desk.delete()
    desk.make()

    desk.start()

    assert desk.house.acme.plane.sessions == {}


def test_command_is_done_when_what_was_changed_before_it_is_obeyed(desk: Desk) -> None:
    """`device delete` waits for the answer to a ping."""
    desk.house.join("c", props=KEPT)
    desk.delete()
    number = commands.enqueue(desk.store, "", Verb.PING, {})

    desk.look()

    assert commands.show(desk.store, number).answer == {"sessions": 0}


def test_commands_are_done_although_a_change_cannot_be_read(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was taken is answered: nobody takes it a second time."""
    number = commands.enqueue(desk.store, "", Verb.PING, {})
    polls = [ChangeWatcher.poll]

    def poll(watcher: ChangeWatcher) -> Any:
        if not polls:
            raise BackendError("accounts.db: database is locked", retryable=True)
        return polls.pop()(watcher)

    monkeypatch.setattr(ChangeWatcher, "poll", poll)
    with pytest.raises(BackendError):
        desk.look()

    assert commands.show(desk.store, number).answer == {"sessions": 0}


def test_question_is_answered_while_a_long_command_is_done(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or `iothub status` would call a hub dead that deletes a hundred thousand messages."""
    gate = Deferred[None]()

    async def purge(_errands: Errands, _command: commands.Command, _asked: object) -> dict[str, object]:
        await gate
        return {"messages": 3}

    monkeypatch.setattr(Errands, "_purge", purge)
    desk.following = desk.start()
    long = commands.enqueue(desk.store, "acme", Verb.QUEUE_PURGE, {"client_id": "c"})
    question = commands.enqueue(desk.store, "", Verb.PING, {})
    look = Deferred.fromCoroutine(desk.following.look())

    assert commands.show(desk.store, question).state is CommandState.DONE
    assert commands.show(desk.store, long).state is CommandState.RUNNING
    gate.callback(None)
    assert commands.show(desk.store, long).answer == {"messages": 3}
    assert look.called
