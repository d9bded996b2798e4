"""The dashboard without a mouse: shortcuts, menus, and every dialogue, opened, filled in, sent and left by keys.

iothub.dashboard.dialogs, iothub.dashboard.parts and `iothub/dashboard/static/iothub.js`.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.support.dashboard import Dashboard
from tests.support.waiting import until

ADMIN = "platform-admin"
BASE = "/tenants/keys"
DIALOGUES = {
    "/tenants": ("Create tenant", "Import", "Apply a file"),
    "/plans": ("Create plan",),
    "/plans/standard": ("Set a limit",),
    "/webhooks": ("Create webhook",),
    "/settings": ("Reload the hub's settings",),
    BASE: ("Edit",),
    f"{BASE}/devices": ("Create device", "Import"),
    f"{BASE}/devices/d1": ("Rotate the secret", "Set a password", "Other login", "Disable", "Delete"),
    f"{BASE}/groups": ("Create group",),
    f"{BASE}/rules": ("Add rule", "Import"),
    "/jobs/usage": ("Forget its marks",),
    f"{BASE}/bans": ("Add ban",),
    f"{BASE}/token-issuers": ("Add token issuer",),
    f"{BASE}/streams": ("Create stream",),
    f"{BASE}/retained": ("Delete by filter", "Publish a message"),
    f"{BASE}/traces": ("Start a trace",),
}
_STOP = """() => {
    const at = document.activeElement;
    return at === document.body || at.closest(".q-dialog") ? `stop ${at.innerText.trim().toUpperCase()}` : null;
}"""
FILES = (
    ("/tenants", "Import"),
    ("/tenants", "Apply a file"),
    (f"{BASE}/devices", "Import"),
    (f"{BASE}/rules", "Import"),
)


@pytest.fixture(scope="module", autouse=True)
def device(served: Dashboard) -> None:
    served("POST", "/tenants", {"name": "keys"})
    served("POST", f"{BASE}/devices", {"name": "d1"})


def open_by_key(page: Page, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).last.press("Enter")


def wait_for_focus_in(page: Page, selector: str) -> None:
    page.wait_for_function("(selector) => document.activeElement.closest(selector) !== null", arg=selector)


def open_dialogue(page: Page, name: str) -> None:
    """A dialogue moves the focus for the last time when it has come in: a key before that would go elsewhere."""
    open_by_key(page, name)
    wait_for_focus_in(page, ".q-dialog__inner:not(.q-dialog__inner--animating)")


def open_menu(page: Page, name: str) -> None:
    open_by_key(page, name)
    wait_for_focus_in(page, "[role=menu]")


def goes_to_item(page: Page, key: str, label: str) -> None:
    page.keyboard.press(key)
    page.wait_for_function("(label) => document.activeElement.innerText.trim().endsWith(label)", arg=label)


def test_shortcuts(served: Dashboard) -> None:
    page = served.as_(ADMIN)
    page.wait_for_selector("a[data-go=t]", state="attached")  # the browser fills the navigation
    with served.following(page):
        page.keyboard.type("gt")
    assert page.url.endswith("/tenants")
    page.keyboard.press("?")
    expect(page.locator("#io-help")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#io-help")).to_be_hidden()


def test_arrow_keys_go_through_a_menu(served: Dashboard) -> None:
    page = served.as_(ADMIN, BASE)
    open_menu(page, "Actions")

    for key, label in (
        ("ArrowDown", "Export"),
        ("ArrowDown", "Suspend"),
        ("ArrowUp", "Export"),
        ("ArrowUp", "Delete"),
        ("ArrowDown", "Export"),
        ("End", "Delete"),
        ("Home", "Export"),
    ):
        goes_to_item(page, key, label)
    page.keyboard.press("Escape")
    expect(page.get_by_role("menu")).to_have_count(0)
    page.wait_for_function("document.activeElement.innerText.includes('Actions')")


def test_menu_of_the_session_is_left_for_the_account(served: Dashboard) -> None:
    page = served.as_(ADMIN, BASE)
    open_menu(page, "Session")
    goes_to_item(page, "ArrowUp", "Log out")
    goes_to_item(page, "ArrowUp", "Account")
    with served.following(page):
        page.keyboard.press("Enter")

    assert page.url.endswith("/account")


def test_enter_deletes_once_the_typed_name_is_right(served: Dashboard) -> None:
    served("POST", "/tenants", {"name": "gone"})
    page = served.as_(ADMIN, "/tenants/gone")
    open_menu(page, "Actions")
    goes_to_item(page, "End", "Delete")
    page.keyboard.press("Enter")
    wait_for_focus_in(page, ".q-dialog__inner:not(.q-dialog__inner--animating)")
    expect(page.get_by_label("Name", exact=True)).to_be_focused()

    page.keyboard.type("gon")
    page.keyboard.press("Enter")
    expect(page.locator(".q-dialog").get_by_role("button", name="Delete", exact=True)).to_be_disabled()
    assert served("GET", "/tenants/gone")["state"] == "active"
    with served.following(page):
        page.keyboard.type("e")
        page.keyboard.press("Enter")

    assert page.url.endswith("/tenants")
    until(lambda: "gone" not in {row["name"] for row in served("GET", "/tenants")["items"]}, "the tenant is deleted")


def test_form_is_filled_in_and_sent(served: Dashboard) -> None:
    page = served.as_(ADMIN, f"{BASE}/groups")
    open_dialogue(page, "Create group")
    expect(page.get_by_label("Name", exact=True)).to_be_focused()
    page.keyboard.type("meters")
    page.keyboard.press("Enter")

    expect(page.locator("main tr", has_text="meters")).to_be_visible()
    expect(page.locator(".q-dialog")).to_have_count(0)
    assert served("GET", f"{BASE}/groups/meters")["name"] == "meters"


@pytest.mark.parametrize("path", DIALOGUES)
def test_dialogue_has_the_keyboard_until_escape_gives_it_back(served: Dashboard, path: str) -> None:
    """Behind its last stop the keyboard may leave the page, as everywhere, but stays with nothing below the dialogue."""
    page = served.as_(ADMIN, path)
    for name in DIALOGUES[path]:
        open_dialogue(page, name)

        stops = set()
        for _ in range(15):
            page.keyboard.press("Tab")
            stops.add(page.wait_for_function(_STOP).json_value())
        assert {"stop CANCEL", "stop CLOSE"} & stops
        page.keyboard.press("Escape")
        expect(page.locator(".q-dialog")).to_have_count(0)
        page.wait_for_function("(name) => document.activeElement.innerText.includes(name)", arg=name)


@pytest.mark.parametrize(("path", "name"), FILES)
def test_file_is_chosen(served: Dashboard, path: str, name: str, tmp_path: Path) -> None:
    file = tmp_path / "file.json"
    file.write_text(json.dumps({}))
    page = served.as_(ADMIN, path)
    open_dialogue(page, name)
    choose = page.locator(".q-dialog").get_by_role("button", name="Choose a")

    with page.expect_file_chooser() as chooser:
        choose.press("Enter")

    assert not chooser.value.is_multiple()
