"""A tenant's rate over three hubs on one MariaDB and one Redis: measured, so nothing else may run beside it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from ops.services.services import Services
from tests.support.hubs.three_hubs import Hubs, brief, crowd, hubs_with_one_ledger, publish_for
from tests.support.waiting import until


@pytest.fixture
def hubs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hubs]:
    services = Services(say=print)
    were_down = [each.name for each in services.reports() if each.state == "down" and each.name in ("mariadb", "redis")]
    with hubs_with_one_ledger(tmp_path_factory.mktemp("ledger"), services) as made:
        yield made
    for name in were_down:
        services.down(name)


def test_rate_is_within_five_percent_also_when_demand_moves(hubs: Hubs) -> None:
    """Over 10 s: from all hubs at once; and all of it from one hub, then from another."""
    rate, seconds = 600, 10.0
    hubs.first.tenant("rate", "dev1")
    hubs.first.run("quota", "set", "rate", f"publish_messages={rate}/1s")
    until(lambda: all(brief(hub)["quota"] == "shared" for hub in hubs.all), "limits are shared", 30.0)

    async def run() -> list[float]:
        loop = asyncio.get_running_loop()
        async with crowd("rate") as visitors:
            who = [await visitors.come(port) for port in hubs.ports()]
            begin = loop.time()
            counts = await asyncio.gather(*(publish_for(each, seconds) for each in who if each is not None))
            rates = [sum(counts) / (loop.time() - begin)]
            await asyncio.sleep(1.0)
            begin, moving = loop.time(), 0
            for each in who[:2]:
                assert each is not None
                moving += await publish_for(each, seconds / 2)
            return [*rates, moving / (loop.time() - begin)]

    everywhere, moved = asyncio.run(run())

    assert rate * 0.95 <= everywhere <= rate * 1.05
    assert rate * 0.95 <= moved <= rate * 1.05
