"""Commands from the command line, done by the hub: each is answered once, a failure in the words of its cause."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest
from twisted.internet.defer import Deferred

from iothub.errors import ConfigError, IotHubError, NotFoundError
from iothub.verbs import Verb
from iothub_services.auth.port import TenantRecord
from iothub_tenants.accounts.commands import Command, CommandState
from iothub_tenants.duties.errands import Errands


class Hub:
    """One tenant, `acme`, with the persistent session `m7` (queue 3) and the transient one `t`."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, Mapping[str, object]]] = []
        self.failures: list[tuple[int, IotHubError]] = []
        self.discarded: list[tuple[str, str]] = []
        self.deleted: list[bytes] = []
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
        )
        queues = SimpleNamespace(purge=self._purge)
        self.errands = Errands(
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

    async def _delete(self, topic_filter: bytes) -> int:
        self.deleted.append(topic_filter)
        return 2

    async def _answer(self, number: int, result: Mapping[str, object]) -> None:
        self.answers.append((number, result))

    async def _fail(self, number: int, error: IotHubError) -> None:
        self.failures.append((number, error))

    def run(self, *wanted: tuple[str, str, dict[str, object]]) -> None:
        commands = [
            Command(number, 1, tenant, verb, argument, CommandState.RUNNING, None)
            for number, (verb, tenant, argument) in enumerate(wanted, 1)
        ]
        Deferred.fromCoroutine(self.errands.run(commands, self._answer, self._fail))


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
        ("of another version", "acme", {}, ConfigError),
    ],
)
def test_what_cannot_be_done_fails_alone(
    hub: Hub, verb: str, tenant: str, argument: dict[str, object], error: type[IotHubError]
) -> None:
    hub.run((verb, tenant, argument), (Verb.PING, "", {}))

    assert [(number, type(failure)) for number, failure in hub.failures] == [(1, error)]
    assert [number for number, _ in hub.answers] == [2]
