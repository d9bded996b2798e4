"""iothub.rest.request_limits: how many requests a tenant and a key may make."""

from __future__ import annotations

import pytest

from iothub.rest.caller import Principal
from iothub.rest.problems import ProblemError
from iothub.rest.request_limits import PLATFORM, READ_S, RequestLimits
from iothub_tenants.accounts import quotas
from iothub_tenants.accounts.roles import Role
from tests.support.in_process.rest_api import Api


def key(name: str, tenant: str | None) -> Principal:
    role = Role.OPERATOR if tenant is None else Role.TENANT_ADMIN
    return Principal("key", f"key:{name}", name, role, tenant)


class Now:
    """A clock that stands still until a test moves it."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_requests_of_a_tenant_are_limited_together(api: Api) -> None:
    """Whatever key they come with; another tenant's are not."""
    now = Now()
    limits = RequestLimits(api.store, now)
    quotas.set_limits(api.store, "acme", "api_requests=2/1s")
    limits.require(key("a", "acme"))
    limits.require(key("b", "acme"))

    with pytest.raises(ProblemError, match="api_requests") as refused:
        limits.require(key("a", "acme"))

    assert refused.value.headers == {"Retry-After": "2"}
    limits.require(key("c", "other"))
    now.now += 2
    limits.require(key("a", "acme"))


def test_changed_limit_is_in_force_within_seconds(api: Api) -> None:
    now = Now()
    limits = RequestLimits(api.store, now)
    quotas.set_limits(api.store, "acme", "api_requests=1/1m")
    limits.require(key("a", "acme"))
    quotas.set_limits(api.store, "acme", "api_requests=unlimited dry-run:api_requests=1/1s")

    now.now += READ_S

    for _ in range(100):
        limits.require(key("a", "acme"))
    quotas.set_limits(api.store, "acme", "api_requests=1/1m")
    now.now += READ_S
    limits.require(key("a", "acme"))
    with pytest.raises(ProblemError):
        limits.require(key("a", "acme"))


def test_key_of_the_platform_has_a_fixed_limit(api: Api) -> None:
    """Each its own."""
    limits = RequestLimits(api.store, Now())
    for _ in range(PLATFORM[0][0]):
        limits.require(key("a", None))

    with pytest.raises(ProblemError, match="the key a"):
        limits.require(key("a", None))
    limits.require(key("b", None))


def test_too_many_requests_are_answered_with_429(api: Api) -> None:
    quotas.set_limits(api.store, "acme", "api_requests=1/1m")
    key = api.key("k", "tenant-viewer", "acme")
    assert api.get("/whoami", key=key).status == 200

    answer = api.get("/whoami", key=key)

    assert (answer.status, answer.code) == (429, "limit_exceeded")
    assert 55 <= int(answer.headers["retry-after"]) <= 63
    assert api.get("/whoami").status == 200
