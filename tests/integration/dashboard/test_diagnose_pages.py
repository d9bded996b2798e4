"""Pages that say why: explain and traces, as somebody at a browser has them.

iothub.dashboard.pages.explain, iothub.dashboard.pages.traces, iothub.dashboard.pages.mqtt.
"""

from __future__ import annotations

import json
import re
from contextlib import closing
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.support.clients.raw import RawClient
from tests.support.dashboard import Dashboard
from tests.support.page_actions import agree, choose, fill, notified, press

BASE = "/tenants/probe"
PAYLOAD = "<img src=x onerror=alert(1)>"
ADMIN = "platform-admin"


@pytest.fixture(scope="module", autouse=True)
def secret(served: Dashboard) -> str:
    served("POST", "/tenants", {"name": "probe", "client_id_policy": "owner"})
    return str(served("POST", f"{BASE}/devices", {"name": "d1"})["secret"])


def test_refused_client_is_explained_from_its_row(served: Dashboard) -> None:
    """Every step that the hub reports is there, in its order, and the one that decides."""
    served("POST", f"{BASE}/bans", {"kind": "client_id", "value": "banned"})
    with closing(RawClient(served.hub.ports["tcp"])) as refused:
        refused.connect("banned", username="probe/d1", password="wrong")
    asked = {"device": "d1", "client_id": "banned"}
    known = served("POST", f"{BASE}/explain:connect", asked)
    page = served.as_(ADMIN, f"{BASE}/rejected")

    with served.following(page):
        page.locator("tr", has_text="banned").get_by_role("link", name="Explain this").first.click()

    expect(page.locator("main .io-badge").first).to_have_text("deny")
    expect(page.get_by_text(f"{known['deciding']['step']}: {known['deciding']['reason']}")).to_be_visible()
    steps = [each["step"] for hub in known["hubs"] for each in hub["steps"]]
    expect(page.locator("main tbody tr td:first-child")).to_have_text(steps)


def test_attempt_that_a_step_refused_which_is_not_tested_is_not_allowed_by_its_explanation(served: Dashboard) -> None:
    """A wrong password: the rule that decided stays on the page, and nothing is green, until the form asks about another client."""
    with closing(RawClient(served.hub.ports["tcp"])) as refused:
        refused.connect("forgetful", username="probe/d1", password="wrong")
    page = served.as_(ADMIN, f"{BASE}/rejected")

    with served.following(page):
        page.locator("tr", has_text="forgetful").get_by_role("link", name="Explain this").first.click()

    expect(page.get_by_text(re.compile(r"Refused at .*: wrong_secret"))).to_be_visible()
    expect(page.locator("main .io-badge").first).to_have_text("not tested")
    expect(page.get_by_text("No step refuses it; credential, Will Message: not tested here.")).to_be_visible()
    fill(page, "Other client id", "another")
    press(page, "Explain")
    expect(page.locator("main .io-badge").first).to_have_text("allow")
    expect(page.get_by_text("The attempt")).to_be_hidden()
    fill(page, "Other client id", "forgetful")
    press(page, "Explain")
    expect(page.get_by_text("The attempt")).to_be_visible()
    expect(page.locator("main .io-badge").first).to_have_text("not tested")


def test_publish_and_subscribe_are_explained_by_the_form(served: Dashboard) -> None:
    served("POST", f"{BASE}/acl-rules", {"subject": "d1", "effect": "deny", "action": "both", "filter": "no/#"})
    page = served.as_(ADMIN, f"{BASE}/explain")
    fill(page, "Device", "d1")
    for kind, field, allowed, verdict in (
        ("publish", "Topic", "yes/x", "allow"),
        ("publish", "Topic", "no/x", "deny"),
        ("subscribe", "Topic Filter", "no/x", "deny"),
    ):
        choose(page, "Packet", kind)
        fill(page, field, allowed)
        press(page, "Explain")

        expect(page.locator("main .io-badge").first).to_have_text(verdict)


def test_trace_is_started_read_live_stopped_downloaded_and_deleted(served: Dashboard, secret: str) -> None:
    page = served.as_(ADMIN, f"{BASE}/traces")
    press(page, "Start a trace")
    fill(page, "Client id, device, Topic Filter or address", "traced")
    fill(page, "Bytes of each payload", "100")
    with served.following(page):
        agree(page, "Start")
    with closing(RawClient(served.hub.ports["tcp"])) as client:
        client.connect("traced", username="probe/d1", password=secret)
        client.publish("a/b", PAYLOAD.encode(), 0)

        expect(page.locator("tr", has_text="PUBLISH").first).to_contain_text("a/b")
    assert page.locator("main img").count() == 0
    with served.following(page):
        press(page, "Stop")
    with page.expect_download() as download:
        page.get_by_role("link", name="Download").click()
    lines = [json.loads(line) for line in Path(download.value.path()).read_text().splitlines()]
    assert {line["event"] for line in lines} >= {"packet", "trace_ended"}
    press(page, "Delete")
    with served.following(page):
        agree(page, "Delete")

    expect(page.get_by_text("There is no trace.")).to_be_visible()
    assert served("GET", f"{BASE}/traces")["items"] == []


def test_client_has_both_ways_and_a_viewer_none_that_changes(served: Dashboard, secret: str) -> None:
    with closing(RawClient(served.hub.ports["tcp"])) as client:
        client.connect("both", username="probe/d1", password=secret)
        page = served.as_(ADMIN, f"{BASE}/clients/both")
        press(page, "Trace")
        expect(page.get_by_label("Client id, device, Topic Filter or address")).to_have_value("both")
        agree(page, "Cancel")
        with served.following(page):
            page.locator("main").get_by_role("link", name="Explain").click()
        expect(page.locator("main .io-badge").first).to_have_text("allow")

    viewer = served.as_("viewer", f"{BASE}/traces")
    expect(viewer.get_by_text("There is no trace.")).to_be_visible()
    assert viewer.get_by_role("button", name="Start a trace").count() == 0
    viewer.close()


def test_trace_of_another_tenant_is_not_there(served: Dashboard) -> None:
    page = served.as_("tenant-viewer", "/", tenant="acme")

    assert page.request.get(f"{served.base}/trace.jsonl?tenant=probe&trace=t-1").status == 404
    anonymous = served.anonymous()
    assert anonymous.request.get(f"{served.base}/trace.jsonl?tenant=probe&trace=t-1").status == 401
    anonymous.close()


def test_page_is_a_client_that_may_what_its_device_may(served: Dashboard, secret: str) -> None:
    """Messages are text, bytes that are none hexadecimal; a wrong password is refused as for anybody."""
    page = served.as_(ADMIN, f"{BASE}/mqtt")
    fill(page, "Device", "d1")
    fill(page, "Password", "wrong")
    fill(page, "Client id", "in-the-page")
    press(page, "Connect")
    refusal = page.locator(".q-notification", has_text="refused")
    expect(refusal).to_be_visible()
    expect(refusal.get_by_role("button", name="Close")).to_have_css("color", "rgb(255, 255, 255)")  # on red, 6.5 to 1
    fill(page, "Password", secret)
    press(page, "Connect")
    expect(page.locator("main .io-badge", has_text="connected")).to_be_visible()
    assert served("GET", f"{BASE}/clients/in-the-page")["device"] == "d1"

    fill(page, "Topic Filter", "in/#")
    press(page, "Subscribe")
    expect(page.locator(".q-notification", has_text="Subscribed")).to_be_visible()
    fill(page, "Topic", "in/1")
    fill(page, "Payload", PAYLOAD)
    press(page, "Publish")
    expect(page.locator("tr", has_text="in/1")).to_contain_text(PAYLOAD)
    fill(page, "Payload", '"' * 150_001)  # a browser sends no megabyte, and would leave what was there before
    press(page, "Publish")
    notified(page, "A payload of a page has at most 150,000 characters")
    fill(page, "Payload", '"' * 150_000)
    press(page, "Publish")
    expect(page.locator("tr", has_text="146")).to_have_count(1)
    fill(page, "Topic", "t" * 150_001)
    fill(page, "Payload", "nowhere")
    press(page, "Publish")
    notified(page, "a name or topic has more than 65535 bytes")
    with closing(RawClient(served.hub.ports["tcp"])) as client:
        client.connect("beside", username="probe/d1", password=secret)
        client.publish("in/2", b"\xff\x00", 0)
        expect(page.locator("tr", has_text="in/2")).to_contain_text("0x ff 00")
    assert page.locator("main img").count() == 0
    served("POST", f"{BASE}/clients/in-the-page:kick")

    expect(page.locator("main .io-badge", has_text="offline")).to_be_visible()


def test_tenant_that_has_done_nothing_says_so(served: Dashboard) -> None:
    served("POST", "/tenants", {"name": "silent"})

    page = served.as_(ADMIN, "/tenants/silent")

    said = page.get_by_text("No figures yet: the hub has them from the tenant's first client on")
    expect(said).to_be_visible()  # until the first sample is read it says that this comes


def test_client_of_a_page_is_of_the_viewers_tenant_alone(served: Dashboard) -> None:
    page = served.as_("tenant-admin", "/", tenant="acme")

    served.open(page, f"{BASE}/mqtt")

    expect(page.locator(".io-problem")).to_contain_text("there is no tenant 'probe'")
    assert page.get_by_role("button", name="Connect").count() == 0
