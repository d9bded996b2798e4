"""Schemathesis on the OpenAPI: what the document says is what the API does, for requests that are right and for those that are wrong."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import product

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import Case, GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance
from sqlalchemy import event

from iothub.rest.app import openapi_of
from iothub_tenants.accounts import devices, tenants
from iothub_tenants.accounts.database import sqlite_url
from iothub_tenants.accounts.initial import init_store
from tests.support.in_process.rest_api import ROOT, Api, paths

EXAMPLES = 8  # of each operation and mode
OPERATIONS = [(method, path) for path, item in openapi_of(paths())["paths"].items() for method in item]
# What JSON Schema cannot say: that a text is printable, an address, a URL with a host or no obvious password, what a job takes, one payload.
BEYOND_SCHEMA = {
    ("post", f"{ROOT}/tenants/{{tenant}}/messages"),
    ("post", f"{ROOT}/tenants/{{tenant}}:import"),
    ("post", f"{ROOT}/tenants/{{tenant}}/token-issuers"),
    ("patch", f"{ROOT}/tenants/{{tenant}}/token-issuers/{{name}}"),
    ("put", f"{ROOT}/tenants/{{tenant}}/devices/{{device}}/certificate"),
    ("post", f"{ROOT}/tenants"),
    ("post", f"{ROOT}/tenants:apply"),
    ("patch", f"{ROOT}/tenants/{{tenant}}"),
    ("post", f"{ROOT}/tenants/{{tenant}}/bans"),
    ("post", f"{ROOT}/tenants/{{tenant}}/traces"),
    ("post", f"{ROOT}/tenants/{{tenant}}/explain:connect"),
    ("post", f"{ROOT}/tenants/{{tenant}}/explain:publish"),
    ("post", f"{ROOT}/jobs/{{name}}:run"),
    ("post", f"{ROOT}/webhooks"),
    ("patch", f"{ROOT}/webhooks/{{name}}"),
    ("post", f"{ROOT}/tenants/{{tenant}}/webhooks"),
    ("patch", f"{ROOT}/tenants/{{tenant}}/webhooks/{{name}}"),
    ("post", f"{ROOT}/users"),
    ("post", f"{ROOT}/users/{{name}}:set-password"),
    ("post", f"{ROOT}/auth/password"),
}
WITHOUT_INPUT = {("get", f"{ROOT}/auth/oidc")}  # neither a parameter nor a key that could be wrong
MODES = (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """Accounts that all examples work on."""
    url = sqlite_url(tmp_path_factory.mktemp("openapi") / "accounts.db")
    with closing(init_store(url, pepper=b"p" * 32)) as store:
        event.listen(store.engine, "connect", lambda connection, _entry: connection.execute("PRAGMA synchronous = OFF"))
        store.engine.dispose()
        for name in ("acme", "other"):
            tenants.create(store, name)
            devices.create(store, name, "dev1")
        yield Api(store)


@pytest.fixture(scope="module")
def schema(api: Api) -> schemathesis.BaseSchema:
    key = {"Authorization": f"Bearer {api.root}"}
    return schemathesis.openapi.from_asgi(f"{ROOT}/openapi.json", api.app, headers=key)


CASES = [
    (operation, mode)
    for operation, mode in product(OPERATIONS, MODES)
    if mode is GenerationMode.POSITIVE or operation not in WITHOUT_INPUT
]


@pytest.mark.parametrize(("operation", "mode"), CASES, ids=str)
def test_openapi_is_what_the_api_does(
    api: Api, schema: schemathesis.BaseSchema, operation: tuple[str, str], mode: GenerationMode
) -> None:
    """No 5xx but where no hub is to be had, no answer that the document does not have, nothing wrong that is let through."""
    method, path = operation
    found = schema[path][method.upper()]

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=found.as_strategy(generation_mode=mode))
    def check(case: Case) -> None:
        may_be_refused = operation in BEYOND_SCHEMA or "If-Match" in case.headers  # 412: the row is another one by now
        excluded = [positive_data_acceptance] if may_be_refused else []
        case.call_and_validate(headers={"Authorization": f"Bearer {api.root}"}, excluded_checks=excluded)

    check()
