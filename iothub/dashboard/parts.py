"""Small parts of pages: headings, figures, badges, empty states, refusals, and a button that copies a command.

Knows neither REST nor a session. Every text is handed over as text.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from nicegui import ui

from iothub.base.text import clean
from iothub.dashboard.units import size

if TYPE_CHECKING:
    from nicegui.events import GenericEventArguments, UploadEventArguments

    from iothub.dashboard.api import RefusalError

F = TypeVar("F", bound=ui.input)
FIELD_CHARACTERS = 150_000  # of UTF-16; six bytes of JSON each, at most, and a browser sends no message of more than 1,000,000: it drops it
TOGGLE = "no-caps dense unelevated padding='4px 12px'"  # of a choice between a few words
_HINTS = {
    "forbidden": "Ask a platform administrator for a role that has it.",
    "precondition_failed": "Load the page again, look at what has changed, then change it.",
    "busy": "Try again in a moment.",
    "unavailable": "`iothub status` on the hub's machine says whether it runs; `iothub serve` starts it.",
}
_GONE = "It may have been deleted meanwhile: go back to the list."  # of a page; in a form another name may be wrong
_BADGES = {
    "good": {"active", "up", "enabled", "ready", "connected", "allow", "ok", "succeeded", "info", "pass", "delivered"},
    "warn": {"warn", "suspended", "draining", "deleting", "warning", "offline", "disabled"},
    "bad": {
        "down",
        "deny",
        "failed",
        "critical",
        "error",
        "lost",
        "refused",
        "fail",
        "given_up",
        "queue_full",
        "store_failed",
    },
}


_FILE_HEAD = """
<q-btn flat no-caps class="full-width" icon="attach_file" label="Choose a WHAT, or drop it here" @click="props.pickFiles"
  ><q-uploader-add-trigger /></q-btn>
"""
_REJECTED = "(found) => emit(found.map((each) => [each.file.name, each.file.size, each.failedPropValidation]))"
_FILE_LIST = """<div class="io-soft">{{ props.files.at(-1)?.name }}</div>"""


for _kind in (ui.input, ui.textarea):
    _kind.default_props(
        f"maxlength={FIELD_CHARACTERS + 1}"
    )  # one more shows that it is too long: a browser cuts without a word


@dataclass(frozen=True, slots=True)
class Empty:
    """What a list says that has nothing: why, and the command that changes it, for who has its scope. `scope` "": for everybody."""

    text: str
    command: str = ""
    scope: str = ""


def command(*words: object) -> str:
    """Return a line for a shell.

    >>> command("device", "create", "acme", "a b")
    "iothub device create acme 'a b'"
    """
    return shlex.join(("iothub", *(str(word) for word in words)))


def heading(title: str, note: str = "") -> ui.element:
    """Draw the title of a page; what is put into the returned element stands on its right."""
    with ui.element("div").classes("io-heading"):
        with ui.element("div"):
            ui.label(title).props("role=heading aria-level=1").classes("io-title")
            if note:
                ui.label(note).classes("io-soft")
        return ui.element("div").classes("io-actions")


@contextmanager
def panel(title: str = "", *, note: str = "", wide: bool = False) -> Iterator[ui.element]:
    """Draw a box with a title; the element that is given is for what stands on its right."""
    with ui.element("section").classes(f"io-panel{' io-panel-wide' if wide else ''}"):
        right = ui.element("div")
        if title:
            with ui.element("div").classes("io-panel-head"):
                ui.label(title).props("role=heading aria-level=2").classes("io-panel-title")
                if note:
                    ui.label(note).classes("io-soft io-panel-note")
                right.classes("io-actions").move(ui.context.slot.parent)
        yield right


@contextmanager
def grid(kind: str = "") -> Iterator[None]:
    """Lay out what is drawn in columns, as many as the width has. `kind`: `tiles` for figures."""
    with ui.element("div").classes(f"io-grid io-grid-{kind or 'panels'}"):
        yield


def facts(rows: Sequence[tuple[str, str]]) -> None:
    """Draw names with their values."""
    with ui.element("dl").classes("io-facts"):
        for name, value in rows:
            with ui.element("dt"):
                ui.label(name)
            with ui.element("dd"):
                ui.label(value)


class Figure:
    """A number with its name; with a target it links to the list behind it."""

    def __init__(self, name: str, value: str = "-", *, note: str = "", href: str = "") -> None:
        box = ui.link(target=href) if href else ui.element("div")
        with box.classes("io-figure"):
            ui.label(name).classes("io-figure-name")
            self._value = ui.label(value).classes("io-figure-value")
            self._note = ui.label(note).classes("io-soft io-figure-note")

    def set(self, value: str, note: str = "") -> None:
        self._value.set_text(value)
        self._note.set_text(note)


def badge(text: str) -> ui.label:
    """Draw a state in its colour; a state that is not known is grey."""
    return ui.label(text).classes(f"io-badge io-badge-{badge_kind(text)}")


def badge_kind(text: str) -> str:
    return next((kind for kind, names in _BADGES.items() if text in names), "none")


def meter_kind(share: float) -> str:
    return "bad" if share >= 0.95 else "warn" if share >= 0.8 else "good"


def meter(share: float) -> None:
    """Draw how much of a whole is used."""
    with ui.element("div").classes(f"io-bar io-bar-{meter_kind(share)}"):
        ui.element("div").style(f"width:{min(share, 1) * 100:.0f}%")


def menu_item(label: str, on_click: Callable[[], object], *, icon: str = "") -> None:
    """Draw a line of a menu; the arrow keys go from one to the next."""
    with ui.menu_item(on_click=on_click).props("role=menuitem"), ui.element("div").classes("io-row"):
        if icon:
            ui.icon(icon)
        ui.label(label)


def copy_button(text: str, label: str = "Copy the command") -> ui.button:
    """Draw a button that copies a line, in the browser alone; the line is its tooltip."""
    button = ui.button(icon="terminal", color=None).props("flat dense round size=sm").classes("io-copy")
    button.props["data-copy"] = text
    button.props["aria-label"] = f"{label}: {text}"
    button.props["title"] = text
    return button.on("click", js_handler="(event) => iothub.copy(event)")


def command_line(text: str) -> None:
    """Draw a command, and the button that copies it."""
    with ui.element("div").classes("io-command"):
        with ui.element("code"):
            ui.label(text)
        copy_button(text)


def field(label: str, given: dict[str, Any], name: str, props: str = "") -> ui.input:
    """Draw a field for `given[name]`, which keeps what is typed as soon as the field is there.

    It is made with its value: a value that is set afterwards comes in a message of its own, which would take back what is typed before.
    """
    return _bound(ui.input(label, value=given[name]), given, name, props)


def refuse_long(what: str, text: str) -> bool:
    """Say that a text is longer than a field takes, if it is."""
    is_long = len(text.encode("utf-16-le", "surrogatepass")) > 2 * FIELD_CHARACTERS
    if is_long:
        notify(
            f"{what} of a page has at most {FIELD_CHARACTERS:,} characters: send it by an MQTT client, or by REST",
            "negative",
        )
    return is_long


def text_area(label: str, given: dict[str, Any], name: str, props: str = "") -> ui.textarea:
    """Draw a field of several lines, as `field`."""
    return _bound(ui.textarea(label, value=given[name]), given, name, props)


def _bound(made: F, given: dict[str, Any], name: str, props: str) -> F:
    made.props(f"outlined dense {props}").bind_value(given, name)
    return made


def file_field(what: str, accept: str, most_bytes: int, on_upload: Callable[[UploadEventArguments], object]) -> None:
    """Draw a field that sends a file at once, such as a "CSV file". Quasar's own head has buttons without a name."""
    endings = ", ".join(each for each in accept.split(",") if each.startswith("."))
    expected = f"a {what}{f' ({endings})' if endings else ''}"

    def refuse(event: GenericEventArguments) -> None:
        for name, size_bytes, why in event.args:
            if why == "max-file-size":
                said = f"it has {size(size_bytes)}, expected at most {size(most_bytes)}"
            else:
                said = f"expected {expected}"
            notify(f"{clean(name)} is not taken: {said}.", "negative")

    field = ui.upload(auto_upload=True, max_file_size=most_bytes, on_upload=on_upload)
    field.on("rejected", refuse, js_handler=_REJECTED)
    field.props("flat bordered").classes("io-fill").props["accept"] = accept
    field.add_slot("header", _FILE_HEAD.replace("WHAT", what))
    field.add_slot("list", _FILE_LIST)


def empty(found: Empty) -> None:
    with ui.element("div").classes("io-empty"):
        ui.icon("inbox").classes("io-empty-icon")
        ui.label(found.text)
        if found.command:
            command_line(found.command)


def hint_for(refusal: RefusalError) -> str:
    return _HINTS.get(refusal.code, "")


def problem(refusal: RefusalError) -> None:
    """Draw a refusal in the place of what was asked for."""
    with ui.element("div").classes("io-problem").props("role=alert"):
        ui.icon("error_outline").classes("io-problem-icon")
        with ui.element("div"):
            ui.label(refusal.detail).classes("io-strong")
            for line in refusal.errors:
                ui.label(line)
            hint = _GONE if refusal.code == "not_found" else hint_for(refusal)
            if hint:
                ui.label(hint).classes("io-soft")
            ui.label(refusal.code).classes("io-code")


def notify(text: str, kind: str = "info", *, hint: str = "") -> None:
    """Show a line for a while. Quasar takes it as text, not as HTML."""
    ui.notification(
        f"{text}\n{hint}" if hint else text,
        type=kind,  # type: ignore[arg-type]  # one of Quasar's own words
        multi_line="\n" in text or bool(hint),
        timeout=4.0 if kind != "negative" else 12.0,
        close_button="Close" if kind == "negative" else False,
        position="bottom-right",
    ).classes("io-notification")
