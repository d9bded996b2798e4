"""What the API says of a text that it refuses: the command line's sentence, and never a pattern (`iothub.rest.texts`, `iothub.rest.limit_values`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from iothub.rest import models
from iothub.rest.texts import EXPECTED, NO_NUL, Checked, sentence_of
from tests.support.in_process.rest_api import Api

HOOK = {"name": "pager", "url": "https://a.example"}
KEY = {"name": "ci", "role": "viewer"}


@pytest.mark.parametrize(
    ("path", "body", "sentence"),
    [
        ("/tenants", {"name": "Nobody !"}, "'Nobody !' cannot be a tenant name: expected 2 to 32 of a-z"),
        ("/tenants/acme/devices", {"name": "a b"}, "'a b' cannot be a device name: expected 1 to 128 of A-Z"),
        ("/tenants/acme/groups", {"name": "a b"}, "'a b' cannot be a group name: expected 1 to 64"),
        ("/tenants/acme/webhooks", {**HOOK, "name": "a b"}, "'a b' cannot be a webhook name: expected 1 to 64"),
        ("/tenants/acme/webhooks", {**HOOK, "url": "ftp://a.example"}, "the URL must begin with https:// or http://"),
        ("/tenants/acme/webhooks", {**HOOK, "events": ["alarm/*"]}, "an event of the platform, which no webhook"),
        ("/webhooks", {**HOOK, "url": "ftp://x"}, "the URL must begin with https:// or http://"),
        ("/webhooks", {**HOOK, "url": ""}, "the URL must begin with https:// or http://"),
        ("/webhooks", {**HOOK, "url": 5}, "expected a text"),
        ("/webhooks", {**HOOK, "events": []}, "expected 1 or more entries"),
        ("/webhooks", {**HOOK, "events": "*"}, "expected a list"),
        ("/tenants/acme/traces", {"kind": "client_id", "value": ""}, "expected 1 or more characters"),
        ("/tenants/acme/traces", {"kind": "none", "value": "x"}, "expected 'client"),
        ("/tenants", {"name": "new", "display_name": "a" * 201}, "expected 200 or fewer characters"),
        ("/plans", {"name": "a", "weight": 0}, "expected 1 or more"),
        ("/plans", {"name": "a", "weight": "x"}, "expected a whole number"),
        ("/webhooks", {**HOOK, "events": ["nothing"]}, "'nothing' is no event: expected one of *"),
        ("/plans", {"name": "A"}, "'A' cannot be a plan name: expected 1 to 64 of a-z"),
        ("/plans", {"name": "a", "limits": {"nobodys": 5}}, "unknown quota 'nobodys'"),
        ("/plans", {"name": "a", "limits": {"publish_messages": ["5/9h"]}}, "expected NUMBER/WINDOW such as"),
        ("/api-keys", {**KEY, "name": "a b"}, "'a b' cannot be a key name: expected 1 to 64"),
        ("/users", {**KEY, "name": "a b"}, "'a b' cannot be a user name: expected 1 to 64"),
        ("/tenants", {"name": "new", "display_name": "a\nb"}, "expected printable characters"),
    ],
)
def test_text_that_is_refused_has_a_sentence(api: Api, path: str, body: dict[str, object], sentence: str) -> None:
    answer = api.post(path, body)

    assert (answer.status, answer.code) == (422, "invalid")
    assert any(sentence in each["detail"] for each in answer.json["errors"]), answer.json


@pytest.mark.parametrize(
    ("query", "detail"),
    [
        ("limit=abc", "query.limit: expected a whole number"),
        ("limit=0", "query.limit: expected 1 or more"),
        ("limit=1001", "query.limit: expected 1000 or less"),
    ],
)
def test_parameter_that_is_refused_has_a_sentence(api: Api, query: str, detail: str) -> None:
    assert api.get(f"/tenants?{query}").json["detail"] == detail


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        ({"limits": {"publish_messages": ["50/1q"]}}, "body.limits.publish_messages: expected NUMBER/WINDOW such as"),
        ({"limits": {"publish_messages": [5]}}, "body.limits.publish_messages: expected NUMBER/WINDOW such as"),
        (
            {"limits": {"connections": "many"}},
            'body.limits.connections: expected a whole number, "unlimited" or a list',
        ),
        ({"limits": {"connections": True}}, 'body.limits.connections: expected a whole number, "unlimited" or a list'),
        ({"limits": {"conections": 5}}, "body.limits.conections: unknown quota 'conections'"),
        ({"limits": []}, "body.limits: expected an object"),
        ([], "body: expected an object"),
    ],
)
def test_limit_that_is_refused_has_one_sentence_and_its_own_name(api: Api, body: object, detail: str) -> None:
    """In `detail`, which is all that the dashboard and the command line show."""
    answer = api("PATCH", "/tenants/acme/quotas", body)

    assert (answer.status, len(answer.json["errors"])) == (422, 1)
    assert answer.json["detail"].startswith(detail)


def test_every_pattern_has_a_sentence(api: Api) -> None:
    """A new one is checked by the accounts, or has its sentence in the table."""
    kinds = [part for value in vars(models).values() for part in getattr(value, "__metadata__", ())]
    checked = {part.pattern for part in kinds if isinstance(part, Checked)}

    found = set(_patterns(api.get("/openapi.json").json))

    assert found - checked <= EXPECTED.keys()
    assert sentence_of({"type": "string_pattern_mismatch", "ctx": {"pattern": NO_NUL}}) == EXPECTED[NO_NUL]


def _patterns(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        yield from (value for name, value in part.items() if name == "pattern" and isinstance(value, str))
    for each in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
        yield from _patterns(each)
