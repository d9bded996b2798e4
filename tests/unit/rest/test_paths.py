"""Names of clients in the paths of requests: what a device may call itself changes nothing but what the request says."""

from __future__ import annotations

import asyncio

import pytest

from iothub.base.text import path_part
from iothub.dashboard.api import Api as DashboardApi
from iothub.dashboard.api import part
from iothub.rest.app import make_paths, openapi_of
from iothub_services.auth.port import TenantState
from iothub_tenants.accounts import tenants
from tests.support.in_process.rest_api import Api


@pytest.mark.parametrize(("text", "shown"), [("a/b c", "a%2Fb%20c"), ("..", "%2E%2E"), (".", "%2E")])
def test_part_of_a_path_has_one_form(text: str, shown: str) -> None:
    assert path_part(text) == shown


def test_client_with_the_name_of_the_way_up_is_no_way_up(api: Api) -> None:
    """Discarding the session of a client `..` does not delete its tenant."""
    cookie = api.login("boss", "operator")["cookie"]
    dashboard = DashboardApi(api.app, cookie, ("127.0.0.1", 5), "http://hub.example.com:8081")

    asyncio.run(dashboard.delete(f"/tenants/acme/sessions/{part('..')}"))

    assert tenants.show(api.store, "acme").state is TenantState.ACTIVE


def test_parameters_of_each_query_are_those_of_the_openapi() -> None:
    """They are taken from the paths themselves: the OpenAPI is made when somebody asks for it."""
    app = make_paths("1")
    described = {
        operation["operationId"]: {each["name"] for each in operation.get("parameters", ()) if each["in"] == "query"}
        for item in openapi_of(app)["paths"].values()
        for operation in item.values()
    }

    assert app.state.queries == described
