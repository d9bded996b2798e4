"""What somebody does on a page of the dashboard: presses buttons, fills in fields, agrees to questions, reads notifications.

Knows no page. Each action waits for what comes before it, so that a test needs no wait of its own: a field is filled in once the dialogue
around it has the focus, and a notification counts once, so that an earlier one never stands for a later one.
"""

from __future__ import annotations

from playwright.sync_api import Locator, Page, expect

DIALOGUE = ".q-dialog"
_HAS_FOCUS = """(field) => {
    const dialogue = field.closest(".q-dialog");
    return !dialogue || !dialogue.querySelector(".q-dialog__inner--animating") && dialogue.contains(document.activeElement);
}"""


def press(page: Page, name: str) -> None:
    """Press a button: of the dialogue, if one is open that has it."""
    page.get_by_role("button", name=name, exact=True).last.click()


def row(page: Page, name: str) -> Locator:
    """The row of a table in which a cell has this text."""
    return page.locator("tr").filter(has=page.get_by_text(name, exact=True))


def row_action(page: Page, name: str, action: str) -> None:
    row(page, name).get_by_role("button", name=action, exact=True).click()


def no_action(page: Page, name: str, action: str) -> None:
    """Wait until a row offers an action no more: it has changed, and is drawn anew."""
    expect(row(page, name)).to_be_visible()
    expect(row(page, name).get_by_role("button", name=action, exact=True)).to_have_count(0)


def fill(page: Page, label: str, value: str) -> None:
    """Fill in a field, and look at what it holds then.

    The browser types into whatever has the focus: a dialogue that gives it to a field of its own in between would have the text there.
    """
    field = page.get_by_label(label, exact=True).last
    page.wait_for_function(_HAS_FOCUS, arg=field.element_handle())
    field.fill(value)
    expect(field).to_have_value(value)


def choose(page: Page, label: str, option: str) -> None:
    """Choose one of a list."""
    page.get_by_label(label, exact=True).last.click()
    page.get_by_role("option", name=option, exact=True).click()
    expect(page.get_by_role("option")).to_have_count(0)


def agree(page: Page, verb: str) -> None:
    """Press the button of the question; that of the row or of the page may have the same name."""
    page.locator(DIALOGUE).get_by_role("button", name=verb, exact=True).click()


def confirm(page: Page, name: str, verb: str) -> None:
    """Type the name that a question asks for, and agree."""
    fill(page, "Name", name)
    agree(page, verb)


def closed(page: Page) -> None:
    """Wait until no dialogue is there."""
    expect(page.locator(DIALOGUE)).to_have_count(0)


def notified(page: Page, text: str) -> None:
    """Wait for a notification that has not been waited for before."""
    found = page.locator(".q-notification:not([data-notified])", has_text=text).first
    expect(found).to_be_visible()
    found.evaluate("(each) => each.setAttribute('data-notified', '')")
