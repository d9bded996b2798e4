"""Three hubs on one MariaDB and one Redis: a tenant's limits hold over all of them, also when one of them or Redis fails."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Iterator

import pytest
from redis import Redis

from ops.services.services import Services
from tests.support.clients.clients import Listener
from tests.support.clients.mqtt_clients import Client, Clients
from tests.support.hubs.hub import Hub
from tests.support.hubs.server_hub import alarms
from tests.support.hubs.three_hubs import Crowd, Hubs, brief, crowd, hubs_with_one_ledger
from tests.support.waiting import until

LIMIT = 100
LEASE_S = 10.0
KEPT = 50  # messages for somebody who is away
NOTICE_S = 20.0  # time-outs of two attempts
APPLIED_S = 1.0 + 2.0  # a second, and the machine may be busy with other tests
NOT_AUTHORIZED = 0x87


@pytest.fixture(scope="module")
def hubs(_set: Services, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hubs]:
    with hubs_with_one_ledger(tmp_path_factory.mktemp("ledger"), _set) as made:
        yield made


@pytest.fixture
def servers(_set: Services) -> Services:
    return _set


async def storm(visitors: Crowd, ports: list[int], attempts: int) -> None:
    """All come at once, to all hubs."""
    await asyncio.gather(*(visitors.come(ports[number % len(ports)]) for number in range(attempts)))


async def storm_after(seconds: float, visitors: Crowd, port: int, attempts: int) -> None:
    await asyncio.sleep(seconds)
    await storm(visitors, [port], attempts)


def settled(hubs: Hubs) -> None:
    settled_at(hubs.all)


def test_limit_of_connections_holds_exactly_under_a_storm(hubs: Hubs) -> None:
    """500 simultaneous CONNECTs to three hubs, limit 100: 100 are let in, at no time more; and again when those have left."""
    hubs.first.tenant("storm", "dev1")
    hubs.first.run("quota", "set", "storm", f"connections={LIMIT}")
    settled(hubs)

    async def run() -> tuple[list[int], int, int]:
        async with crowd("storm") as visitors:
            counts = []
            for _ in range(2):
                await storm(visitors, hubs.ports(), 500)
                counts.append(visitors.count)
                await visitors.go(LIMIT)
                await asyncio.sleep(0.5)
            return counts, visitors.most, len(visitors.refusals)

    counts, most, refusals = asyncio.run(run())

    assert counts == [LIMIT, LIMIT]
    assert (most, refusals) == (LIMIT, 2 * (500 - LIMIT))


def test_keys_are_the_installation_s(hubs: Hubs) -> None:
    """Several installations may share a server, and the accounts on MariaDB say only when they answer which one this is."""
    hubs.first.tenant("named", "dev1")
    settled(hubs)
    asyncio.run(_come_once("named", hubs.ports()[0]))
    installation = json.loads(hubs.first.run("-o", "json", "db", "status").stdout)["installation"]

    with Redis(port=hubs.redis_port, decode_responses=True) as client:
        until(lambda: client.keys(f"iothub:{installation}:auth:*"), "a record of the cache")
        assert f"iothub:{installation}:{{quota}}:hubs" in client.keys(f"iothub:{installation}:*")


async def _come_once(tenant: str, port: int) -> None:
    async with crowd(tenant) as visitors:
        await visitors.come(port)


def test_units_of_a_killed_hub_fall_back_and_redis_may_be_emptied(hubs: Hubs) -> None:
    """While the third hub is dead its clients' places are nobody's until its lease ends; FLUSHALL loses nothing that is in use."""
    hubs.first.tenant("faults", "dev1")
    hubs.first.run("quota", "set", "faults", "connections=60")
    settled(hubs)
    ports, third = hubs.ports(), hubs.all[2]

    async def run() -> None:
        async with crowd("faults") as visitors:
            await storm(visitors, ports, 60)  # twenty at each
            await storm(visitors, ports, 30)
            assert visitors.count == 60
            await asyncio.to_thread(third.kill)
            async with asyncio.timeout(5):
                while visitors.count > 40:
                    await asyncio.sleep(0.02)
            await storm(visitors, ports[:2], 10)
            assert visitors.count == 40
            await filled(visitors, ports[:2], 60, LEASE_S * 2)

            redis(hubs, "FLUSHALL")
            await storm(visitors, ports[:2], 60)
            assert visitors.count == 60
            await visitors.go(20)
            await asyncio.to_thread(settled_at, hubs.all[:2])
            await filled(visitors, ports[:2], 60, 30.0)
            assert visitors.most == 60

    asyncio.run(run())
    third.start()
    settled(hubs)


def test_paused_hub_lets_nobody_in_before_it_has_declared_what_it_has(hubs: Hubs) -> None:
    """Longer than its lease: others get its units, it keeps its clients, and then nobody gets in until there is room again."""
    hubs.first.tenant("paused", "dev1")
    hubs.first.run("quota", "set", "paused", "connections=30")
    settled(hubs)
    ports, second = hubs.ports(), hubs.all[1]

    async def run() -> None:
        async with crowd("paused") as here, crowd("paused") as there:
            await storm(there, [ports[1]], 15)  # so few that it is granted some to spare
            assert there.count == 15
            await asyncio.sleep(0.3)
            os.kill(pid_of(second), signal.SIGSTOP)
            try:
                await filled(here, [ports[0]], 30, LEASE_S * 2)
            finally:
                os.kill(pid_of(second), signal.SIGCONT)
            await asyncio.gather(*(storm_after(wait_s, there, ports[1], 5) for wait_s in (0.0, 0.1, 0.3)))
            await storm(here, [ports[0], ports[2]], 10)
            assert (here.count, there.count) == (30, 15)
            await here.go(25)
            await filled(there, [ports[1]], 25, 10.0)
            assert here.count + there.count == 30

    asyncio.run(run())
    settled(hubs)


def test_last_share_is_kept_while_redis_is_down(hubs: Hubs) -> None:
    """Nobody gets in beyond it; who is there stays and publishes; when Redis is back limits hold over all hubs again."""
    hubs.first.tenant("alone", "dev1")
    hubs.first.run("quota", "set", "alone", "connections=40")
    settled(hubs)
    ports = hubs.ports()

    async def run() -> None:
        async with crowd("alone") as visitors:
            await storm(visitors, ports, 15)
            redis(hubs, "CLIENT", "PAUSE", "4000", "ALL")
            await asyncio.sleep(2.0)
            await storm(visitors, ports, 60)
            assert 15 <= visitors.count <= 40
            assert all(brief(hub)["quota"] == "degraded" for hub in hubs.all)
            await asyncio.to_thread(settled, hubs)
            await filled(visitors, ports, 40, 10.0)
            await storm(visitors, ports, 10)
            assert visitors.most == 40

    asyncio.run(run())


@pytest.mark.parametrize(("server", "alarm"), [("redis", "quota_degraded"), ("mariadb", "accounts_unreachable")])
def test_hub_that_dies_while_a_server_is_away_loses_nothing_acknowledged(
    hubs: Hubs, servers: Services, server: str, alarm: str
) -> None:
    """The others go on, and the alarm names the server; what the dead hub had acknowledged is there when it is back."""
    tenant, third = f"away-{server}", hubs.all[2]
    hubs.first.tenant(tenant, "dev1")
    settled(hubs)
    all_clients = [Clients(Listener(hub, "tcp")) for hub in hubs.all]
    for clients in all_clients:
        clients(5, "sleeper", tenant=tenant, keep=True).subscribe(("kept", 1))
        clients.leave()
    publishers = [clients(5, tenant=tenant) for clients in all_clients]
    try:
        servers.pause(server)
        until(lambda: all(alarm in {name for name, _ in alarms(hub)} for hub in hubs.all), f"alarm {alarm}", NOTICE_S)
        codes = [_publish(publisher, number) for number in range(KEPT) for publisher in publishers]
        third.kill()
        codes += [_publish(publisher, KEPT + number) for number in range(KEPT) for publisher in publishers[:2]]
    finally:
        servers.up(server)
        if not third.is_running():
            third.start()
    settled(hubs)

    assert set(codes) == {0}
    for clients, count in zip(all_clients, (2 * KEPT, 2 * KEPT, KEPT), strict=True):
        clients.leave()
        sleeper = clients(5, "sleeper", tenant=tenant, keep=True)
        assert [int(payload) for payload in sleeper.payloads(count)] == list(range(count))
        sleeper.nothing()
        clients.leave()
    until(lambda: not any(alarm in {name for name, _ in alarms(hub)} for hub in hubs.all), "no alarm")


def test_changed_rules_and_revoked_devices_are_applied_at_all_three(hubs: Hubs) -> None:
    """Within a second, though each device was let in by what Redis had of it."""
    hubs.first.tenant("rules", "dev1", "dev2")
    all_clients = [Clients(Listener(hub, "tcp")) for hub in hubs.all]
    publishers = [clients(5, tenant="rules", device="dev1") for clients in all_clients]
    revoked = [clients(5, tenant="rules", device="dev2") for clients in all_clients]

    hubs.all[1].run("acl", "deny", "rules", "dev1", "publish", "locked/#")
    began = time.monotonic()
    for client in publishers:
        while _code(client) != NOT_AUTHORIZED:
            assert time.monotonic() - began < APPLIED_S
    hubs.all[2].run("device", "disable", "rules", "dev2")
    began = time.monotonic()
    for client in revoked:
        client.expect_closed(timeout=APPLIED_S)
    assert time.monotonic() - began < APPLIED_S
    for clients in all_clients:
        assert clients.ask(5, tenant="rules", device="dev2").connack.code != 0
        clients.leave()


def _publish(client: Client, number: int) -> int:
    puback = client.publish("kept", b"%d" % number, qos=1)
    assert puback is not None
    return puback.code


def _code(client: Client) -> int:
    puback = client.publish("locked/a", b"", qos=1)
    assert puback is not None
    return puback.code


async def filled(visitors: Crowd, ports: list[int], count: int, seconds: float) -> None:
    """Try until so many are in."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while visitors.count < count and loop.time() < end:
        await storm(visitors, ports, count - visitors.count)
        await asyncio.sleep(0.3)
    assert visitors.count == count


def pid_of(hub: Hub) -> int:
    assert hub.process is not None
    return hub.process.pid


def settled_at(some: list[Hub]) -> None:
    until(lambda: all(brief(hub)["quota"] == "shared" for hub in some), "limits are shared")


def redis(hubs: Hubs, *command: str) -> None:
    """Do it on the server itself."""
    with Redis(port=hubs.redis_port) as client:
        client.execute_command(*command)
