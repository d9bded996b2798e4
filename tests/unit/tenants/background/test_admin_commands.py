"""Commands from the command line, done by the hub: each is answered once, a failure in the words of its cause."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest
from twisted.internet.defer import Deferred

from iothub.base.errors import ConfigError, IotHubError, NotFoundError, UnavailableError
from iothub.records.admin_commands import Verb
from iothub.testing.clock import ManualClock
from iothub_services.auth.failures import Failures, FailureSettings
from iothub_services.auth.port import TenantRecord
from iothub_tenants.accounts.commands import PASSED, SO_FAR, Command, CommandState
from iothub_tenants.background.admin_commands import AdminCommands, OtherHubs
from iothub_tenants.broker.retaining import Progress


class Hub:
    """One tenant, `acme`, with the persistent session `m7` (queue 3) and the transient one `t`."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, Mapping[str, object]]] = []
        self.failures: list[tuple[int, IotHubError]] = []
        self.discarded: list[tuple[str, str]] = []
        self.deleted: list[bytes] = []
        self.reported: list[tuple[int, Mapping[str, object]]] = []
        self.passed: list[tuple[int, int, Mapping[str, object]]] = []
        self.accounts_fail = False
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
        queues = SimpleNamespace(purge=self._purge)
        self.commands = AdminCommands(
            cast("Any", hub), cast("Any", queues), self._find, lambda: {"version": "1", "alarms": []}
        )

    async def _broker(self, _record: TenantRecord) -> Any:
        return self.acme

    async def _find(self, name: str) -> TenantRecord | None:
        return TenantRecord(1, name) if name == "acme" else None

    async def _discard(self, broker: Any, client_id: str, why: str) -> bool:
        self.discarded.append((client_id, why))
        return client_id in broker.plane.sessions

    async def _purge(self, queue_id: int) -> int:
        return queue_id * 10

    async def _delete(self, topic_filter: bytes, on_progress: Progress) -> int:
        """In four slices, each of which takes 0.3 s."""
        self.deleted.append(topic_filter)
        for done in (1, 2, 3, 4):
            self.clock.advance(0.3)
            await on_progress(done, 4)
        return 2

    async def answer(self, number: int, result: Mapping[str, object]) -> None:
        self.answers.append((number, result))

    async def fail(self, number: int, error: IotHubError) -> None:
        self.failures.append((number, error))

    async def pass_on(self, number: int, node: int, so_far: Mapping[str, object]) -> None:
        self.passed.append((number, node, so_far))

    async def progress(self, number: int, so_far: Mapping[str, object]) -> None:
        self.reported.append((number, so_far))
        if self.accounts_fail:
            raise UnavailableError("the accounts do not answer")

    def run(self, *wanted: tuple[str, str, dict[str, object]]) -> None:
        commands = [
            Command(number, 1, tenant, verb, argument, CommandState.RUNNING, None)
            for number, (verb, tenant, argument) in enumerate(wanted, 1)
        ]
        Deferred.fromCoroutine(self.commands.run_commands(commands, self))


@pytest.fixture
def hub() -> Hub:
    return Hub()


def test_ping_is_answered_with_what_an_operator_wants_to_know(hub: Hub) -> None:
    hub.run((Verb.PING, "", {}))

    assert hub.answers == [(1, {"version": "1", "alarms": []})]


def test_verbs_are_done_and_answered_in_their_order(hub: Hub) -> None:
    hub.run(
        (Verb.SESSION_DISCARD, "acme", {"client_id": "m7"}),
        (Verb.QUEUE_PURGE, "acme", {"client_id": "m7"}),
        (Verb.RETAIN_DELETE, "acme", {"filter": "a/#"}),
    )

    assert hub.answers == [(1, {}), (2, {"messages": 30}), (3, {"messages": 2})]
    assert hub.discarded == [("m7", "operator")]
    assert hub.deleted == [b"a/#"]
    assert hub.drops == [("purged", 30)]


@pytest.mark.parametrize(
    ("verb", "tenant", "argument", "error"),
    [
        (Verb.SESSION_DISCARD, "acme", {"client_id": "nobody"}, NotFoundError),
        (Verb.SESSION_DISCARD, "nobody", {"client_id": "m7"}, NotFoundError),
        (Verb.QUEUE_PURGE, "acme", {"client_id": "t"}, NotFoundError),
        (Verb.RETAIN_DELETE, "acme", {"filter": "a/#/b"}, ConfigError),
        (Verb.BAN_LIFT, "acme", {"device": "dev1", "address": None}, NotFoundError),
        ("of another version", "acme", {}, ConfigError),
    ],
)
def test_what_cannot_be_done_fails_alone(
    hub: Hub, verb: str, tenant: str, argument: dict[str, object], error: type[IotHubError]
) -> None:
    hub.run((verb, tenant, argument), (Verb.PING, "", {}))

    assert [(number, type(failure)) for number, failure in hub.failures] == [(1, error)]
    assert [number for number, _ in hub.answers] == [2]


@pytest.mark.parametrize("accounts_fail", [False, True])
def test_long_deletion_tells_how_far_it_is(hub: Hub, accounts_fail: bool) -> None:
    """Twice a second at most; who cannot be told keeps nothing up."""
    hub.accounts_fail = accounts_fail

    hub.run((Verb.RETAIN_DELETE, "acme", {"filter": "a/#"}))

    assert hub.reported == [(1, {"done": 2, "total": 4}), (1, {"done": 4, "total": 4})]
    assert hub.answers == [(1, {"messages": 2})]


def test_bans_after_failed_logins_are_told_with_their_reason(hub: Hub) -> None:
    """Not more of them than are asked for, and none of another tenant."""
    for tenant, address in (("acme", "192.0.2.7"), ("acme", "192.0.2.8"), ("beta", "192.0.2.9")):
        hub.logins.count(tenant, "dev1", address)
    hub.clock.advance(60.0)

    hub.run((Verb.BAN_LIST, "acme", {"limit": 1}))

    row = {"device": "dev1", "address": "192.0.2.7", "until_ms": int((hub.clock.wall() + 840) * 1000)}
    assert hub.answers == [(1, {"bans": [row], "left_out": 1, "reason": "1 failed logins within 60 s"})]


def test_ban_after_failed_logins_is_lifted_from_one_address_or_all(hub: Hub) -> None:
    """An address of IPv6 stands for its /64, as it is banned."""
    sources = ("192.0.2.7", "192.0.2.8", "2001:db8::/64")
    for source in sources:
        hub.logins.count("acme", "dev1", source)

    hub.run((Verb.BAN_LIFT, "acme", {"device": "dev1", "address": "2001:db8::5"}))
    assert [hub.logins.is_banned("acme", "dev1", source) for source in sources] == [True, True, False]
    hub.run((Verb.BAN_LIFT, "acme", {"device": "dev1", "address": None}))

    assert [answer for _, answer in hub.answers] == [{"bans": 1}, {"bans": 2}]
    assert hub.logins.banned() == 0


class Several(Hub):
    """Hub 1, beside hubs 2 and 3."""

    def __init__(self) -> None:
        super().__init__()
        self.living = frozenset({2, 3})
        self.commands._other_hubs = OtherHubs(1, lambda: self.living)


def test_session_that_is_not_here_is_looked_for_at_the_other_hubs() -> None:
    """It may be a transient one; the last one that has looked says no."""
    hub = Several()
    hub.run((Verb.SESSION_DISCARD, "acme", {"client_id": "t"}))
    assert hub.answers == [(1, {})]

    hub.run((Verb.SESSION_DISCARD, "acme", {"client_id": "nobody"}))
    hub.run((Verb.SESSION_DISCARD, "acme", {"client_id": "nobody", PASSED: [2, 3]}))

    assert hub.passed == [(1, 1, {})]
    assert [type(error) for _, error in hub.failures] == [NotFoundError]


def test_what_each_hub_does_for_itself_is_added_up() -> None:
    """Of those that live now; lists follow each other."""
    hub = Several()
    argument: dict[str, object] = {"filter": "a/#", PASSED: [2], SO_FAR: {"messages": 5}}
    hub.run((Verb.RETAIN_DELETE, "acme", argument))
    hub.living = frozenset({2})
    hub.run((Verb.RETAIN_DELETE, "acme", argument))
    reported: dict[str, object] = {"bans": [{"device": "d"}], "left_out": 0, "reason": "why"}
    hub.run((Verb.BAN_LIST, "acme", {"limit": 9, PASSED: [2], SO_FAR: reported}))

    (_, _, so_far) = hub.passed[0]
    assert so_far["messages"] == hub.answers[0][1]["messages"]
    assert int(str(so_far["messages"])) > 5
    assert hub.answers[1][1]["bans"] == [{"device": "d"}]


def test_bans_that_another_hub_has_lifted_are_enough() -> None:
    """Nobody had one here."""
    hub = Several()
    argument: dict[str, object] = {"device": "d", "address": None, PASSED: [2, 3], SO_FAR: {"bans": 2}}

    hub.run((Verb.BAN_LIFT, "acme", argument))
    hub.run((Verb.BAN_LIFT, "acme", {**argument, SO_FAR: {}}))

    assert hub.answers == [(1, {"bans": 2})]
    assert len(hub.failures) == 1
