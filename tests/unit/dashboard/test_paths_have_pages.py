"""Every path of REST has a page that reaches it and a line in the guide: a new path without one fails here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from iothub.dashboard import app, frame
from iothub.rest.app import make_paths, openapi_of
from iothub.rest.edge import PREFIX
from iothub.rest.scopes import SCOPES_OF

T = "/tenants/{tenant}"
DEVICE, CLIENT, ISSUER = f"{T}/devices/{{device}}", f"{T}/clients/{{client_id:path}}", f"{T}/token-issuers/{{name}}"
SESSION, STREAM, TRACE = f"{T}/sessions/{{client_id:path}}", f"{T}/streams/{{name}}", f"{T}/traces/{{trace}}"
PLAN, RUN, JOB = "/plans/{plan}", "/runs/{number}", "/jobs/{name}"

# What the frame does on all pages, or before there is one; and lists and objects that another answer has as a whole.
WITHOUT = {
    "POST /auth/login": "the login page",
    "GET /auth/oidc": "the login page",
    "GET /auth/oidc/callback": "the OpenID provider leads there",
    "POST /auth/logout": "the menu of every page",
    "GET /openapi.json": "for programs",
    f"GET {T}/metrics": "the sampler reads those of all tenants",
    f"GET {T}/quotas:all": "each device's page has its own",
    f"GET {T}/groups/{{name}}": "the list has all of it",
    f"GET {T}/queues/{{client_id}}": "the list has all of it but the limits, which the page of limits has",
    "GET /api-keys/{name}": "the list has all of it",
    "GET /users/{name}": "the list has all of it",
}
PAGES = {
    "GET /whoami": "/account",
    "POST /auth/password": "/account",
    "GET /tenants": "/tenants",
    "POST /tenants": "/tenants",
    "POST /tenants:apply": "/tenants",
    f"GET {T}": T,
    f"PATCH {T}": T,
    f"DELETE {T}": "/tenants",
    f"POST {T}:suspend": "/tenants",
    f"POST {T}:resume": "/tenants",
    f"POST {T}:protect": "/tenants",
    f"POST {T}:unprotect": "/tenants",
    f"POST {T}:export": T,
    f"POST {T}:import": "/tenants",
    f"GET {T}/usage": f"{T}/usage",
    f"GET {T}/audit": f"{T}/audit",
    "GET /audit": "/audit",
    f"GET {T}/devices": f"{T}/devices",
    f"POST {T}/devices": f"{T}/devices",
    f"POST {T}/devices:import": f"{T}/devices",
    f"GET {T}/devices/{{device}}": DEVICE,
    f"DELETE {T}/devices/{{device}}": DEVICE,
    f"POST {T}/devices/{{device}}:rotate-secret": DEVICE,
    f"PUT {T}/devices/{{device}}/password": DEVICE,
    f"PUT {T}/devices/{{device}}/certificate": DEVICE,
    f"POST {T}/devices/{{device}}:set-jwt": DEVICE,
    f"POST {T}/devices/{{device}}:enable": DEVICE,
    f"POST {T}/devices/{{device}}:disable": DEVICE,
    f"GET {T}/devices/{{device}}/quotas": DEVICE,
    f"PATCH {T}/devices/{{device}}/quotas": DEVICE,
    f"GET {T}/devices/{{device}}/quotas:effective": DEVICE,
    f"GET {T}/groups": f"{T}/groups",
    f"POST {T}/groups": f"{T}/groups",
    f"DELETE {T}/groups/{{name}}": f"{T}/groups",
    f"PUT {T}/groups/{{name}}/devices/{{device}}": f"{T}/groups",
    f"DELETE {T}/groups/{{name}}/devices/{{device}}": f"{T}/groups",
    f"GET {T}/acl-rules": f"{T}/rules",
    f"POST {T}/acl-rules": f"{T}/rules",
    f"POST {T}/acl-rules:import": f"{T}/rules",
    f"DELETE {T}/acl-rules/{{number}}": f"{T}/rules",
    f"GET {T}/acl:test": f"{T}/rules",
    f"GET {T}/bans": f"{T}/bans",
    f"POST {T}/bans": f"{T}/bans",
    f"DELETE {T}/bans": f"{T}/bans",
    f"GET {T}/failure-bans": f"{T}/bans",
    f"DELETE {T}/failure-bans/{{device}}": f"{T}/bans",
    f"GET {T}/token-issuers": f"{T}/token-issuers",
    f"POST {T}/token-issuers": f"{T}/token-issuers",
    f"GET {T}/token-issuers/{{name}}": ISSUER,
    f"PATCH {T}/token-issuers/{{name}}": ISSUER,
    f"DELETE {T}/token-issuers/{{name}}": ISSUER,
    f"GET {T}/streams": f"{T}/streams",
    f"POST {T}/streams": f"{T}/streams",
    f"GET {T}/streams/{{name}}": STREAM,
    f"DELETE {T}/streams/{{name}}": STREAM,
    f"GET {T}/quotas": f"{T}/quotas",
    f"PATCH {T}/quotas": f"{T}/quotas",
    f"GET {T}/quotas:effective": f"{T}/quotas",
    "GET /plans": "/plans",
    "POST /plans": "/plans",
    "GET /plans/{name}": PLAN,
    "PATCH /plans/{name}": PLAN,
    "DELETE /plans/{name}": "/plans",
    f"GET {T}/clients": f"{T}/clients",
    f"GET {T}/clients:top": f"{T}/clients",
    f"GET {T}/clients/{{client_id}}": CLIENT,
    f"POST {T}/clients/{{client_id}}:kick": CLIENT,
    f"GET {T}/sessions": f"{T}/sessions",
    f"GET {T}/sessions/{{client_id}}": SESSION,
    f"DELETE {T}/sessions/{{client_id}}": SESSION,
    f"GET {T}/queues": f"{T}/queues",
    f"GET {T}/queued-messages/{{client_id}}": SESSION,
    f"DELETE {T}/queued-messages/{{client_id}}": SESSION,
    f"GET {T}/subscriptions": f"{T}/subscriptions",
    f"GET {T}/share-groups": f"{T}/share-groups",
    f"POST {T}/messages": f"{T}/subscriptions",
    f"GET {T}/retained": f"{T}/retained",
    f"DELETE {T}/retained": f"{T}/retained",
    f"GET {T}/retained/{{topic}}": f"{T}/retained/{{topic:path}}",
    f"GET {T}/rejected": f"{T}/rejected",
    "GET /rejected": "/rejected",
    f"POST {T}/explain:connect": f"{T}/explain",
    f"POST {T}/explain:publish": f"{T}/explain",
    f"POST {T}/explain:subscribe": f"{T}/explain",
    f"GET {T}/traces": f"{T}/traces",
    f"POST {T}/traces": f"{T}/traces",
    f"GET {T}/traces/{{trace}}": TRACE,
    f"DELETE {T}/traces/{{trace}}": TRACE,
    f"GET {T}/traces/{{trace}}/log": TRACE,
    f"POST {T}/traces/{{trace}}:stop": TRACE,
    "GET /status": "/",
    "GET /metrics": "/",
    "GET /metrics/tenants": "/",
    "GET /alarms": "/alarms",
    "GET /nodes": "/nodes",
    "POST /nodes/{node}:drain": "/nodes",
    "POST /nodes/{node}:resume": "/nodes",
    "POST /nodes/{node}:evict": "/nodes",
    "GET /events/lag": "/session-log",
    "GET /doctor": "/doctor",
    "GET /config": "/settings",
    "POST /config:reload": "/settings",
    "GET /features": "/settings",
    "GET /jobs": "/jobs",
    "GET /jobs/{name}": JOB,
    "POST /jobs/{name}:run": JOB,
    "POST /jobs/{name}:forget": JOB,
    "GET /jobs/{name}/runs": JOB,
    "GET /runs": "/jobs",
    "GET /runs/{number}": RUN,
    "POST /runs/{number}:cancel": RUN,
    "GET /runs/{number}/log": RUN,
    "GET /runs/{number}/report": RUN,
    "GET /runs/{number}/plots": RUN,
    "GET /runs/{number}/plots/{plot}": RUN,
    **{
        f"{verb} {path}": page
        for path, page in (("/api-keys", "/keys"), ("/users", "/users"))
        for verb in ("GET", "POST")
    },
    **{f"POST /api-keys/{{name}}:{verb}": "/keys" for verb in ("rotate", "disable", "enable")},
    **{f"POST /users/{{name}}:{verb}": "/users" for verb in ("set-password", "disable", "enable")},
    "DELETE /api-keys/{name}": "/keys",
    "DELETE /users/{name}": "/users",
    **{
        f"{verb} {of}/webhooks{rest}": f"{of}/webhooks{page}"
        for of in ("", T)
        for verb, rest, page in (
            ("GET", "", ""),
            ("POST", "", ""),
            ("GET", "/{name}", "/{name}"),
            ("PATCH", "/{name}", "/{name}"),
            ("DELETE", "/{name}", "/{name}"),
            ("GET", "/{name}/attempts", "/{name}"),
            ("POST", "/{name}:rotate", "/{name}"),
            ("POST", "/{name}:test", "/{name}"),
        )
    },
}


@pytest.fixture(scope="module")
def operations() -> dict[str, str]:
    """Every operation of REST with its scope."""
    paths = openapi_of(make_paths("1"))["paths"]
    return {
        f"{verb.upper()} {path.removeprefix(PREFIX)}": operation["x-scope"]
        for path, verbs in paths.items()
        for verb, operation in verbs.items()
    }


def test_every_operation_has_a_page_or_a_reason(operations: dict[str, str]) -> None:
    assert sorted(operations) == sorted([*PAGES, *WITHOUT])


def test_only_reading_is_left_out(operations: dict[str, str]) -> None:
    """A change that no page offers is a gap, whatever the reason."""
    assert {each for each in WITHOUT if not each.startswith("GET ")} == {"POST /auth/login", "POST /auth/logout"}


def test_page_is_open_to_every_role_that_has_the_operation(operations: dict[str, str]) -> None:
    entries = {entry.path: entry for entry in frame.ENTRIES if entry.module in {page.__name__ for page in app.PAGES}}
    hidden = {
        (operation, page, role.value)
        for operation, page in PAGES.items()
        for role, scopes in SCOPES_OF.items()
        if role != "scrape" and operations[operation] in scopes and entries[page].scope not in scopes
    }

    assert hidden == set()


def test_guide_names_every_path(operations: dict[str, str]) -> None:
    """Its table has the last word of each path, and the verb behind it."""
    guide = Path(__file__).resolve().parents[3] / "docs" / "guide" / "rest.md"
    table = guide.read_text(encoding="utf-8").partition("## What is there")[2].partition("Not there:")[0]
    named = set(re.findall(r":?[a-z][a-z.-]*", " ".join(re.findall(r"`([^`]+)`", table))))
    words = {word for each in operations for word in _words(each.partition(" ")[2])}

    assert words - named == set()


def _words(path: str) -> list[str]:
    last, _, verb = re.sub(r"/?\{[^}]*\}", "", path).rpartition("/")[2].partition(":")
    return [word for word in (last, f":{verb}" if verb else "") if word]


@pytest.mark.parametrize(
    ("path", "words"), [("/tenants/{tenant}:export", ["tenants", ":export"]), ("/a/b/{c}/d", ["d"]), ("/a/{b}", ["a"])]
)
def test_words_of_a_path(path: str, words: list[str]) -> None:
    assert _words(path) == words
