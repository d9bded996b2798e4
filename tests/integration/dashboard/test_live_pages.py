"""Pages of what a running hub knows, of jobs, settings and people, and their actions; REST says what came of it.

iothub.dashboard.pages.jobs, iothub.dashboard.pages.people, iothub.dashboard.pages.platform and others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing

import pytest
from playwright.sync_api import expect

from iothub_tenants.accounts import job_runs
from iothub_tenants.accounts.database import sqlite_url
from iothub_tenants.accounts.job_runs import Owner, Result
from iothub_tenants.accounts.store import AccountStore
from tests.support.clients.raw import RawClient
from tests.support.dashboard import Dashboard, all_named
from tests.support.page_actions import agree, closed, confirm, fill, notified, press, row_action
from tests.support.waiting import until

TENANT = "field"
CLIENT = "meter-1/<b>x"
BASE = f"/tenants/{TENANT}"
ID = "meter-1%2F%3Cb%3Ex"
PAGES = (
    (f"{BASE}/clients", "Connected clients"),
    (f"{BASE}/clients/pub", "pub"),
    (f"{BASE}/sessions", "Persistent sessions"),
    (f"{BASE}/sessions/{ID}", CLIENT),
    (f"{BASE}/queues", "Queues"),
    (f"{BASE}/subscriptions", "Subscriptions"),
    (f"{BASE}/share-groups", "Share groups"),
    ("/session-log", "Session log"),
    (f"{BASE}/retained", "Retained messages"),
    (f"{BASE}/retained/a%2Fkept", "a/kept"),
    (f"{BASE}/rejected", "Why can't it connect?"),
    ("/rejected", "Rejected without a tenant"),
    ("/alarms", "Alarms"),
    ("/nodes", "Hubs"),
    ("/jobs", "Jobs"),
    ("/jobs/insights", "insights"),
    ("/runs/1", "Run 1 of insights"),
    ("/audit", "Audit log"),
    ("/settings", "Settings"),
    ("/doctor", "Doctor"),
    ("/keys", "API keys"),
    ("/users", "Users"),
)
PAYLOAD = b"<img src=x onerror=alert(1)>"
SVG = "<svg width='60' height='30' viewBox='0 0 60 30'><path d='M0 30 L60 0' stroke='currentColor'/></svg>"


@pytest.fixture(scope="module")
def secret(served: Dashboard) -> str:
    served("POST", "/tenants", {"name": TENANT, "client_id_policy": "owner"})
    made = served("POST", f"{BASE}/devices", {"name": "d1"})
    reports = served.hub.data_dir / "archive" / "reports"
    reports.mkdir(parents=True)
    (reports / "insights-1.html").write_text(f"<html>{SVG}</html>")
    with closing(AccountStore(sqlite_url(served.hub.data_dir / "accounts.db"), pepper=b"x" * 32)) as store:
        run = job_runs.begin(store, "insights", {}, Owner("hub-1", 5, "me"))
        job_runs.end(store, run.id, Result.DONE, figures={"tenants": 2, "report": "insights-1.html"})
    return str(made["secret"])


@pytest.fixture
def client(served: Dashboard, secret: str) -> Iterator[RawClient]:
    """A connected client `pub`; beside it a session that is not connected and has a message queued, a retained message, a refused login."""
    port, name = served.hub.ports["tcp"], f"{TENANT}/d1"
    with closing(RawClient(port)) as session:
        session.connect(CLIENT, username=name, password=secret, clean=False)
        session.subscribe(("q/#", 1))
        session.disconnect()
    with closing(RawClient(port)) as refused:
        refused.connect("stranger", username=name, password="wrong")
    with closing(RawClient(port)) as made:
        made.connect("pub", username=name, password=secret, clean=False)
        made.publish("q/1", PAYLOAD, 1, 1)
        made.publish("a/kept", b"kept", 1, 2, retain=True)
        until(lambda: len(served("GET", f"{BASE}/queued-messages/{ID}")["items"]) > 0, "the message is queued")
        yield made


def test_every_live_page_opens(served: Dashboard, client: RawClient) -> None:
    page = served.as_("platform-admin")
    for path, title in PAGES:
        served.open(page, path)

        expect(page.locator("main [role=heading][aria-level='1']")).to_have_text(title)
        assert page.locator(".io-problem").count() == 0, path
        all_named(page)


def test_messages_are_shown_to_who_may_read_them(served: Dashboard, client: RawClient) -> None:
    """As text; a viewer sees that there are some."""
    for role, is_shown in (("platform-admin", True), ("viewer", False)):
        page = served.as_(role, f"{BASE}/sessions/{ID}")
        expect(page.get_by_text(PAYLOAD.decode()).first).to_be_visible(visible=is_shown)
        assert (page.get_by_text("it lacks the scope messages:read").count() == 0) is is_shown
        assert page.get_by_role("button", name="Discard").count() == int(is_shown)


def test_refused_client_is_there_with_the_rule(served: Dashboard, client: RawClient) -> None:
    page = served.as_("platform-admin", f"{BASE}/rejected")

    row = page.locator("tr", has_text="stranger").first
    (known, *_) = [each for each in served("GET", f"{BASE}/rejected")["items"] if each["client_id"] == "stranger"]
    expect(row).to_contain_text(known["rule"])
    expect(row).to_contain_text(known["reason"])


def test_client_is_kicked(served: Dashboard, client: RawClient) -> None:
    page = served.as_("platform-admin", f"{BASE}/clients/pub")

    press(page, "Kick")
    expect(page.get_by_text("iothub client kick field pub --yes")).to_be_visible()
    with served.following(page):
        agree(page, "Kick")

    assert page.url.endswith(f"{BASE}/clients")
    client.expect_closed()


def test_queue_is_purged_and_session_discarded(served: Dashboard, client: RawClient) -> None:
    page = served.as_("platform-admin", f"{BASE}/sessions/{ID}")

    press(page, "Purge the queue")
    with served.following(page):
        confirm(page, CLIENT, "Purge")
    assert served("GET", f"{BASE}/queued-messages/{ID}")["items"] == []
    press(page, "Discard")
    with served.following(page):
        confirm(page, CLIENT, "Discard")

    assert page.url.endswith(f"{BASE}/sessions")
    assert served("GET", f"{BASE}/sessions/{ID}", status=404)["code"] == "not_found"


def test_retained_messages_are_counted_then_deleted(served: Dashboard, client: RawClient) -> None:
    page = served.as_("platform-admin", f"{BASE}/retained?filter=a%2F%23")

    press(page, "Delete by filter")
    press(page, "Count")
    expect(page.get_by_text("1 retained messages match a/#.")).to_be_visible()
    assert len(served("GET", f"{BASE}/retained")["items"]) == 1
    confirm(page, "a/#", "Delete")

    notified(page, "are deleted")
    assert served("GET", f"{BASE}/retained")["items"] == []


def test_run_has_its_report_as_a_picture(served: Dashboard, secret: str) -> None:
    page = served.as_("platform-admin", "/runs/1")

    page.wait_for_function("() => document.querySelector('main img').naturalWidth > 0")


def test_page_of_a_run_follows_it_to_its_end(served: Dashboard, secret: str) -> None:
    """Nobody reloads it; the button goes with the end."""
    with closing(AccountStore(sqlite_url(served.hub.data_dir / "accounts.db"), pepper=b"x" * 32)) as store:
        run = job_runs.begin(store, "usage", {}, Owner("hub-1", 5, "me"))
        page = served.as_("platform-admin", f"/runs/{run.id}")
        expect(page.get_by_role("button", name="Cancel")).to_be_visible()

        job_runs.end(store, run.id, Result.DONE, figures={"tenants": 77}, text="it is over")

    expect(page.get_by_text("it is over")).to_be_visible()
    expect(page.get_by_text("77", exact=True)).to_be_visible()
    expect(page.get_by_role("button", name="Cancel")).to_have_count(0)


def test_key_is_shown_once_and_refused_when_it_is_deleted(served: Dashboard, secret: str) -> None:
    page = served.as_("platform-admin", "/keys")

    press(page, "Create key")
    fill(page, "Name", "portal")
    press(page, "Create")
    shown = page.get_by_text(re.compile(r"^iothub_[0-9a-f]{12}_")).first
    expect(shown).to_be_visible()
    key = shown.inner_text()
    press(page, "I have kept it")
    closed(page)
    assert served("GET", "/api-keys/portal")["prefix"] in key
    row_action(page, "portal", "Delete")
    confirm(page, "portal", "Delete")

    notified(page, "portal is deleted")
    assert served("GET", "/api-keys/portal", status=404)


def test_settings_are_read_again(served: Dashboard, secret: str) -> None:
    page = served.as_("platform-admin", "/settings")

    expect(page.get_by_text("listeners.tcp.port", exact=True)).to_be_visible()
    press(page, "Reload the hub's settings")
    press(page, "Reload")

    notified(page, "Reloaded")
