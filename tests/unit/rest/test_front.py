"""Which paths are the API's, and which the pages'; and what the process itself may ask."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from iothub.config.sections import Config
from iothub.rest.app import make_app
from iothub_tenants.accounts.store import AccountStore
from tests.support.in_process.rest_api import Api, HubDouble, MachineDouble, request


class PagesDouble:
    """Pages that say who they are, and what they were made with."""

    def __init__(self, api: Any, own: Any) -> None:
        self.api, self.own = api, own
        self.runs: list[str] = []

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        self.runs.append("begun")
        yield
        self.runs.append("ended")

    async def __call__(self, scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"page"})


def served(store: AccountStore) -> tuple[Any, PagesDouble]:
    made: list[PagesDouble] = []

    def pages(api: Any, own: Any, *, has_oidc: bool, mqtt: Callable[[], str]) -> PagesDouble:
        assert not has_oidc
        assert mqtt() == HubDouble().address("tcp")
        made.append(PagesDouble(api, own))
        return made[0]

    app = make_app(store=store, hub=HubDouble(), machine=MachineDouble(), settings=Config(), version="1", pages=pages)
    return app, made[0]


@pytest.mark.parametrize("path", ["/", "/tenants", "/api", "/api/v10", "/livez/x"])
def test_page_has_what_is_not_of_the_api(api: Api, path: str) -> None:
    app, _ = served(api.store)

    assert asyncio.run(request(app, "GET", path, {}, b"")).body == b"page"


@pytest.mark.parametrize(
    ("path", "status"), [("/api/v1/tenants", 401), ("/api/v1", 401), ("/livez", 200), ("/readyz", 200)]
)
def test_api_keeps_its_paths(api: Api, path: str, status: int) -> None:
    app, _ = served(api.store)

    assert asyncio.run(request(app, "GET", path, {}, b"")).status == status


def test_own_requests_read_metrics_alone(api: Api) -> None:
    """The sampler of a process needs no key, and may do nothing else."""
    _, pages = served(api.store)

    assert asyncio.run(request(pages.own, "GET", "/api/v1/tenants", {}, b"")).status == 403
    assert asyncio.run(request(pages.own, "GET", "/api/v1/metrics", {}, b"")).status == 404  # no hub runs
    assert asyncio.run(request(pages.api, "GET", "/api/v1/metrics", {}, b"")).status == 401


def test_pages_run_while_the_application_does(api: Api) -> None:
    app, pages = served(api.store)
    asked = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]
    told: list[str] = []

    async def receive() -> dict[str, str]:
        if len(asked) == 1:
            told.append(f"runs: {pages.runs}")
        return asked.pop(0)

    async def send(message: Any) -> None:
        told.append(message["type"])

    asyncio.run(app({"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}, receive, send))

    assert told == ["lifespan.startup.complete", "runs: ['begun']", "lifespan.shutdown.complete"]
    assert pages.runs == ["begun", "ended"]


def test_without_pages_the_start_says_what_is_missing(api: Api) -> None:
    found = api.get("//", key=None)

    assert found.status == 200
    assert b"iothub[admin]" in found.body
