"""One hub, one dashboard and one browser for all tests here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.dashboard import Dashboard, dashboard
from tests.support.hubs.datadirs import fresh_hub
from tests.support.hubs.hub import Hub
from tests.support.ports import free_port


@pytest.fixture(scope="session")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    made = fresh_hub(tmp_path_factory.mktemp("dashboard"), admin__enabled="off")
    made.ports["http"] = free_port()
    made.start()
    yield made
    made.finish()


@pytest.fixture(scope="session")
def served(hub: Hub) -> Iterator[Dashboard]:
    with dashboard(hub) as found:
        yield found


@pytest.fixture(autouse=True)
def nothing_forbidden(served: Dashboard) -> Iterator[None]:
    """No page may have an error, open a dialog of the browser, or load anything from elsewhere."""
    served.watched.found.clear()
    yield
    served.close_pages()
    assert served.watched.found == []
    assert "defect" not in served.log.read_text()
