"""Two hubs on the same accounts and one real Redis: a cold hub asks no SQL, a revoked device is out everywhere, a stall changes no decision."""

from __future__ import annotations

import json
import re
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from ops.services.services import Services
from tests.support.clients.raw import RawClient
from tests.support.hubs.datadirs import fresh_hub
from tests.support.hubs.hub import Hub
from tests.support.hubs.redis_cache import settings_of
from tests.support.ports import free_port
from tests.support.waiting import PATIENCE_S, until

APPLIED_S = 1.0
ACCEPTED, REFUSED = 0, 5


def let_in(hub: Hub, device: str) -> int:
    """Connect and go; the return code."""
    client = RawClient(hub.ports["tcp"])
    code = client.connect(f"passing-{device}", f"acme/{device}").body[1]
    client.close()
    return code


def is_out_by(hub: Hub, device: str, deadline: float) -> bool:
    """Whether nobody who came after this moment was let in as this device. Each hub has its own time to hear of a change."""
    began = time.monotonic()
    while let_in(hub, device) == ACCEPTED:
        if began > deadline:
            return False
        began = time.monotonic()
    return True


def records(hub: Hub, result: str) -> int:
    with urllib.request.urlopen(f"http://127.0.0.1:{hub.ports['http']}/metrics", timeout=PATIENCE_S) as answer:
        page = answer.read().decode()
    found = re.search(rf'^iothub_redis_records_total{{result="{result}"}} (\d+)$', page, re.MULTILINE)
    assert found is not None
    return int(found[1])


@pytest.fixture
def hubs(redis_server: Services, tmp_path: Path) -> Iterator[list[Hub]]:
    """Not started."""
    first = fresh_hub(tmp_path)
    url_file = tmp_path / "accounts.url"
    url_file.write_text(f"sqlite:///{first.data_dir / 'accounts.db'}\n")
    url_file.chmod(0o600)
    prefix = settings_of(redis_server.ports.redis).prefix
    made = []
    for number in (1, 2):
        environment = {
            "IOTHUB_NODE__NUMBER": str(number),
            "IOTHUB_SQL__URL_FILE": str(url_file),
            "IOTHUB_AUTH__PEPPER_FILE": str(first.data_dir / "pepper"),
            "IOTHUB_AUTH__SHARED_CACHE": "redis",
            "IOTHUB_REDIS__ADDRESSES": f"127.0.0.1:{redis_server.ports.redis}",
            "IOTHUB_REDIS__PREFIX": prefix,
            "IOTHUB_REDIS__TIMEOUT": "300ms",
        }
        path = first.data_dir if number == 1 else tmp_path / "second"
        hub = Hub(path, {"tcp": free_port(), "http": free_port()}, environment=environment)
        if number != 1:
            hub.run("init")
        made.append(hub)
    yield made
    redis_server.resume("redis")
    for hub in made:
        hub.close()


def test_cold_hub_asks_no_sql_and_applies_what_changes(hubs: list[Hub]) -> None:
    """What the first one asked for, the second one finds; a device that is disabled loses its connection there and is refused at both."""
    first, second = hubs
    first.start()
    for device in ("dev1", "dev2"):
        assert let_in(first, device) == ACCEPTED
    second.start()
    client = RawClient(second.ports["tcp"])
    assert client.connect("stays", "acme/dev1").body[1] == ACCEPTED
    assert let_in(second, "dev2") == ACCEPTED
    assert (records(second, "hit"), records(second, "miss"), records(second, "stale")) == (3, 0, 0)

    first.run("device", "disable", "acme", "dev1")
    deadline = time.monotonic() + APPLIED_S
    client.expect_closed()
    client.close()

    assert time.monotonic() < deadline
    assert [is_out_by(hub, "dev1", deadline) for hub in hubs] == [True, True]
    assert [let_in(hub, "dev1") for hub in hubs] == [REFUSED, REFUSED]
    assert [let_in(hub, "dev2") for hub in hubs] == [ACCEPTED, ACCEPTED]


def test_stalled_redis_keeps_nobody_out_and_is_told(hubs: list[Hub], redis_server: Services) -> None:
    """SQL answers; the alarm says what is wrong, `ready` is not touched, and all of it ends by itself."""
    hub, _ = hubs
    hub.start()

    def alarms() -> set[str]:
        facts = json.loads(hub.run("-o", "json", "status").stdout)
        assert facts["ready"] is True
        return {alarm["name"] for alarm in facts["alarms"]}

    redis_server.pause("redis")
    until(lambda: "redis_unreachable" in alarms(), "the alarm")
    assert let_in(hub, "dev1") == ACCEPTED
    hub.run("device", "disable", "acme", "dev2")
    until(lambda: let_in(hub, "dev2") == REFUSED, "dev2 is out")
    redis_server.resume("redis")

    until(lambda: "redis_unreachable" not in alarms(), "the end of the alarm")
    assert let_in(hub, "dev2") == REFUSED
