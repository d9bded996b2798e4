"""Dialogues: a question before an action, a form, and a secret that is shown once.

Knows neither REST nor a session.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum

from nicegui import ui

from iothub.dashboard import parts


class Danger(Enum):
    """How much is lost: nothing, what can be had again, what cannot."""

    NONE = "primary"
    MODERATE = "warning"
    SEVERE = "negative"


@contextmanager
def dialog(title: str, *, wide: bool = False) -> Iterator[ui.dialog]:
    """Draw a dialogue, which is gone when it closes; what is drawn inside stands below its title.

    It comes and goes at once: Quasar gives it the focus when its transition has ended, and what somebody types before that is lost.
    """
    with (
        ui.dialog().props("transition-duration=0") as made,
        ui.card().classes(f"io-dialog{' io-dialog-wide' if wide else ''}"),
    ):
        ui.label(title).props("role=heading aria-level=2").classes("io-title")
        yield made
    made.on("hide", made.delete)


async def confirm(  # what a question consists of
    title: str,
    text: str,
    *,
    verb: str,
    danger: Danger = Danger.MODERATE,
    name: str = "",
    command: str = "",
    draw: Callable[[], object] | None = None,
) -> bool:
    """Ask before something is done. SEVERE: `name` must be typed. `command` is the same on the command line; `draw`: a choice below the text."""
    with dialog(title) as asked:
        ui.label(text)
        if draw is not None:
            draw()
        typed: ui.input | None = None
        if danger is Danger.SEVERE:
            ui.label(f"Type {name} to confirm.").classes("io-soft")
            typed = ui.input(label="Name").props("autofocus outlined dense").classes("io-fill")
        if command:
            parts.command_line(command)
        with ui.row().classes("io-buttons"):
            ui.button("Cancel", on_click=lambda: asked.submit(False)).props("flat")
            sure = ui.button(verb, on_click=lambda: asked.submit(True), color=danger.value).props("unelevated")
            if typed is not None:
                field = typed
                sure.bind_enabled_from(field, "value", lambda value: value == name)
                field.on("keydown.enter", lambda: asked.submit(True) if field.value == name else None)
            else:
                sure.props("autofocus")
    return bool(await asked)


async def form(
    title: str,
    draw: Callable[[], object],
    send: Callable[[], Awaitable[object | None]],
    *,
    verb: str,
    command: Callable[[], str] | None = None,
    name_button: Callable[[ui.button], object] | None = None,
) -> None:
    """Show a form until `send` has done something, or it is cancelled. `send` returns None when REST has refused.

    `name_button` may bind the text of the button to a choice of the form.
    """
    with dialog(title) as shown:

        async def submit() -> None:
            button.disable()
            done = await send()
            button.enable()
            if done is not None:
                shown.close()

        with ui.element("form").classes("io-form").on("submit.prevent", submit):
            draw()
            if command is not None:
                line = ui.button("Copy as command", icon="terminal").props("flat dense no-caps size=sm")
                line.on("click", lambda: ui.run_javascript(f"iothub.put({_quoted(command())})"))
            with ui.row().classes("io-buttons"):
                ui.button("Cancel", on_click=shown.close).props("flat")
                button = ui.button(verb).props("unelevated type=submit")
                if name_button is not None:
                    name_button(button)
    shown.open()


async def secret(title: str, rows: Sequence[tuple[str, str]], note: str) -> None:
    """Show what is never shown again, until it is closed by its button."""
    with dialog(title) as shown:
        shown.props("persistent")
        ui.label(note)
        for name, value in rows:
            ui.label(name).classes("io-soft")
            parts.command_line(value)
        with ui.row().classes("io-buttons"):
            ui.button("I have kept it", on_click=lambda: shown.submit(True)).props("unelevated")
    await shown


def _quoted(text: str) -> str:
    """Return a text as JavaScript has it: JSON, without what could end a script."""
    return json.dumps(text).replace("<", "\\u003c")
