"""Who may do what: each path has one scope, and each kind of key gets what it is for, over every path of the OpenAPI."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest

from iothub.base.errors import IotHubError
from iothub.rest import edge
from iothub.rest.app import openapi_of
from iothub.rest.edge import Edge
from iothub.rest.routes import SCOPE
from iothub.rest.scopes import SCOPES_OF, Scope
from iothub_tenants.accounts import quotas
from iothub_tenants.accounts.roles import Role
from tests.support.in_process.rest_api import ROOT, Api, paths

PAYLOADS = ("/queued-messages", "/retained/{")
OPEN = {path.removeprefix(ROOT) for path in edge.OPEN}
METHODS = {"get", "put", "post", "patch", "delete"}
KEYS = [
    ("platform-admin", None),
    ("operator", None),
    ("viewer", None),
    ("scrape", None),
    ("tenant-admin", "acme"),
    ("tenant-viewer", "acme"),
    ("scrape", "acme"),
    ("tenant-admin", "other"),
    ("tenant-viewer", "other"),
    ("scrape", "other"),
]


Operation = tuple[str, str, dict[str, Any]]


@cache
def operations() -> list[Operation]:
    """Every method of every path, as the OpenAPI has them: it is the same for whoever may read it."""
    document = openapi_of(paths())
    return [
        (method.upper(), path.removeprefix(ROOT), found)
        for path, item in document["paths"].items()
        for method, found in item.items()
        if method in METHODS
    ]


def expected(role: str, key_tenant: str | None, method: str, path: str) -> int:
    """Say what a key gets on tenant `acme`: 200 (it may), 403 (it may not), 404 (there is no such tenant for it)."""
    if key_tenant not in (None, "acme") and "{tenant}" in path:
        return 404
    return 200 if may(role, is_of_tenant=key_tenant is not None, method=method, path=path) else 403


def may(role: str, *, is_of_tenant: bool, method: str, path: str) -> bool:
    """The rules as an operator would tell them, path by path."""
    if path in ("/whoami", "/openapi.json", *OPEN):
        return True
    if path.startswith("/auth/"):
        return role != "scrape"
    if role == "scrape":
        return path == "/tenants/{tenant}/metrics" or (path in ("/metrics", "/metrics/tenants") and not is_of_tenant)
    if path.startswith(("/api-keys", "/users")):
        return role == "platform-admin"
    if is_of_tenant and "{tenant}" not in path:
        return False
    is_reading = method == "GET" or "/explain:" in path
    if is_reading and any(part in path for part in PAYLOADS):
        return role in ("platform-admin", "operator", "tenant-admin")
    if is_reading:
        return True
    if role in ("viewer", "tenant-viewer"):
        return False
    is_of_the_platform = (
        re.fullmatch(r"/tenants/\{tenant\}(:\w+)?", path) is not None or path.endswith("/quotas") or "/streams" in path
    )
    return not (is_of_tenant and is_of_the_platform)


def filled(path: str) -> str:
    """The path with names in place of its parameters."""
    values = {"tenant": "acme", "device": "nobody", "number": "999", "node": "7"}
    return re.sub(r"\{(\w+)\}", lambda found: values.get(found[1], "nobody"), path)


def test_every_path_has_exactly_one_scope(api: Api) -> None:
    """And the OpenAPI says which."""
    assert api.get("/openapi.json").json == openapi_of(paths())
    found = {(method, path): operation.get(SCOPE) for method, path, operation in operations()}

    assert len(found) > 60
    assert [path for path, scope in found.items() if scope not in set(Scope)] == []


def test_every_path_of_the_application_is_in_the_openapi(api: Api) -> None:
    """None is served that the matrix does not know."""
    assert isinstance(api.app, Edge)
    served = {
        (method, re.sub(r":path\}", "}", route.path))
        for route in api.app._app.routes  # type: ignore[attr-defined]
        for method in route.methods
        if route.path.startswith(ROOT)
    }

    assert served == {(method, ROOT + path) for method, path, _ in operations()}


def test_every_scope_is_of_a_path_and_of_a_role() -> None:
    used = {operation[SCOPE] for _, _, operation in operations()}

    assert used == {scope.value for scope in Scope}
    assert set(SCOPES_OF) == set(Role)
    assert [role for role, scopes in SCOPES_OF.items() if Scope.OPEN in scopes] == []


def test_paths_for_whoever_comes_are_those_that_the_edge_lets_through() -> None:
    """The OpenAPI says so, too."""
    found = {path for _, path, operation in operations() if operation[SCOPE] == Scope.OPEN}

    assert found == OPEN
    assert {path for _, path, operation in operations() if operation.get("security") == []} == OPEN


@pytest.mark.parametrize(("role", "tenant"), KEYS)
def test_matrix_of_keys_and_paths(api: Api, role: str, tenant: str | None) -> None:
    """Each key on each path: refused as it must be, or let through to whatever there is."""
    require_matrix(api, role, tenant, {"authorization": f"Bearer {api.key('k', role, tenant)}"}, operations())


@pytest.mark.parametrize(("role", "tenant"), [who for who in KEYS if who[0] != "scrape"])
def test_matrix_of_users_and_paths(api: Api, role: str, tenant: str | None) -> None:
    """A user who has logged in may what a key of the role may: one path of each scope, of a tenant and of the platform, tells."""
    one_of_each = {(found[SCOPE], "{tenant}" in path): (method, path, found) for method, path, found in operations()}

    require_matrix(api, role, tenant, api.login("u", role, tenant), [*one_of_each.values()])


def require_matrix(
    api: Api, role: str, tenant: str | None, headers: dict[str, str], tried: Sequence[Operation]
) -> None:
    for name in ("acme", "other"):
        quotas.set_limits(api.store, name, "api_requests=unlimited")
    for verb in api.hub.answers:
        api.hub.answers[verb] = IotHubError("nobody is asked here")
    wrong = []
    for method, path, _ in tried:
        answer = api(method, filled(path), key=None, headers={**headers, "if-match": '"never"'})
        if path == "/auth/logout" and answer.status == 204:
            headers = api.login("again", role, tenant)
        wanted = expected(role, tenant, method, path)
        problem = answer.json if answer.status >= 400 else {"detail": "", "code": ""}
        is_no_tenant = answer.status == 404 and problem["detail"] == "there is no tenant 'acme'"
        got = 404 if is_no_tenant else 403 if answer.status == 403 else 200
        if got != wanted or answer.status == 401:
            wrong.append((method, path, wanted, answer.status, problem))

    assert wrong == []


def test_nothing_is_answered_without_a_key(api: Api) -> None:
    """Not even what there is."""
    for method, path, _ in operations():
        if path in OPEN:
            continue
        answer = api(method, filled(path), key=None)
        assert (answer.status, answer.code) == (401, "unauthenticated"), path
        assert answer.headers["www-authenticate"].startswith("Bearer")
    assert api.get("/no/such/path", key=None).status == 401


@pytest.mark.parametrize("given", ["", "Bearer", "Bearer ", "Basic cm9vdDpyb290", "Bearer iothub_0123456789ab_x", "x"])
def test_what_is_no_key_is_refused(api: Api, given: str) -> None:
    assert api.get("/tenants", key=None, headers={"authorization": given}).status == 401


def test_key_that_is_disabled_is_refused_at_once(api: Api) -> None:
    api.key("k", "viewer")
    key = api.post("/api-keys/k:rotate").json["key"]

    assert api.get("/tenants", key=key).status == 200
    assert api.post("/api-keys/k:disable").json["is_enabled"] is False
    assert api.get("/tenants", key=key).status == 401


def test_other_tenant_is_as_one_that_does_not_exist(api: Api) -> None:
    """The same answer, to the letter."""
    key = api.key("k", "tenant-admin", "acme")

    there = api.get("/tenants/other/devices/dev1", key=key)
    nowhere = api.get("/tenants/nobody/devices/dev1", key=key)

    assert there.status == nowhere.status == 404
    assert there.body.replace(b"other", b"nobody") == nowhere.body
    assert api.get("/tenants/nobody").json["detail"] == "there is no tenant 'nobody'"
