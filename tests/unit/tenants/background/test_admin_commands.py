"""What an administrator has a hub do: each request is answered once, a failure in the words of its cause."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from twisted.internet.defer import Deferred

from iothub.base.errors import ConfigError, IotHubError, NotFoundError, UnavailableError
from iothub.records.admin_commands import Json, Request, Verb, answer_with
from iothub.testing.clock import ManualClock
from iothub_services.auth.failures import Failures, FailureSettings
from iothub_services.auth.port import TenantRecord
from iothub_services.queues.port import Purged
from iothub_tenants.background.admin_commands import AdminCommands
from iothub_tenants.broker.retaining import Progress


class Hub:
    """One tenant, `acme`, with the persistent session `m7` (queue 3) and the transient one `t`."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.deleted: list[bytes] = []
        self.sent: list[Json] = []
        self.is_asker_gone = self.is_cut_off = self.is_purge_failing = False
        self.clock = ManualClock()
        self.logins = Failures(FailureSettings(failures=1), self.clock)
        plane = SimpleNamespace(
            sessions={
                "m7": SimpleNamespace(is_persistent=True, queue_id=3),
                "t": SimpleNamespace(is_persistent=False, queue_id=0),
            }
        )
        self.acme = SimpleNamespace(plane=plane, retained=SimpleNamespace(delete=self._delete))
        self.drops: list[tuple[str, int]] = []
        turn = SimpleNamespace(drop=lambda _tenant, _session, drop, count: self.drops.append((drop.value, count)))
        hub = SimpleNamespace(
            brokers=SimpleNamespace(broker=self._broker),
            sessions=SimpleNamespace(discard=self._discard),
            plane=SimpleNamespace(turn=turn),
            authenticator=SimpleNamespace(failures=self.logins),
            clock=self.clock,
        )
        queues = SimpleNamespace(purge=self._purge, stats=self._stats)
        self.commands = AdminCommands(
            cast("Any", hub), cast("Any", queues), self._find, self._apply_changes, self._show_stream, self._pause, 5
        )

    async def _apply_changes(self) -> None:
        if self.is_cut_off:
            raise UnavailableError("the accounts do not answer")
        self.done.append("changes applied")

    def _show_stream(self, tenant: str, name: str) -> Json | None:
        return {"state": "working"} if (tenant, name) == ("acme", "telemetry") else None

    async def _broker(self, _record: TenantRecord) -> Any:
        return self.acme

    async def _find(self, name: str) -> TenantRecord | None:
        return TenantRecord(1, name) if name == "acme" else None

    async def _discard(self, broker: Any, client_id: str, why: str) -> bool:
        self.done.append(f"{client_id} discarded: {why}")
        return client_id in broker.plane.sessions

    async def _stats(self, _queue_id: int) -> SimpleNamespace:
        return SimpleNamespace(messages=30)

    async def _purge(self, queue_id: int, upto: int) -> Purged:
        """In three slices, each of which takes 0.3 s; one that fails is the last."""
        self.done.append(f"queue {queue_id} purged up to {upto or 'its end'}")
        if self.is_purge_failing and len(self.done) > 2:
            raise UnavailableError("the disk is full")
        self.clock.advance(0.3)
        return Purged(10, 30 if len(self.done) < 4 else 0)

    async def _pause(self, seconds: float) -> None:
        assert 0 < seconds < 0.1

    async def _delete(self, topic_filter: bytes, on_progress: Progress) -> int:
        """In four slices, each of which takes 0.3 s."""
        self.deleted.append(topic_filter)
        for done in (1, 2, 3, 4):
            self.clock.advance(0.3)
            await on_progress(done, 4)
        return 2

    async def rows(self, rows: Sequence[Json]) -> None:
        self.sent += rows
        if self.is_asker_gone:
            raise UnavailableError("the caller has closed the connection")

    def ask(self, verb: str, tenant: str = "acme", **argument: object) -> Json:
        """Return the result; the rows are in `sent`. Raises the refusal."""
        self.sent.clear()
        answers: list[Any] = []
        request = Request(verb, tenant, argument)
        Deferred.fromCoroutine(answer_with(self.commands.verbs, request, self)).addBoth(answers.append)
        (answer,) = answers
        if hasattr(answer, "raiseException"):
            answer.raiseException()
        return cast("Json", answer)


@pytest.fixture
def hub() -> Hub:
    return Hub()


def test_session_is_discarded_when_earlier_changes_are_applied(hub: Hub) -> None:
    """Or a device that was disabled just before might come again."""
    assert hub.ask(Verb.SESSION_DISCARD, client_id="m7") == {}

    assert hub.done == ["changes applied", "m7 discarded: operator"]


def test_queue_is_purged_and_its_messages_are_counted_as_drops(hub: Hub) -> None:
    assert hub.ask(Verb.QUEUE_PURGE, client_id="m7") == {"messages": 30}

    assert hub.drops == [("purged", 30)]
    assert hub.done[1:] == ["queue 3 purged up to its end", *["queue 3 purged up to 30"] * 2]
    assert hub.sent == [{"node": 5, "done": 20, "total": 30}]


def test_purge_that_fails_has_counted_what_is_gone(hub: Hub) -> None:
    hub.is_purge_failing = True

    with pytest.raises(UnavailableError):
        hub.ask(Verb.QUEUE_PURGE, client_id="m7")

    assert hub.drops == [("purged", 10)]


def test_answer_says_that_changes_are_applied(hub: Hub) -> None:
    assert hub.ask(Verb.ACCOUNTS_APPLY, "") == {}

    assert hub.done == ["changes applied"]


@pytest.mark.parametrize(
    ("verb", "tenant", "argument", "error"),
    [
        (Verb.SESSION_DISCARD, "acme", {"client_id": "nobody"}, NotFoundError),
        (Verb.SESSION_DISCARD, "nobody", {"client_id": "m7"}, NotFoundError),
        (Verb.SESSION_DISCARD, "\udcff", {"client_id": "m7"}, NotFoundError),
        (Verb.SESSION_DISCARD, "acme", {}, ConfigError),
        (Verb.QUEUE_PURGE, "acme", {"client_id": "t"}, NotFoundError),
        (Verb.QUEUE_PURGE, "acme", {"client_id": 7}, ConfigError),
        (Verb.RETAIN_DELETE, "acme", {"filter": "a/#/b"}, ConfigError),
        (Verb.BAN_LIST, "acme", {"limit": True}, ConfigError),
        (Verb.BAN_LIFT, "acme", {"device": "dev1", "address": None}, NotFoundError),
        (Verb.BAN_LIFT, "acme", {"device": "dev1", "address": 7}, ConfigError),
        (Verb.STREAM_SHOW, "acme", {"name": "no/such"}, NotFoundError),
        ("of another version", "acme", {}, ConfigError),
    ],
)
def test_what_cannot_be_done_is_refused(
    hub: Hub, verb: str, tenant: str, argument: dict[str, object], error: type[IotHubError]
) -> None:
    with pytest.raises(error):
        hub.ask(verb, tenant, **argument)


@pytest.mark.parametrize("verb", [Verb.ACCOUNTS_APPLY, Verb.SESSION_DISCARD, Verb.QUEUE_PURGE, Verb.RETAIN_DELETE])
def test_nothing_is_done_while_earlier_changes_are_unknown(hub: Hub, verb: Verb) -> None:
    hub.is_cut_off = True

    with pytest.raises(UnavailableError, match="the accounts do not answer"):
        hub.ask(verb, client_id="m7", filter="a/#")

    assert (hub.done, hub.deleted, hub.drops) == ([], [], [])


@pytest.mark.parametrize("is_asker_gone", [False, True])
def test_long_deletion_reports_its_progress(hub: Hub, is_asker_gone: bool) -> None:
    """Twice a second at most; it is finished although nobody listens."""
    hub.is_asker_gone = is_asker_gone

    result = hub.ask(Verb.RETAIN_DELETE, filter="a/#")

    assert hub.sent == [{"node": 5, "done": 2, "total": 4}, {"node": 5, "done": 4, "total": 4}]
    assert (result, hub.deleted) == ({"messages": 2}, [b"a/#"])


def test_bans_after_failed_logins_are_listed_with_their_reason(hub: Hub) -> None:
    """Not more of them than are asked for, and none of another tenant."""
    for tenant, address in (("acme", "192.0.2.7"), ("acme", "192.0.2.8"), ("beta", "192.0.2.9")):
        hub.logins.count(tenant, "dev1", address)
    hub.clock.advance(60.0)

    result = hub.ask(Verb.BAN_LIST, limit=1)

    assert hub.sent == [{"device": "dev1", "address": "192.0.2.7", "until_ms": int((hub.clock.wall() + 840) * 1000)}]
    assert result == {"left_out": 1, "reason": "1 failed logins within 60 s"}


def test_ban_after_failed_logins_is_lifted_from_one_address_or_all(hub: Hub) -> None:
    """An address of IPv6 stands for its /64, as it is banned."""
    sources = ("192.0.2.7", "192.0.2.8", "2001:db8::/64")
    for source in sources:
        hub.logins.count("acme", "dev1", source)

    one = hub.ask(Verb.BAN_LIFT, device="dev1", address="2001:db8::5")
    assert [hub.logins.is_banned("acme", "dev1", source) for source in sources] == [True, True, False]
    rest = hub.ask(Verb.BAN_LIFT, device="dev1", address=None)

    assert (one, rest) == ({"bans": 1}, {"bans": 2})
    assert hub.logins.banned() == 0


def test_stream_is_described_as_this_hub_knows_it(hub: Hub) -> None:
    assert hub.ask(Verb.STREAM_SHOW, name="telemetry") == {"state": "working"}
