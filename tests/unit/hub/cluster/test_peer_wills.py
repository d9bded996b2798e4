"""Wills of transient sessions whose hub is lost. Whole control planes in one process, links that the test moves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from iothub_services.auth.port import TenantRecord
from tests.support.clients.mqtt_clients import Client
from tests.support.in_process.clustered_harness import Cluster
from tests.support.in_process.control_harness import EVERYTHING, device

WILL: Any = ("will", b"gone", 1, False)


def copies(cluster: Cluster) -> int:
    """How many copies the hubs keep for each other."""
    return sum(0 if hub.wills._core is None else len(hub.wills._core) for hub in cluster.hubs)


def kill(cluster: Cluster, number: int) -> None:
    cluster.net.kill(cluster.hubs.pop(number))
    cluster.look()
    cluster.settle()


@pytest.mark.parametrize("count", [2, 3, 4])
def test_the_will_of_a_client_whose_hub_is_lost_is_sent_once(make_cluster: Callable[..., Cluster], count: int) -> None:
    """[MQTT-3.1.2-8]: also where no hub but the lost one had a client of the tenant."""
    cluster = make_cluster(count)
    watcher = cluster.join(count - 1, "watcher")
    cluster.subscribe(watcher, ("will", 1))
    cluster.join(0, "c", will=WILL)
    cluster.settle()

    kill(cluster, 0)

    assert cluster.payloads(watcher) == [b"gone"]


@pytest.mark.parametrize("first", [0, 1])
def test_of_two_hubs_that_are_lost_together_the_second_copy_is_sent(
    make_cluster: Callable[..., Cluster], first: int
) -> None:
    """Whichever of the two is known to be gone first; neither has heard of the other's end."""
    cluster = make_cluster(3)
    survivor = cluster.hubs[2]
    watcher = cluster.join(2, "watcher")
    cluster.subscribe(watcher, ("#", 1))
    for number in range(12):
        cluster.join(number % 2, f"c{number}", will=(f"will/{number}", b"gone", 1, False))
    cluster.settle()
    lost = [hub.id for hub in cluster.hubs[:2]]

    del cluster.hubs[:2]
    for each in lost:
        del cluster.net.hubs[each]
    for each in (lost[first], lost[1 - first]):
        survivor.routes.peer_gone(each)
    cluster.settle()

    assert sorted(each.topic for each in cluster.take(watcher)) == sorted(f"will/{number}" for number in range(12))


def test_of_two_hubs_that_are_lost_one_after_the_other_no_will_is_sent_twice(
    make_cluster: Callable[..., Cluster],
) -> None:
    """The second one has sent what was its part of the first one's, 5 s before."""
    cluster = make_cluster(3)
    watcher = cluster.join(2, "watcher")
    cluster.subscribe(watcher, ("#", 1))
    for number in range(12):
        cluster.join(0, f"c{number}", will=(f"will/{number}", b"gone", 1, False))
    cluster.settle()

    kill(cluster, 0)
    cluster.clock.now += 5.0
    kill(cluster, 0)

    assert sorted(each.topic for each in cluster.take(watcher)) == sorted(f"will/{number}" for number in range(12))


@pytest.mark.parametrize("ends", ["disconnect", "drop"])
def test_no_copy_stays_behind_when_the_client_leaves(make_cluster: Callable[..., Cluster], ends: str) -> None:
    """After a DISCONNECT with 0x00 the Will is not sent; else it is sent by its own hub."""
    cluster = make_cluster(3)
    watcher = cluster.join(1, "watcher")
    cluster.subscribe(watcher, ("will", 1))
    client = cluster.join(0, "c", will=WILL)
    cluster.settle()
    assert copies(cluster) == 2

    getattr(client, ends)()
    cluster.settle()
    assert copies(cluster) == 0
    kill(cluster, 0)

    assert cluster.payloads(watcher) == ([] if ends == "disconnect" else [b"gone"])


def test_the_will_of_the_next_connection_stays_when_that_of_the_one_before_is_dropped(
    make_cluster: Callable[..., Cluster],
) -> None:
    cluster = make_cluster()
    watcher = cluster.join(1, "watcher")
    cluster.subscribe(watcher, ("will", 1))
    cluster.join(0, "c", will=("will", b"first", 1, False))
    cluster.join(0, "c", will=("will", b"second", 1, False))
    cluster.settle()
    assert (copies(cluster), cluster.payloads(watcher)) == (1, [b"first"])

    kill(cluster, 0)

    assert cluster.payloads(watcher) == [b"second"]


def test_wills_of_a_hub_that_was_alone_are_kept_by_one_that_comes(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(1)
    cluster.join(0, "c", will=WILL)
    cluster.join(0, "without")
    cluster.hubs.append(cluster.net.add(type(cluster.hubs[0].id)(2, 1)))
    cluster.look()
    cluster.settle()
    assert copies(cluster) == 1
    watcher = cluster.join(1, "watcher")
    cluster.subscribe(watcher, ("will", 1))

    kill(cluster, 0)

    assert cluster.payloads(watcher) == [b"gone"]


def test_a_hub_that_is_alone_keeps_nothing_and_sends_nothing(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(1)

    cluster.join(0, "c", will=WILL).drop()

    [hub] = cluster.hubs
    assert (hub.wills._core, hub.links.sent) == (None, [])


def test_a_persistent_session_has_no_copy(make_cluster: Callable[..., Cluster]) -> None:
    """The log has its Will."""
    cluster = make_cluster()

    cluster.join(0, "c", 4, clean=False, will=WILL)
    cluster.settle()

    assert copies(cluster) == 0


def test_a_will_is_not_sent_for_a_device_that_is_there_no_more(make_cluster: Callable[..., Cluster]) -> None:
    """Its rights are those that the accounts have now."""
    cluster = make_cluster()
    watcher = cluster.join(1, "watcher")
    cluster.subscribe(watcher, ("will", 1))
    cluster.hubs[0].harness.accounts.add(TenantRecord(7, "acme", rules=(EVERYTHING,)), device("dev1"), device("dev3"))
    cluster.join(0, "c", username="acme/dev3", will=WILL)
    cluster.settle()
    assert copies(cluster) == 1

    kill(cluster, 0)

    assert cluster.payloads(watcher) == []


def test_a_will_of_a_tenant_that_was_deleted_is_not_sent(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster()
    cluster.join(0, "c", will=WILL)
    cluster.settle()
    del cluster.hubs[1].harness.accounts.tenants["acme"]

    kill(cluster, 0)

    assert cluster.hubs[0].harness.hub.brokers.present(7) is None


def pass_time(cluster: Cluster, seconds: float) -> None:
    """In steps in which whatever is due is done."""
    for _ in range(int(seconds / 5)):
        cluster.clock.now += 5.0
        for hub in cluster.hubs:
            hub.reactor.advance(5.0)
            hub.harness.pass_time(5.0)
    cluster.settle()


def of_two(cluster: Cluster) -> tuple[Client, Any]:
    """Somebody who watches the Wills of two tenants at the hub that stays; the tenant `beta` is open at the other one alone."""
    watcher = cluster.join(1, "watcher")
    cluster.subscribe(watcher, ("will", 1))
    cluster.join(0, "c", will=WILL)
    cluster.join(0, "d", username="beta/dev1", will=WILL)
    cluster.settle()
    return watcher, cluster.hubs[1]


def test_wills_of_a_lost_hub_wait_while_the_accounts_cannot_be_read(make_cluster: Callable[..., Cluster]) -> None:
    """Of a tenant that is open here and of one that is not: neither its rights nor its record can be read."""
    cluster = make_cluster()
    watcher, survivor = of_two(cluster)
    survivor.harness.accounts.is_down = True
    survivor.harness.hub.authenticator.directory.invalidate_all()
    kill(cluster, 0)
    pass_time(cluster, 60)
    assert cluster.payloads(watcher) == []
    assert survivor.harness.hub.brokers.present(8) is None

    survivor.harness.accounts.is_down = False
    pass_time(cluster, 10)

    assert cluster.payloads(watcher) == [b"gone"]
    assert survivor.harness.hub.brokers.present(8) is not None
    assert survivor.wills.given_up == 0


def test_wills_of_a_lost_hub_are_given_up_by_name(make_cluster: Callable[..., Cluster]) -> None:
    """Accounts that are away for longer lose them, counted: late ones would say of clients that have come back that they are gone."""
    cluster = make_cluster()
    watcher, survivor = of_two(cluster)
    survivor.harness.accounts.is_down = True
    survivor.harness.hub.authenticator.directory.invalidate_all()
    kill(cluster, 0)

    pass_time(cluster, 620)
    survivor.harness.accounts.is_down = False
    pass_time(cluster, 10)

    assert cluster.payloads(watcher) == []
    assert survivor.harness.acme.plane.counters.drops()["accounts_failed"] == 1
    assert survivor.wills.given_up == 1
