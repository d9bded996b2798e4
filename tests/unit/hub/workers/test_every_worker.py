"""Metrics, readiness and status of several workers: whichever is asked, all are meant."""

from __future__ import annotations

from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from twisted.internet.defer import Deferred, succeed

from iothub.base.errors import UnavailableError
from iothub.hub.workers.every_worker import EveryWorker, OwnWorker
from iothub.hub.workers.worker_status import WorkerFacts, brief_of, page_of, readyz_of
from iothub.peers.commands import PeerAnswer
from iothub.records.admin_commands import Reply, Request, answer_with
from iothub_services.metrics import metrics
from iothub_services.metrics.exposition import Registry, TenantPages, TenantSample

SILENT = UnavailableError("no answer within 2 s")


class Tenants:
    """The tenants of one worker."""

    def __init__(self, counts: dict[str, int], part: str) -> None:
        self._counts = counts
        self._part = part

    def samples(self, tenant: str | None, after: str, limit: int, *, is_in_parts: bool) -> Iterator[TenantSample]:
        assert is_in_parts
        for name in sorted(each for each in self._counts if each > after and tenant in (None, each))[:limit]:
            count = self._counts[name]
            yield TenantSample(
                name,
                {
                    metrics.TENANT_CONNECTIONS: count,
                    metrics.TENANT_BYTES_SENT: count * 100,
                    metrics.TENANT_QUOTA_USED: {
                        ("connections", self._part): count,
                        ("retained_messages", ""): 40 + count,
                    },
                },
            )

    def render_samples(self, samples: Any) -> Iterator[bytes]:
        return TenantPages(1000).render(samples)


class FakeHealth:
    """What a worker says of itself."""

    def __init__(self, number: int, tenants: dict[str, int]) -> None:
        self.number = number
        self.why: list[str] = []
        self.turns = 100 * number
        self.registry = Registry()
        self.registry.feed(metrics.ENGINE_TURNS, lambda: self.turns)
        self.registry.feed(metrics.CONNECTIONS, lambda: {"tcp": number})
        self.registry.feed(metrics.TENANTS, lambda: len(tenants), lambda: dict.fromkeys(tenants, 1))
        self.tenants = Tenants(tenants, str(number))

    def brief(self) -> dict[str, object]:
        alarm = {"name": "disk_low", "subject": "", "since": 10.0 + self.number}
        return {
            "version": "1",
            "node": self.number,
            "other_hubs": [3, 4, 5, 9],
            "links": {"up": 3, "hubs": 4},
            "quota": "shared",
            "ready": not self.why,
            "reasons": self.why,
            "connections": self.number,
            "connections_limit": 100,
            "tenants": 1,
            "alarms": [alarm],
        }

    def status(self) -> dict[str, object]:
        used = {"used": self.number, "limit": 100}
        return {
            "version": "1",
            "connections": used,
            "buffered_bytes": used,
            "unstored_bytes": used,
            "tenants": 1,
            "quota": "shared",
            "alarms": self.brief()["alarms"],
        }


class Links:
    """Fulfils `PeerCommands`: each worker answers at once, but those that are silent."""

    def __init__(self) -> None:
        self.workers: dict[int, OwnWorker] = {}
        self.silent: set[int] = set()

    async def ask(self, node: int, request: Request, reply: Reply, silence_s: float) -> PeerAnswer:
        assert silence_s <= 2.0
        if node in self.silent:
            return PeerAnswer(node, error=SILENT)
        return PeerAnswer(node, await answer_with(self.workers[node].verbs, request, reply))

    async def ask_all(self, *_: object) -> list[PeerAnswer]:
        raise AssertionError("hubs of other machines are not asked")


class Machine:
    """Three workers with the node numbers 3 to 5."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.links = Links()
        self.healths = [FakeHealth(3 + number, {f"t{number}": 1, "all": number + 1}) for number in range(3)]
        for number in range(3):
            self.begin(number)

    def begin(self, number: int) -> None:
        """Begin a worker, anew if it was there."""
        health = cast("Any", self.healths[number])
        self.links.workers[3 + number] = OwnWorker(health, number + 1, self.folder, lambda _: succeed(None))

    def at(self, number: int) -> EveryWorker:
        return EveryWorker(self.links.workers[3 + number], self.links, 3)

    def page(self, number: int) -> str:
        return cast("bytes", done(self.at(number).metrics())).decode()


def done(work: Coroutine[Any, Any, Any]) -> Any:
    found: list[Any] = []
    failed: list[Any] = []
    Deferred.fromCoroutine(work).addCallbacks(found.append, failed.append)
    assert not failed, failed
    return found[0]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_every_worker_gives_the_same_page(machine: Machine) -> None:
    """Counters and connections are added up; a tenant that two workers have is one; each process has its own series."""
    pages = [machine.page(number) for number in range(3)]

    for page in pages:
        assert "iothub_engine_turns_total 1200\n" in page
        assert 'iothub_connections{listener="tcp"} 12\n' in page
        assert "iothub_tenants 4\n" in page
        assert 'iothub_workers{state="up"} 3\n' in page
        assert 'iothub_workers{state="silent"} 0\n' in page
        assert [f'process_open_fds{{worker="{number}"}}' in page for number in (1, 2, 3)] == [True] * 3


def test_silent_worker_is_named_and_its_counters_stay(machine: Machine) -> None:
    """Its gauges are missing, and the sums of what only rises do not fall: they have what it said last."""
    machine.page(0)
    machine.links.silent = {5}

    page = machine.page(1)

    assert 'iothub_workers{state="silent"} 1\n' in page
    assert "iothub_engine_turns_total 1200\n" in page
    assert 'iothub_connections{listener="tcp"} 7\n' in page
    assert 'process_open_fds{worker="3"}' not in page


def test_worker_that_begins_anew_lets_no_sum_fall(machine: Machine) -> None:
    """Whoever was asked before."""
    machine.page(0)
    machine.healths[2].turns = 7
    machine.begin(2)

    assert "iothub_engine_turns_total 1207\n" in machine.page(1)
    assert "iothub_engine_turns_total 1207\n" in machine.page(2)


def test_page_of_tenants_has_those_of_all_workers(machine: Machine) -> None:
    """Gauges are added up, or are what the workers know alike; counters keep a series for each worker; the page ends where all know it."""
    every = machine.at(1)

    page = b"".join(done(every.tenant_metrics(None, "", 1000))).decode()

    assert 'iothub_tenant_connections{tenant="all"} 6' in page
    assert 'iothub_tenant_bytes_sent_total{tenant="all",worker="3"} 300' in page
    assert 'iothub_tenant_quota_used{tenant="all",quota="connections"} 6' in page
    assert 'iothub_tenant_quota_used{tenant="all",quota="retained_messages"} 43' in page
    assert 'tenant="t2"' in page
    second = b"".join(done(every.tenant_metrics(None, "all", 2))).decode()
    assert [f'tenant="{name}"' in second for name in ("all", "t0", "t1", "t2")] == [False, True, True, False]
    only = b"".join(done(every.tenant_metrics("t1", "", 1000))).decode()
    assert [f'tenant="{name}"' in only for name in ("t0", "t1")] == [False, True]


def test_hub_is_ready_while_a_worker_is(machine: Machine) -> None:
    """The others are named; when none is ready, each reason is said once, with the workers."""
    machine.healths[0].why = ["the hub is starting"]
    machine.links.silent = {5}
    assert done(machine.at(0).readyz()) == {
        "ready": True,
        "reasons": [],
        "workers_not_ready": {
            "1": ["the hub is starting"],
            "3": ["it does not answer: no answer within 2 s"],
        },
    }
    machine.healths[1].why = ["the hub is starting"]

    answer = done(machine.at(0).readyz())

    assert not answer["ready"]
    assert answer["reasons"] == [
        "worker 1, 2: the hub is starting",
        "worker 3: it does not answer: no answer within 2 s",
    ]


def test_status_is_of_the_machine(machine: Machine) -> None:
    """Clients are added up, an alarm of all is one, other machines' hubs are the others."""
    machine.links.silent = {4}

    brief = done(machine.at(0).brief())

    assert (brief["node"], brief["other_hubs"], brief["links"]) == (3, [9], {"up": 2, "hubs": 2})
    assert (brief["connections"], brief["connections_limit"], brief["ready"]) == (8, 200, True)
    assert brief["alarms"] == [{"name": "disk_low", "subject": "", "since": 13.0}]
    assert [(each["worker"], each["node"], each["state"]) for each in brief["worker_states"]] == [
        (1, 3, "ready"),
        (2, 4, "silent"),
        (3, 5, "ready"),
    ]
    page = done(machine.at(2).status())
    assert page["connections"] == {"used": 8, "limit": 200}
    assert [each["state"] for each in page["worker_states"]] == ["ready", "silent", "ready"]


def test_worst_state_of_the_quota_ledger_is_shown() -> None:
    """One worker without the ledger is enough."""
    workers = [
        WorkerFacts(number, number, brief={"quota": quota}, page={"quota": quota})
        for number, quota in enumerate(("shared", "degraded", "initialising"), 1)
    ]

    assert brief_of(workers[0], workers)["quota"] == "degraded"
    assert page_of(workers[0], workers)["quota"] == "degraded"
    assert readyz_of(workers)["ready"]
