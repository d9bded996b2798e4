"""Each page of the platform and of a tenant, and each action, as somebody at a browser has them; REST says what came of it.

They are in iothub.dashboard.pages: iothub.dashboard.pages.tenant, iothub.dashboard.pages.rules and their like.
"""

from __future__ import annotations

import csv
import re
import urllib.request
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import expect

from tests.support.dashboard import Dashboard, all_named
from tests.support.page_actions import agree, choose, closed, confirm, fill, no_action, notified, press, row_action
from tests.support.waiting import PATIENCE_S, until

PAGES = (
    ("/", "Overview"),
    ("/tenants", "Tenants"),
    ("/plans", "Plans"),
    ("/plans/standard", "Plan standard"),
    ("/tenants/acme", "acme"),
    ("/tenants/acme/devices", "Devices"),
    ("/tenants/acme/devices/dev1", "dev1"),
    ("/tenants/acme/groups", "Groups"),
    ("/tenants/acme/rules", "Access rules"),
    ("/tenants/acme/bans", "Bans"),
    ("/tenants/acme/token-issuers", "Token issuers"),
    ("/tenants/acme/streams", "Streams"),
    ("/tenants/acme/webhooks", "Webhooks"),
    ("/webhooks", "Webhooks"),
    ("/account", "Account"),
    ("/tenants/acme/quotas", "Limits"),
    ("/tenants/acme/usage", "Usage"),
    ("/tenants/acme/audit", "Changes"),
)
CHANGING = [
    each for each in PAGES if re.search("plans|acme$|devices|rules|quotas|tenants$|issuers|streams|webhooks", each[0])
]
WIDE = [each for each in PAGES if re.fullmatch("/|/tenants/acme|.*devices|.*rules|.*quotas|/account", each[0])]
_HAS_POINTS = """() => {
    const chart = getElement(Number(document.querySelector(".io-chart").id.slice(1))).chart;
    return chart.getOption().series[0].data.length > 1;
}"""
_OUTSIDE = """() => [...document.querySelectorAll("td.io-acts, td.io-acts button")].filter((each) => {
    const own = each.getBoundingClientRect(), table = each.closest(".io-table").getBoundingClientRect();
    return own.width === 0 || own.left < table.left || own.right > table.right || table.right > innerWidth;
}).map((each) => each.outerHTML.slice(0, 200))"""
ADMIN, VIEWER = "platform-admin", "viewer"


def test_every_page_opens(served: Dashboard) -> None:
    """Watched are errors, dialogs and requests to other servers; everything has a name for a screen reader."""
    page = served.as_(ADMIN)
    for path, title in PAGES:
        served.open(page, path)

        expect(page.locator("main [role=heading][aria-level='1']")).to_have_text(title)
        assert page.locator(".io-problem").count() == 0, path
        all_named(page)


def test_page_that_is_not_there_says_so(served: Dashboard) -> None:
    page = served.as_(ADMIN, "/nowhere")

    expect(page.locator(".io-problem")).to_contain_text("there is no such page")
    served.open(page, "/tenants/nobody")
    expect(page.locator(".io-problem")).to_contain_text("there is no tenant 'nobody'")


def test_login(served: Dashboard) -> None:
    """Wrong: REST's text; right: where one wanted to go; logged out: nothing is there."""
    served("POST", "/users", {"name": "anna", "role": "viewer", "password": "correct horse battery"})
    page = served.anonymous()
    page.goto(served.base + "/tenants?prefix=a")
    assert page.url.endswith("/login?next=/tenants%3Fprefix%3Da")

    served.log_in(page, "anna", "wrong password", page.url.removeprefix(served.base))
    expect(page.locator("[role=alert]")).to_be_visible()
    served.log_in(page, "anna", path=page.url.removeprefix(served.base))
    page.wait_for_url("**/tenants?prefix=a")
    cookies = {each["name"]: each for each in page.context.cookies()}
    assert cookies["iothub"]["httpOnly"]
    assert cookies["iothub"]["sameSite"] == "Strict"
    other = page.context.new_page()
    served.open(other, "/")
    page.goto(served.base + "/logout")
    other.wait_for_url("**/login")  # open pages of the login show nothing more
    page.goto(served.base + "/")
    assert page.url.endswith("/login")


def test_page_of_another_server_cannot_log_in(served: Dashboard) -> None:
    sent = urllib.request.Request(
        served.base + "/login", b"name=anna&password=x", {"Origin": "http://evil.example"}, method="POST"
    )
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(sent)
    with refused.value as answer:
        assert answer.code == 403


def test_answers_forbid_what_is_from_elsewhere(served: Dashboard) -> None:
    with urllib.request.urlopen(served.base + "/login") as answer:
        policy = answer.headers["Content-Security-Policy"]
        text = answer.read().decode()

    assert "default-src 'none'" in policy
    assert "'unsafe-inline'" not in policy.partition("script-src")[2].partition(";")[0]
    assert "http" not in policy
    assert "https://" not in text


def test_tenant_is_created_changed_and_deleted(served: Dashboard) -> None:
    page = served.as_(ADMIN, "/tenants")
    press(page, "Create tenant")
    fill(page, "Name", "Not A Name")
    press(page, "Create")
    notified(page, "name: ")  # REST's own text: the dialogue stays
    expect(page.locator(".q-notification")).not_to_contain_text("body.")
    fill(page, "Name", "fresh")
    fill(page, "Display name", "Fresh Ltd")
    with served.following(page):
        press(page, "Create")
    assert page.url.endswith("/tenants/fresh")
    assert served("GET", "/tenants/fresh")["display_name"] == "Fresh Ltd"

    press(page, "Edit")
    fill(page, "Display name", "Fresher")
    with served.following(page):
        press(page, "Save")
    expect(page.locator("main .io-soft", has_text="Fresher")).to_be_visible()
    assert served("GET", "/tenants/fresh")["display_name"] == "Fresher"

    served.open(page, "/tenants?prefix=fresh")
    for action, field, value in (
        ("Suspend", "state", "suspended"),
        ("Resume", "state", "active"),
        ("Protect", "is_protected", True),
        ("Remove the protection", "is_protected", False),
    ):
        row_action(page, "fresh", action)
        agree(page, action)
        until(lambda field=field, value=value: served("GET", "/tenants/fresh")[field] == value, f"{action} is done")
        no_action(page, "fresh", action)
    row_action(page, "fresh", "Delete")
    sure = page.get_by_role("button", name="Delete", exact=True).last
    expect(sure).to_be_disabled()
    fill(page, "Name", "fresh")
    sure.click()
    notified(page, "being deleted")


def test_device_is_created_rotated_disabled_and_deleted(served: Dashboard) -> None:
    """The secret is shown once, and is one that works: REST has no other way to say it."""
    page = served.as_(ADMIN, "/tenants/acme/devices")
    press(page, "Create device")
    fill(page, "Name", "made-here")
    press(page, "Create")
    expect(page.get_by_text("Secret of made-here", exact=True)).to_be_visible()
    first = page.locator(".io-command code").last.inner_text()
    assert len(first) > 20
    press(page, "I have kept it")
    closed(page)
    assert served("GET", "/tenants/acme/devices/made-here")["credential"] == "generated"

    row_action(page, "made-here", "Rotate the secret")
    press(page, "Rotate")
    expect(page.get_by_text("Secret of made-here", exact=True)).to_be_visible()
    assert page.locator(".io-command code").last.inner_text() != first
    press(page, "I have kept it")
    closed(page)

    row_action(page, "made-here", "Disable")
    agree(page, "Disable")
    until(lambda: not served("GET", "/tenants/acme/devices/made-here")["is_enabled"], "it is disabled")
    no_action(page, "made-here", "Disable")
    row_action(page, "made-here", "Enable")
    until(lambda: served("GET", "/tenants/acme/devices/made-here")["is_enabled"], "it is enabled")
    no_action(page, "made-here", "Enable")
    row_action(page, "made-here", "Delete")
    confirm(page, "made-here", "Delete")
    notified(page, "is deleted")
    served("GET", "/tenants/acme/devices/made-here", status=404)


def test_devices_are_imported_from_a_file_or_none(served: Dashboard, tmp_path: Path) -> None:
    wrong, right = tmp_path / "wrong.csv", tmp_path / "right.csv"
    wrong.write_text("name,password\nbulk-1,\n<b>no name</b>,x\n")
    right.write_text("name,password\nbulk-1,\nbulk-2,\n")
    page = served.as_(ADMIN, "/tenants/acme/devices")

    press(page, "Import")
    page.set_input_files("input[type=file]", wrong)
    expect(page.locator(".q-dialog .io-code", has_text="line 3")).to_be_visible()
    expect(page.get_by_role("button", name="Import", exact=True).last).to_be_disabled()
    press(page, "Close")
    closed(page)
    press(page, "Import")
    page.set_input_files("input[type=file]", right)
    expect(page.get_by_text("2 devices would be created.")).to_be_visible()
    press(page, "Import")
    expect(page.get_by_text("2 secrets were made")).to_be_visible()
    with page.expect_download() as download:
        press(page, "Download the secrets")

    rows = list(csv.DictReader(Path(download.value.path()).read_text().splitlines()))
    assert [row["username"] for row in rows] == ["acme/bulk-1", "acme/bulk-2"]
    assert served("GET", "/tenants/acme/devices/bulk-2")["is_enabled"]


def test_list_is_paged_filtered_and_exported_by_the_server(served: Dashboard) -> None:
    served("POST", "/tenants", {"name": "paged"})
    rows = "".join(f"d-{number:03},secret{number:03}\n" for number in range(55))
    served.import_devices("paged", "name,password\n" + rows)
    page = served.as_(ADMIN, "/tenants/paged/devices")
    expect(page.get_by_text("1 to 50")).to_be_visible()

    press(page, "Next")
    expect(page.get_by_text("51 to 55")).to_be_visible()
    expect(page.get_by_text("d-054")).to_be_visible()
    press(page, "Previous")
    expect(page.get_by_text("1 to 50")).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type("d-01")
    expect(page.get_by_text("1 to 10")).to_be_visible()
    page.wait_for_url("**/devices?prefix=d-01")
    with page.expect_download() as download:
        page.get_by_role("link", name="CSV").click()

    rows = list(csv.DictReader(Path(download.value.path()).read_text().splitlines()))
    assert [row["name"] for row in rows] == [f"d-01{number}" for number in range(10)]
    page.locator("input[data-search]").fill("nobody")
    expect(page.get_by_text("Nothing matches the filter.")).to_be_visible()


def test_rules_are_added_tested_and_removed(served: Dashboard) -> None:
    page = served.as_(ADMIN, "/tenants/acme/rules")
    press(page, "Add rule")
    fill(page, "Subject", "dev1")
    choose(page, "Effect", "deny")
    fill(page, "Topic Filter", "secret/#")
    press(page, "Add")
    notified(page, "in force")
    closed(page)

    fill(page, "Device", "dev1")
    fill(page, "Topic, or Topic Filter", "secret/x")
    press(page, "Test")
    expect(page.locator("form .io-badge")).to_have_text("deny")
    expect(page.locator("form .io-code")).to_contain_text("deny dev1 both secret/#")
    closed(page)
    row_action(page, "secret/#", "Remove")
    agree(page, "Remove")
    notified(page, "is removed")
    assert [row for row in served("GET", "/tenants/acme/acl-rules")["items"] if row["filter"] == "secret/#"] == []


def test_groups_and_their_members(served: Dashboard) -> None:
    page = served.as_(ADMIN, "/tenants/acme/groups")
    expect(page.get_by_text("iothub group create acme NAME")).to_be_visible()
    press(page, "Create group")
    fill(page, "Name", "north")
    press(page, "Create")
    row_action(page, "north", "Change members")
    fill(page, "Device", "dev2")
    press(page, "Do it")
    notified(page, "dev2 is in north")
    assert served("GET", "/tenants/acme/groups/north")["devices"] == ["dev2"]
    closed(page)
    row_action(page, "north", "Delete")
    agree(page, "Delete")
    notified(page, "Group north is deleted")


def test_bans_are_added_and_lifted(served: Dashboard) -> None:
    page = served.as_(ADMIN, "/tenants/acme/bans")
    press(page, "Add ban")
    fill(page, "Who", "dev2")
    fill(page, "Reason", "noisy")
    press(page, "Ban")
    notified(page, "dev2 is banned")
    assert served("GET", "/tenants/acme/bans")["items"][0]["reason"] == "noisy"
    closed(page)
    row_action(page, "dev2", "Lift")
    agree(page, "Lift")
    notified(page, "is lifted")
    assert served("GET", "/tenants/acme/bans")["items"] == []


def test_limit_is_changed_and_a_change_in_between_is_not_overwritten(served: Dashboard) -> None:
    page = served.as_(ADMIN, "/tenants/acme/quotas")
    row_action(page, "connections", "Change")
    fill(page, "Value", "77")
    expect(page.locator(".io-diff-new")).to_have_text("77")
    press(page, "Save")
    notified(page, "is changed")
    assert served("GET", "/tenants/acme/quotas")["limits"] == {"connections": 77}

    closed(page)
    row_action(page, "publish_messages", "Change")
    fill(page, "Value", "5/1s,100/1d")
    served("PATCH", "/tenants/acme/quotas", {"limits": {"connections": 78}})
    press(page, "Save")
    notified(page, "it has changed since it was read")
    assert served("GET", "/tenants/acme/quotas")["limits"] == {"connections": 78}


def test_plan_is_created_changed_and_deleted(served: Dashboard) -> None:
    page = served.as_(ADMIN, "/plans")
    press(page, "Create plan")
    fill(page, "Name", "tiny")
    with served.following(page):
        press(page, "Create")
    assert page.url.endswith("/plans/tiny")
    press(page, "Set a limit")
    fill(page, "Limit", "connections")
    fill(page, "Value", "3")
    press(page, "Save")
    notified(page, "Plan tiny is changed")
    assert served("GET", "/plans/tiny")["limits"] == {"connections": 3}

    served.open(page, "/plans")
    row_action(page, "tiny", "Delete")
    confirm(page, "tiny", "Delete")
    notified(page, "Plan tiny is deleted")


def test_viewer_sees_everything_and_no_button_that_changes(served: Dashboard) -> None:
    page = served.as_(VIEWER)
    for path, _title in CHANGING:
        served.open(page, path)
        expect(page.locator("main [role=heading][aria-level='1']")).to_be_visible()
        names = set(
            page.locator("main")
            .get_by_role("button")
            .evaluate_all("found => found.map(e => e.ariaLabel || e.innerText)")
        )
        changing = {name for name in names if not re.match(r"Copy|By |In total|Test|First|Previous|Next|$", name)}
        assert changing == set(), path


def test_tenant_viewer_sees_its_tenant_alone(served: Dashboard) -> None:
    served("POST", "/tenants", {"name": "hidden"})
    page = served.as_("tenant-viewer", "/", tenant="acme")
    assert page.url.endswith("/tenants/acme")
    links = page.locator("nav a").evaluate_all("found => found.map(e => e.getAttribute('href'))")
    assert links != []
    assert [link for link in links if not link.startswith("/tenants/acme")] == []

    for path in ("/tenants/hidden", "/tenants/hidden/devices", "/tenants/hidden/retained", "/tenants/hidden/audit"):
        served.open(page, path)
        expect(page.locator(".io-problem")).to_contain_text("there is no tenant 'hidden'")
        assert page.locator("main button").count() == 0, path
    for path in ("/tenants", "/plans"):
        served.open(page, path)
        expect(page.locator(".io-problem")).to_contain_text("does not have the scope")


def test_export_is_refused_as_rest_refuses_it(served: Dashboard) -> None:
    page = served.as_("tenant-viewer", "/", tenant="acme")

    answer = page.request.get(served.base + "/export.csv?list=/tenants/hidden/devices&fields=name")
    assert answer.status == 404
    assert page.request.get(served.base + "/export.csv?list=/../../login&fields=name").status in (404, 422)
    assert page.request.get(served.base + "/export.csv?list=/whoami&fields=name").status == 422
    anonymous = served.anonymous()
    assert anonymous.request.get(served.base + "/export.csv?list=/tenants&fields=name").status == 401
    anonymous.close()


def test_socket_needs_a_login(served: Dashboard) -> None:
    anonymous = served.anonymous()
    answer = anonymous.request.get(served.base + "/_nicegui_ws/socket.io/?EIO=4&transport=polling")
    assert answer.status == 403
    anonymous.close()


def test_nobody_without_a_login_gets_a_page_or_sends_a_file(served: Dashboard) -> None:
    """Pages and files would be kept for whoever asks."""
    forged = {"Cookie": "iothub=" + "a" * 43}
    with httpx.Client(base_url=served.base) as client:
        page = client.get("/tenants?prefix=a", headers=forged)
        sent = client.post("/_nicegui/client/1/upload/1", headers=forged, content=b"a" * 100)

    assert (page.status_code, page.headers["location"], page.content) == (303, "/login?next=/tenants%3Fprefix%3Da", b"")
    assert sent.status_code == 403


def test_file_that_is_too_large_is_not_read(served: Dashboard) -> None:
    """Nor one that does not say how long it is."""
    page = served.as_(VIEWER)
    cookie = "; ".join(f"{each['name']}={each['value']}" for each in page.context.cookies())
    for length in ({"Content-Length": str(17 << 20)}, {"Transfer-Encoding": "chunked"}):
        with closing(HTTPConnection("127.0.0.1", served.port, timeout=PATIENCE_S)) as sent:
            sent.putrequest("POST", "/_nicegui/client/1/upload/1")
            for name, value in {"Cookie": cookie, **length}.items():
                sent.putheader(name, value)
            sent.endheaders()

            assert sent.getresponse().status == 413


def test_phone_has_a_drawer_and_nothing_that_is_too_wide(served: Dashboard) -> None:
    page = served.as_(ADMIN, phone=True)
    for path, _title in WIDE:
        served.open(page, path)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, path
    brand = page.locator(".io-brand")
    expect(brand).not_to_be_in_viewport()
    page.get_by_role("button", name="Navigation").click()
    expect(brand).to_be_in_viewport()


@pytest.mark.parametrize("width", [360, 1400])
@pytest.mark.parametrize("path", ["/tenants", "/tenants/acme/devices", "/tenants/acme/rules"])
def test_actions_of_a_row_are_inside_of_the_table(served: Dashboard, path: str, width: int) -> None:
    """They stand still at its right edge while the other columns are scrolled, each of them to be seen and pressed."""
    page = served.as_(ADMIN, path)
    page.set_viewport_size({"width": width, "height": 800})
    expect(page.locator("td.io-acts button").first).to_be_in_viewport(ratio=1)

    assert page.evaluate(_OUTSIDE) == []


def test_charts_and_figures_follow_the_hub(served: Dashboard) -> None:
    """The sampler reads every five seconds; the page is told without being loaded again."""
    page = served.as_(ADMIN)

    expect(page.locator(".io-figure", has_text="Connections").locator(".io-figure-value")).to_have_text("0")
    page.wait_for_function(_HAS_POINTS)
