"""One hub that reads from the log what another one does to sessions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from iothub.base.errors import UnavailableError
from iothub.engine.state import Place, Session
from iothub.records import events
from iothub.records.events import Event, Subject
from iothub_services.events.port import Offsets
from iothub_services.sessions.port import HERE, SingleHub
from iothub_tenants.background.remote_sessions import RemoteSessions
from tests.support.clients import property_names as names
from tests.support.in_process.control_harness import Harness, now, run

ME, OTHER = "1.100", "2.200"
KEPT = [(names.SESSION_EXPIRY, 100)]


class Together(SingleHub):
    """There are others."""

    is_alone = False

    def __init__(self) -> None:
        self.caught_up = self.settled = 0
        self.unread: Callable[[], None] | None = None  # happens at the next look at the log

    def place(self, epoch: int) -> Place:
        return Place(HERE, epoch)

    async def catch_up(self, ago_s: float = 0.0) -> None:
        self.caught_up += 1
        unread, self.unread = self.unread, None
        if unread is not None:
            unread()

    def fail(self) -> None:
        raise UnavailableError("the log is away")

    def settle(self, tenant_id: int, place: Offsets | None) -> None:
        assert (tenant_id, place) != (0, None)
        self.settled += 1


class Scenario:
    """A hub with node number 1, and what hub 2 writes."""

    def __init__(self, path: Path) -> None:
        self.cluster = Together()
        self.harness = harness = Harness(path, cluster=self.cluster)
        registry = SimpleNamespace(tenant_by_id=lambda _id: harness.accounts.tenants["acme"])
        self.online: list[Session] = []
        self.remote_sessions = RemoteSessions(
            harness.hub, cast("Any", registry), cast("Any", run), lambda: ME, 1, self.online.append
        )
        self.epoch = 500 << 24

    def subject(self, epoch: int | None = None, client_id: str = "c") -> Subject:
        at_ms = int(self.harness.clock.wall() * 1000)
        return Subject(7, client_id, self.epoch if epoch is None else epoch, at_ms)

    def say(self, *said: Event, hub: str = OTHER) -> None:
        """These events are next in the log."""
        now(self.remote_sessions.apply_events([event.written_by(hub) for event in said]))
        self.harness.settle()

    def echo(self) -> None:
        """What this hub wrote comes back from the log."""
        written, self.harness.journal.events = self.harness.journal.events, []
        self.say(*written, hub=ME)

    def created(self, epoch: int | None = None, expiry_s: int = 100) -> Event:
        epoch = self.epoch if epoch is None else epoch
        return events.session_created(
            self.subject(epoch), device="dev1", queue_id=epoch >> 24, protocol_version=5, session_expiry_s=expiry_s
        )

    def resumed(self, epoch: int) -> Event:
        return events.session_resumed(self.subject(epoch), protocol_version=5, session_expiry_s=100)

    def connected(self, epoch: int | None = None) -> Event:
        return events.session_connected(
            self.subject(epoch), device="dev1", protocol_version=5, session_expiry_s=100, peer="p", keep_alive_s=0
        )

    def subscribed(self, topic_filter: str, epoch: int | None = None) -> Event:
        return events.session_subscribed(
            self.subject(epoch),
            topic_filter=topic_filter,
            group=None,
            qos=1,
            no_local=False,
            retain_as_published=False,
            retain_handling=0,
            identifier=0,
        )

    def has_queue(self) -> None:
        queue_id = self.epoch >> 24
        self.harness.queues.owners[queue_id] = 7
        self.harness.store.queue(queue_id).epoch = self.epoch

    @property
    def place(self) -> Place:
        return cast("Place", self.harness.session("c").control.place)


def filters(harness: Harness, client_id: str = "c") -> list[bytes]:
    return [topic_filter for _, topic_filter in harness.session(client_id).subscriptions]


def will(scenario: Scenario, delay_s: int = 0) -> Event:
    return events.will_set(
        scenario.subject(), topic="w/c", payload=b"bye", qos=0, retain=False, properties=b"", delay_s=delay_s
    )
