"""No link of the dashboard is dead: every page that links lead to from the start, and every link on it, answers.

iothub.dashboard.frame, iothub.dashboard.table and the pages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Page

from iothub.dashboard import app, frame
from tests.support.clients.raw import RawClient
from tests.support.dashboard import Dashboard
from tests.support.waiting import until

TENANT = "linked"
T = f"/tenants/{TENANT}"
OF_A_KIND = 2  # pages of one kind that are opened, such as those of devices; links to the others are asked for, as many of each kind
ASKED_OF_A_KIND = 6
ELSEWHERE = ("/logout", "/doctor")  # ends the login; asks every server
OTHER = ("/tenants/", "/webhooks/", "/runs/", "/plans/")  # what other tests have left is not opened: it goes meanwhile
_LINKS = """() => [...document.querySelectorAll("a[href]")].map((each) => each.getAttribute("href"))"""


@pytest.fixture
def filled(served: Dashboard) -> Iterator[Dashboard]:
    """A tenant that has one of each, in which a client is connected."""
    served("POST", "/tenants", {"name": TENANT, "plan": "unlimited", "client_id_policy": "owner"})
    served("POST", f"{T}/groups", {"name": "sensors"})
    served("POST", f"{T}/devices", {"name": "d1", "password": "secret", "groups": ["sensors"]})
    rule = {"subject": "@sensors", "effect": "deny", "action": "publish", "filter": "config/#"}
    served("POST", f"{T}/acl-rules", rule)
    served("POST", f"{T}/bans", {"kind": "client_id", "value": "a/b c", "reason": "a test"})
    served("POST", f"{T}/token-issuers", {"name": "fleet", "algorithm": "HS256", "secret": "s" * 32})
    served("POST", f"{T}/webhooks", {"name": "pager", "url": "https://hooks.example.com/"})
    trace = served("POST", f"{T}/traces", {"kind": "client", "value": "c/<1>"})["name"]
    port, name = served.hub.ports["tcp"], f"{TENANT}/d1"
    with closing(RawClient(port)) as client:
        client.connect("c/<1>", username=name, password="secret", clean=False)
        client.subscribe(("$share/g/q/#", 1), ("a/#", 1))
        client.publish("a/kept", b"kept", 1, 2, retain=True)
        with closing(RawClient(port)) as refused:
            refused.connect("stranger", username=name, password="wrong")
        until(lambda: served("GET", f"{T}/rejected")["items"], "the refusal is known")
        yield served
    served("POST", f"{T}/traces/{trace}:stop")


def kind_of(path: str) -> str:
    """The page that a path is of, such as /tenants/{tenant}/devices/{device}."""
    parts = path.strip("/").split("/")
    for entry in sorted(frame.ENTRIES, key=lambda each: each.path.count("{")):
        wanted = entry.path.strip("/").split("/")
        is_same = len(wanted) == len(parts) and all(
            want.startswith("{") or want == part for want, part in zip(wanted, parts, strict=True)
        )
        if is_same and entry.path != "/{path:path}":
            return entry.path
    return path


def is_others(path: str) -> bool:
    return path.startswith(OTHER) and not path.startswith((T, "/plans/standard"))


def links_of(page: Page) -> list[str]:
    return [str(href) for href in page.evaluate(_LINKS)]


def test_kind_of_a_path() -> None:
    assert app.PAGES
    assert kind_of("/tenants/acme/devices/d1") == "/tenants/{tenant}/devices/{device}"
    assert kind_of("/tenants/acme/devices") == "/tenants/{tenant}/devices"
    assert kind_of("/export.csv") == "/export.csv"


def test_every_link_of_every_page_answers(filled: Dashboard) -> None:
    page = filled.as_("platform-admin")
    waiting, known = ["/", T], {"/", T}
    opened: Counter[str] = Counter()
    asked: Counter[str] = Counter()
    wrong: list[str] = []
    while waiting:
        here = waiting.pop(0)
        filled.open(page, here)
        opened[kind_of(urlsplit(here).path)] += 1
        for href in links_of(page):
            target = urlsplit(href)
            if href == "#main" or target.path in ELSEWHERE:
                continue
            if target.scheme or target.netloc or not target.path.startswith("/"):
                wrong.append(f"{here} links to {href!r}")
                continue
            link = href.partition("#")[0]
            if link in known or is_others(target.path):
                continue
            known.add(link)
            kind = kind_of(target.path)
            if target.path == "/export.csv" or target.path == "/trace.jsonl":
                kind = f"{target.path} {kind_of(urlsplit(parse_qs(target.query).get('list', [''])[0]).path)}"
            elif opened[kind] + sum(kind_of(urlsplit(each).path) == kind for each in waiting) < OF_A_KIND:
                waiting.append(link)
                continue
            if asked[kind] < ASKED_OF_A_KIND:
                asked[kind] += 1
                answer = page.request.get(filled.base + link)
                if answer.status != 200:
                    wrong.append(f"{here} links to {href!r}: {answer.status}")

    assert wrong == []
    assert {entry.path for entry in frame.ENTRIES if entry.icon} - {"/doctor"} <= opened.keys()
    assert {f"{T}/devices/d1", f"{T}/sessions/c%2F%3C1%3E", f"{T}/retained/a%2Fkept"} <= known
