"""Whoever is quick loses nothing: a field keeps what is typed as soon as it is there, a dialogue has the focus, a row that is pressed stays.

iothub.dashboard.parts, iothub.dashboard.dialogs, iothub.dashboard.table and `iothub/dashboard/static/rows.js`.
"""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.support.dashboard import Dashboard
from tests.support.page_actions import agree, closed, fill, notified, press, row, row_action

ADMIN = "platform-admin"
BASE = "/tenants/quick"
# A timer that is started when the dialogue appears: what the dialogue does at once has come before it, a transition has not ended.
_FOCUS_SOON = """() => {
    window.focused = new Promise((resolve) => {
        const seen = new MutationObserver(() => {
            if (!document.querySelector(".q-dialog input")) return;
            seen.disconnect();
            setTimeout(() => resolve(document.activeElement.getAttribute("aria-label")), 20);
        });
        seen.observe(document.body, { childList: true, subtree: true });
    });
}"""
# What somebody types who is faster than any other message of the server.
_TYPE_SOON = """() => {
    const seen = new MutationObserver(() => {
        const field = document.querySelector(".q-dialog input[aria-label=Subject]");
        if (!field) return;
        seen.disconnect();
        field.value = "d1";
        field.dispatchEvent(new InputEvent("input", { bubbles: true }));
    });
    seen.observe(document.body, { childList: true, subtree: true });
}"""


@pytest.fixture(scope="module", autouse=True)
def tenant(served: Dashboard) -> None:
    served("POST", "/tenants", {"name": "quick"})
    served("POST", f"{BASE}/devices", {"name": "d1"})
    rule = {"subject": "d1", "effect": "deny", "action": "both", "filter": "a/#"}
    served("POST", f"{BASE}/acl-rules", rule)


def hold(page: Page, name: str, action: str) -> None:
    """Press the mouse on the action of a row, and keep it there."""
    row(page, name).get_by_role("button", name=action, exact=True).hover()
    page.mouse.down()


def test_dialogue_has_the_focus_when_it_appears(served: Dashboard) -> None:
    """With a transition, what is typed before its end is lost, and a field that is chosen before it may lose the focus again."""
    page = served.as_(ADMIN, f"{BASE}/rules")
    page.evaluate(_FOCUS_SOON)
    press(page, "Add rule")

    assert page.evaluate("window.focused") == "Topic Filter"


def test_field_keeps_what_is_typed_as_soon_as_it_is_there(served: Dashboard) -> None:
    """It has a value from the start; a message that gives it the value afterwards would take back what is typed."""
    page = served.as_(ADMIN, f"{BASE}/rules")
    page.evaluate(_TYPE_SOON)
    press(page, "Add rule")
    fill(page, "Topic Filter", "typed/#")
    agree(page, "Add")
    notified(page, "in force")

    rules = {each["filter"]: each["subject"] for each in served("GET", f"{BASE}/acl-rules")["items"]}
    assert rules["typed/#"] == "d1"


def test_row_that_is_pressed_stays_while_the_page_changes(served: Dashboard) -> None:
    page = served.as_(ADMIN, f"{BASE}/rules")
    fill(page, "Device", "d1")
    fill(page, "Topic, or Topic Filter", "a/x")
    press(page, "Test")
    expect(page.locator("form .io-badge")).to_have_text("deny")
    fill(page, "Topic, or Topic Filter", "b/x")
    hold(page, "a/#", "Remove")
    page.get_by_role("button", name="Test", exact=True).dispatch_event("click")
    expect(page.locator("form .io-badge")).to_have_text("allow")

    page.mouse.up()

    agree(page, "Cancel")
    closed(page)


def test_action_reaches_the_row_that_was_pressed_or_none(served: Dashboard) -> None:
    """Another row takes its place while the dialogue of an action is open, and the first one is there no more."""
    page = served.as_(ADMIN, f"{BASE}/devices")
    served("POST", f"{BASE}/devices", {"name": "a-new-one"})
    row_action(page, "d1", "Disable")
    served("POST", f"{BASE}/devices/d1:disable")
    agree(page, "Disable")
    notified(page, "d1 is disabled")

    expect(row(page, "a-new-one").get_by_role("button", name="Disable", exact=True)).to_be_visible()
    expect(row(page, "d1").get_by_role("button", name="Enable", exact=True)).to_be_visible()
