"""One hub for all tests of quotas; every test has tenants of its own in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.support.hubs.hub import Hub
from tests.support.hubs.quota_harness import Harness, Tenancy, open_harness
from tests.support.ports import free_port

Make = Callable[..., Tenancy]


@pytest.fixture(scope="session")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    """A hub that serves."""
    hub = Hub(tmp_path_factory.mktemp("quota") / "hub", ports={"tcp": free_port(), "http": free_port()})
    hub.settings |= {"sql.poll_interval": "50ms", "auth.failure_reply_ms": "20"}  # so that nobody waits long
    hub.init()
    hub.start()
    try:
        with open_harness(hub) as made:
            yield made
        assert hub.stop() == 0
        assert "Traceback" not in hub.log, hub.log
        assert "fell below zero" not in hub.log, hub.log
    finally:
        hub.close()


@pytest.fixture
def tenant(harness: Harness) -> Iterator[Make]:
    """`tenant("connections=4")` makes one; its clients go when the test ends."""
    yield harness.tenant
    harness.clear()


@pytest.fixture(params=[4, 5], ids=["3.1.1", "5.0"])
def version(request: pytest.FixtureRequest) -> int:
    """Both protocols."""
    return int(request.param)
