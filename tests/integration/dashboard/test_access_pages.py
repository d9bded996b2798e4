"""Pages of webhooks, streams, token issuers, subscriptions and the own account; a tenant as a file; and what ends with a login.

iothub.dashboard.pages.webhooks, iothub.dashboard.pages.streams, iothub.dashboard.pages.issuers, iothub.dashboard.pages.subscriptions,
iothub.dashboard.pages.account, iothub.dashboard.tenant_files, iothub.dashboard.rule_files, iothub.dashboard.publish and
iothub.dashboard.open_pages.
"""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest
from playwright.sync_api import expect

from iothub_tenants.accounts import streams
from iothub_tenants.accounts.database import sqlite_url
from iothub_tenants.accounts.store import AccountStore
from iothub_tenants.accounts.streams import Wanted
from tests.support.clients.packets import PUBLISH
from tests.support.clients.raw import RawClient
from tests.support.dashboard import PASSWORD, Dashboard, all_named
from tests.support.page_actions import agree, choose, closed, confirm, fill, notified, press, row_action
from tests.support.waiting import until

BASE = "/tenants/access"
ADMIN = "platform-admin"
HOSTILE = "https://example.com/<b>x"


@pytest.fixture(scope="module", autouse=True)
def secret(served: Dashboard) -> str:
    served("POST", "/tenants", {"name": "access", "client_id_policy": "owner"})
    with closing(AccountStore(sqlite_url(served.hub.data_dir / "accounts.db"), pepper=b"x" * 32)) as store:
        streams.create(store, "access", Wanted("telemetry", "telemetry/#"))  # REST asks Kafka, which is not here
    return str(served("POST", f"{BASE}/devices", {"name": "d1"})["secret"])


def test_webhook_is_created_tested_changed_rotated_and_deleted(served: Dashboard) -> None:
    page = served.as_(ADMIN, f"{BASE}/webhooks")
    press(page, "Create webhook")
    fill(page, "Name", "pager")
    fill(page, "URL", HOSTILE)
    fill(page, "Events", "client/*, quota/exceeded")
    all_named(page)
    press(page, "Create")
    first = page.locator(".io-command code", has_text="whsec_").inner_text()
    press(page, "I have kept it")
    closed(page)
    expect(page.locator("tr", has_text=HOSTILE)).to_be_visible()
    assert served("GET", f"{BASE}/webhooks/pager")["events"] == ["client/*", "quota/exceeded"]

    with served.following(page):
        page.locator("main").get_by_role("link", name="pager").click()
    expect(page.get_by_text("Nothing has been delivered yet.")).to_be_visible()
    press(page, "Change")
    fill(page, "URL", "https://127.0.0.1:1/x")
    press(page, "Save")
    notified(page, "is not public")
    fill(page, "URL", "https://localhost:1/x")
    page.get_by_role("checkbox").click()
    with served.following(page):
        press(page, "Save")
    expect(page.locator("main .io-badge", has_text="disabled")).to_be_visible()
    press(page, "Send a test")
    notified(page, "The test is not delivered")
    press(page, "Replace the secret")
    press(page, "Replace")
    expect(page.locator(".io-command code", has_text="whsec_")).not_to_have_text(first)
    press(page, "I have kept it")
    closed(page)
    press(page, "Delete")
    with served.following(page):
        confirm(page, "pager", "Delete")

    expect(page.get_by_text("No webhooks yet.")).to_be_visible()


def test_token_issuer_is_added_changed_and_removed(served: Dashboard) -> None:
    """A key set that is no JSON is refused by the page; everything else by REST."""
    page = served.as_(ADMIN, f"{BASE}/token-issuers")
    press(page, "Add token issuer")
    fill(page, "Name", "fleet")
    choose(page, "Key", "a JSON Web Key Set")
    fill(page, "Key itself", "{")
    press(page, "Add")
    notified(page, "The key set is not taken: expected JSON")
    choose(page, "Key", "a shared secret")
    fill(page, "Shared secret", "x" * 40)
    fill(page, "Audience (aud)", "iothub")
    all_named(page)
    press(page, "Add")
    notified(page, "fleet is trusted")

    closed(page)
    with served.following(page):
        page.locator("main").get_by_role("link", name="fleet").click()
    expect(page.get_by_text("a shared secret, which is never shown")).to_be_visible()
    press(page, "Change")
    fill(page, "Issuer (iss)", "https://login.example")
    with served.following(page):
        press(page, "Save")
    found = served("GET", f"{BASE}/token-issuers/fleet")
    assert (found["issuer"], found["audience"]) == ("https://login.example", "iothub")
    press(page, "Remove")
    with served.following(page):
        agree(page, "Remove")
    expect(page.get_by_text("No token issuers")).to_be_visible()


def test_rules_are_imported_from_a_file_or_none(served: Dashboard, tmp_path: Path) -> None:
    page = served.as_(ADMIN, f"{BASE}/rules")
    press(page, "Import")
    file = tmp_path / "rules.csv"
    file.write_text("subject,effect,action,filter\nghost,allow,both,a\n")
    page.set_input_files("input[type=file]", file)
    expect(page.get_by_text("tenant access has no device 'ghost'")).to_be_visible()
    expect(page.locator(".q-dialog").get_by_role("button", name="Import", exact=True)).to_be_disabled()
    all_named(page)
    file.write_text("subject,effect,action,filter\nd1,allow,both,imported/#\n")
    page.set_input_files("input[type=file]", file)
    expect(page.get_by_text("1 rules would be added, 0 are there already.")).to_be_visible()
    press(page, "Import")
    expect(page.get_by_text("1 rules are added.")).to_be_visible()

    assert "imported/#" in {row["filter"] for row in served("GET", f"{BASE}/acl-rules")["items"]}


def test_device_logs_in_with_a_certificate_then_with_a_token(served: Dashboard) -> None:
    served("POST", f"{BASE}/devices", {"name": "by-other"})
    page = served.as_(ADMIN, f"{BASE}/devices/by-other")
    press(page, "Other login")
    fill(page, "Subject", "CN=by-other")
    all_named(page)
    press(page, "Set")
    notified(page, "by-other now logs in with a certificate.")
    assert served("GET", f"{BASE}/devices/by-other")["credential"] == "x509"
    closed(page)
    press(page, "Other login")
    page.get_by_label("Logs in with", exact=True).click()
    page.get_by_role("option", name="a token (JWT) of a token issuer").click()
    press(page, "Set")
    notified(page, "by-other now logs in with a token.")

    assert served("GET", f"{BASE}/devices/by-other")["credential"] == "jwt"


def test_stream_is_shown_and_deleted_by_its_name(served: Dashboard) -> None:
    """Kafka is not here: what REST says about that is shown, for a new one and for the topic of one that goes."""
    page = served.as_(ADMIN, f"{BASE}/streams")
    expect(page.locator("tr", has_text="iothub.access.telemetry")).to_be_visible()
    press(page, "Create stream")
    fill(page, "Name", "more")
    fill(page, "Topic Filter", "more/#")
    fill(page, "Kept for (hours)", "12")
    all_named(page)
    press(page, "Create")
    notified(page, "kafka.brokers")
    page.keyboard.press("Escape")
    closed(page)

    with served.following(page):
        page.locator("main").get_by_role("link", name="telemetry").click()
    expect(page.get_by_text("out: devices to Kafka")).to_be_visible()
    press(page, "Delete")
    page.get_by_role("checkbox").click()
    with served.following(page):
        confirm(page, "telemetry", "Delete")
    assert served("GET", f"{BASE}/streams")["items"] == []


def test_subscriptions_lead_to_their_client_and_groups_to_theirs(served: Dashboard, secret: str) -> None:
    with closing(RawClient(served.hub.ports["tcp"])) as client:
        client.connect("<i>one", username="access/d1", password=secret)
        client.subscribe(("a/#", 1), ("$share/workers/b/+", 0))
        page = served.as_(ADMIN, f"{BASE}/share-groups")
        with served.following(page):
            page.locator("main").get_by_role("link", name="workers").click()
        expect(page.locator("main tbody tr")).to_have_count(1)
        with served.following(page):
            page.locator("main").get_by_role("link", name="<i>one").click()
        expect(page.locator("main tbody tr")).to_have_count(2)
        press(page, "Publish a message")
        fill(page, "Topic", "a/b")
        fill(page, "Payload", "21.5")
        all_named(page)
        press(page, "Publish")

        notified(page, "It has subscribers.")
        assert client.expect(PUBLISH).body.endswith(b"21.5")


def test_tenant_is_exported_and_a_new_one_made_of_the_file(served: Dashboard, tmp_path: Path) -> None:
    served("POST", "/tenants", {"name": "filed"})
    served("POST", "/tenants/filed/devices", {"name": "d1"})
    page = served.as_(ADMIN, "/tenants/filed")
    press(page, "Actions")
    page.get_by_text("Export", exact=True).click()
    with page.expect_download() as download:
        press(page, "Export")
    file = tmp_path / "filed.json"
    file.write_bytes(Path(download.value.path()).read_bytes())
    assert json.loads(file.read_text())["tenant"]["name"] == "filed"

    served.open(page, "/tenants")
    press(page, "Import")
    page.set_input_files("input[type=file]", file)
    expect(page.get_by_text("tenant filed exists already")).to_be_visible()
    all_named(page)
    fill(page, "Name", "copied")
    press(page, "Check")
    expect(page.get_by_text("Tenant copied with 1 devices would be made.")).to_be_visible()
    press(page, "Import")
    expect(page.get_by_text("Tenant copied is made, with 1 devices.")).to_be_visible()
    assert served("GET", "/tenants/copied/devices/d1")["is_enabled"]


def test_file_is_applied_after_it_has_said_what_would_change(served: Dashboard, tmp_path: Path) -> None:
    file = tmp_path / "wanted.yaml"
    file.write_text("tenants:\n- tenant: {name: wanted}\n  devices: [d1]\n")
    page = served.as_(ADMIN, "/tenants")
    press(page, "Apply a file")
    other = tmp_path / "wanted.txt"
    other.write_text("no JSON")
    page.set_input_files("input[type=file]", other)
    notified(page, "wanted.txt is not taken: expected a YAML or JSON file (.yaml, .yml, .json).")
    large = tmp_path / "large.yaml"
    large.write_bytes(b"#" * ((16 << 20) + 1024))
    page.set_input_files("input[type=file]", large)
    notified(page, "large.yaml is not taken: it has 16 MiB, expected at most 16 MiB.")
    broken = tmp_path / "broken.yaml"
    broken.write_text("tenants: [")
    page.set_input_files("input[type=file]", broken)
    expect(page.get_by_text("The file is not taken: expected YAML or JSON")).to_be_visible()
    page.set_input_files("input[type=file]", file)
    expect(page.get_by_text("changes would be made.")).to_be_visible()
    served("GET", "/tenants/wanted", status=404)
    all_named(page)
    press(page, "Apply")
    expect(page.get_by_text("1 secret was made")).to_be_visible()
    page.keyboard.press("Escape")  # closes no dialogue with secrets
    with page.expect_download() as download:
        press(page, "Download the secrets")
    press(page, "I have kept them")
    closed(page)

    assert "wanted" in Path(download.value.path()).read_text()
    assert served("GET", "/tenants/wanted/devices/d1")["is_enabled"]


def test_device_gets_a_password_and_a_limit_of_its_own(served: Dashboard) -> None:
    served("POST", f"{BASE}/devices", {"name": "d2"})
    page = served.as_(ADMIN, f"{BASE}/devices/d2")
    press(page, "Set a password")
    fill(page, "Password", "a password of its own")
    press(page, "Set")
    notified(page, "The password of d2 is set.")
    closed(page)
    row_action(page, "device_publish_messages", "Change")
    fill(page, "Value", "5/1s")
    press(page, "Save")
    notified(page, "is changed")

    assert served("GET", f"{BASE}/devices/d2")["credential"] == "password"
    assert served("GET", f"{BASE}/devices/d2/quotas")["limits"] == {"device_publish_messages": ["5/1s"]}


def test_nobody_is_offered_to_lock_himself_out(served: Dashboard) -> None:
    for name in ("self", "neighbour"):
        served("POST", "/users", {"name": name, "role": "platform-admin", "password": PASSWORD})
    page = served.anonymous()
    served.log_in(page, "self", path="/login?next=/users")
    page.wait_for_selector("main")
    own, other = page.locator("tr", has_text="self"), page.locator("tr", has_text="neighbour")

    expect(other.get_by_role("button", name="Delete")).to_have_count(1)
    expect(own.get_by_role("button", name="Replace the password")).to_have_count(1)
    expect(own.get_by_role("button", name="Delete")).to_have_count(0)
    expect(own.get_by_role("button", name="Disable")).to_have_count(0)


def test_own_password_is_changed_and_one_logs_in_anew(served: Dashboard) -> None:
    served("POST", "/users", {"name": "otto", "role": "viewer", "password": PASSWORD})
    page = served.anonymous()
    served.log_in(page, "otto", path="/login?next=/account")
    page.wait_for_selector("main")
    page.wait_for_function("() => window.socket && window.socket.connected")
    all_named(page)
    fill(page, "Old password", PASSWORD)
    fill(page, "New password", "another long secret")
    fill(page, "New password again", "another long secret")
    press(page, "Change the password")
    page.wait_for_url("**/login")

    served.log_in(page, "otto", "another long secret")
    page.wait_for_selector("main")


def test_command_that_a_role_may_not_do_is_not_offered(served: Dashboard, secret: str) -> None:
    for role, tenant, count in ((ADMIN, "", 1), ("tenant-viewer", "access", 0)):
        page = served.as_(role, f"{BASE}/usage", tenant=tenant)
        expect(page.get_by_text("Nothing is summed yet")).to_be_visible()
        expect(page.locator("main .io-command")).to_have_count(count)


def test_login_that_ends_takes_the_page_and_its_mqtt_client_along(served: Dashboard, secret: str) -> None:
    """Nobody logs out here: the user is disabled while the page is open."""

    def is_connected() -> bool:
        return [each["name"] for each in served("GET", f"{BASE}/clients")["items"]] == ["of-a-page"]

    page = served.as_("tenant-admin", f"{BASE}/mqtt", tenant="access")
    fill(page, "Device", "d1")
    fill(page, "Password", secret)
    fill(page, "Client id", "of-a-page")
    press(page, "Connect")
    expect(page.locator("main .io-badge", has_text="connected")).to_be_visible()
    until(is_connected, "the hub has the client of the page")
    served("POST", "/users/tenant-admin-access:disable")

    page.wait_for_url("**/login")
    until(lambda: not is_connected(), "the client is gone")


def test_keyboard_alone_opens_and_leaves_a_dialog(served: Dashboard) -> None:
    """The first stop leads past the navigation; Escape closes, and the focus is where it was."""
    page = served.as_(ADMIN, f"{BASE}/webhooks")
    page.keyboard.press("Tab")
    expect(page.locator(".io-skip")).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    create = page.get_by_role("button", name="Create webhook")
    expect(create).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_label("Name", exact=True)).to_be_focused()
    page.keyboard.press("Escape")

    closed(page)
    expect(create).to_be_focused()
