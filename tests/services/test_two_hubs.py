"""Two hubs that live at the same time on one HBase, one Kafka and one accounts database (B39)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ops.services.house import Services
from tests.support.clients import Door
from tests.support.hub import Hub
from tests.support.party import Party
from tests.support.server_hub import PLAIN_TENANT, own_stores
from tests.support.two_hubs import Pair, pair_of_hubs

TENANTS = ["acme", PLAIN_TENANT]


@pytest.fixture(scope="module")
def made(_house: Services, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with own_stores(_house) as stores, pair_of_hubs(tmp_path_factory.mktemp("pair"), stores) as pair:
        yield pair


@pytest.fixture
def pair(made: Pair) -> Pair:
    """Both hubs, running."""
    for hub in (made.first, made.second):
        if not hub.is_running():
            hub.start()
    return made


@pytest.fixture
def parties() -> Iterator[list[Party]]:
    opened: list[Party] = []
    yield opened
    for party in opened:
        party.leave()


@pytest.fixture
def at(parties: list[Party]) -> Iterator[object]:
    def door(hub: Hub) -> Party:
        parties.append(Party(Door(hub, "tcp")))
        return parties[-1]

    yield door


@pytest.mark.parametrize("tenant", TENANTS)
@pytest.mark.parametrize("is_forward", [True, False], ids=["first", "second"])
def test_what_the_other_hub_accepts_reaches_a_session_whose_hub_was_killed(
    pair: Pair, at: object, tenant: str, is_forward: bool
) -> None:
    """A session that began after both had started; its hub is killed; the other one accepts; it comes back to either (B39)."""
    mine, other = (pair.first, pair.second) if is_forward else (pair.second, pair.first)
    client_id = f"b39-{tenant}-{is_forward}"
    topic = f"b39/{tenant}/{is_forward}"
    subscriber = at(mine)(5, client_id, tenant=tenant, keep=True)
    subscriber.subscribe((f"{topic}/#", 2))
    publisher = at(other)(5, tenant=tenant, device="dev2")
    sent = []
    for number in range(20):
        if number == 10:
            mine.kill()
        sent.append(b"%d" % number)
        publisher.publish(f"{topic}/x", sent[-1], qos=1 + number % 2)
    back = at(other)(5, client_id, tenant=tenant, keep=True)
    assert back.connack.session_present
    assert back.payloads(20) == sent
    back.nothing()
