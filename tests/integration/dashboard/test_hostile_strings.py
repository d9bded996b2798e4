"""Strings that clients choose are text on every page: no script of them runs, and no tag of them is one."""

from __future__ import annotations

import json
from urllib.parse import quote

import pytest
from playwright.sync_api import expect

from tests.support.clients.raw import RawClient
from tests.support.dashboard import Dashboard
from tests.support.hubs.hub import Hub
from tests.support.page_actions import fill

HOSTILE = "<img src=x onerror=alert(1)>"
BREAKING = "`${alert(2)}`</script><script>alert(3)</script>"
FORMULA = "=cmd|' /C calc'!A0"
ADMIN = "platform-admin"
URL = "https://receiver.example/<svg/onload=alert(4)>"
PATHS = (
    *("", "/devices", "/rules", f"/rules?subject={quote(HOSTILE)}", "/bans", "/audit", "/quotas", "/usage"),
    *("/webhooks", "/webhooks/w", "/token-issuers", "/token-issuers/i"),
    *(f"/subscriptions?client_id={quote(HOSTILE)}", f"/subscriptions?group={quote(HOSTILE)}"),
)


@pytest.fixture(scope="module")
def filled(served: Dashboard, hub: Hub) -> Dashboard:
    """A tenant whose every string that somebody can choose is one that attacks a page."""
    served("POST", "/tenants", {"name": "evil", "display_name": HOSTILE, "plan": "unlimited"})
    served("POST", "/tenants/evil/devices", {"name": "d1", "password": "secret"})
    for text in (HOSTILE, BREAKING):
        served(
            "POST", "/tenants/evil/acl-rules", {"subject": "d1", "effect": "deny", "action": "publish", "filter": text}
        )
        served("POST", "/tenants/evil/bans", {"kind": "client_id", "value": text[:64], "reason": text})
    served("POST", "/tenants/evil/bans", {"kind": "client_id", "value": "formula", "reason": FORMULA})
    served("POST", "/tenants/evil/webhooks", {"name": "w", "url": URL})
    key = {"algorithm": "HS256", "secret": "s" * 32, "issuer": HOSTILE, "audience": BREAKING}
    served("POST", "/tenants/evil/token-issuers", {"name": "i", **key})
    client = RawClient(hub.ports["tcp"], 5)
    client.connect("<b>id</b>", username="evil/d1", password="secret")
    client.close()
    return served


def test_pages_show_them_as_text(filled: Dashboard) -> None:
    """Dialogs and errors are watched on every page."""
    page = filled.as_(ADMIN)
    for path in PATHS:
        filled.open(page, f"/tenants/evil{path}")

        assert page.locator("img[src=x]").count() == 0, path
        assert page.evaluate("[...document.scripts].filter(e => !e.src && !e.nonce).length") == 0, path


def test_strings_are_there_as_they_are(filled: Dashboard) -> None:
    page = filled.as_(ADMIN, "/tenants?prefix=evil")
    expect(page.get_by_text(HOSTILE)).to_be_visible()
    filled.open(page, "/tenants/evil/bans")
    expect(page.get_by_text(BREAKING, exact=True).first).to_be_visible()


def test_title_dialogue_and_notification_show_them_as_text(filled: Dashboard) -> None:
    page = filled.as_(ADMIN, "/tenants/evil/bans")
    row = page.locator("tr", has_text="<img").first
    row.get_by_role("button", name="Lift").click()
    expect(page.locator(".q-dialog").get_by_text(HOSTILE).first).to_be_visible()
    page.get_by_role("button", name="Cancel").click()
    filled.open(page, "/tenants/evil/rules")
    fill(page, "Device", HOSTILE)
    fill(page, "Topic, or Topic Filter", BREAKING)
    page.get_by_role("button", name="Test", exact=True).click()
    expect(page.locator(".q-notification").first).to_be_visible()  # REST refuses such a name, in its own words


def test_path_of_a_page_is_text(filled: Dashboard) -> None:
    page = filled.as_(ADMIN, "/tenants/%3Cscript%3Ealert(5)%3C%2Fscript%3E")
    expect(page.locator(".io-problem")).to_be_visible()
    filled.open(page, "/tenants/acme/devices/%3Cimg%20src=x%20onerror=alert(6)%3E")
    expect(page.locator(".io-problem")).to_be_visible()


def test_login_form_gives_a_name_back_as_text(filled: Dashboard) -> None:
    page = filled.anonymous()
    filled.log_in(page, '"><script>alert(7)</script>')

    expect(page.locator("#name")).to_have_value('"><script>alert(7)</script>')


def test_script_that_is_put_into_a_page_does_not_run(filled: Dashboard) -> None:
    """The policy of the page refuses it, whatever has let it in."""
    page = filled.as_(ADMIN, "/tenants")
    page.evaluate(
        "document.querySelector('main').insertAdjacentHTML('beforeend', '<img src=y onerror=\"window.ran=1\">')"
    )
    page.evaluate("const s = document.createElement('script'); s.textContent = 'window.ran=2'; document.body.append(s)")
    page.wait_for_timeout(300)

    assert page.evaluate("window.ran") is None
    assert [each for each in filled.watched.found if "Content Security Policy" in each] == filled.watched.found
    assert len(filled.watched.found) >= 2
    filled.watched.found.clear()


def test_cells_of_csv_are_no_formulas(filled: Dashboard) -> None:
    page = filled.as_(ADMIN, "/tenants/evil/bans")
    answer = page.request.get(filled.base + "/export.csv?list=/tenants/evil/bans&fields=kind,value,reason")

    assert json.dumps(f"'{FORMULA}")[1:-1] in answer.text()
