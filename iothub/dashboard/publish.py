"""Publishing a message as the administrator of a tenant: the form, and the button that opens it."""

from __future__ import annotations

from nicegui import ui

from iothub.dashboard import dialogs, parts
from iothub.dashboard.api import Json
from iothub.dashboard.frame import View

SCOPE = "messages:write"


def button(view: View) -> None:
    """Draw the button, for who may publish."""
    if view.may(SCOPE):
        ui.button("Publish a message", icon="send", on_click=lambda: ask(view)).props("outline no-caps")


async def ask(view: View) -> None:
    """Ask for a message, and publish it."""
    given: Json = {"topic": "", "payload": "", "qos": 0, "retain": False, "expiry_s": None}

    def draw() -> None:
        ui.label("No access rule is asked; the limits of the tenant hold.").classes("io-soft")
        parts.field("Topic", given, "topic", "autofocus")
        parts.text_area("Payload", given, "payload", "autogrow")
        ui.select([0, 1, 2], label="QoS").props("outlined dense options-dense").bind_value(given, "qos")
        expiry = ui.number("Message Expiry Interval (s)", min=0, precision=0).props("outlined dense")
        expiry.props["hint"] = "empty: it does not expire"
        expiry.bind_value(given, "expiry_s")
        ui.checkbox("Retained").bind_value(given, "retain")

    async def send() -> object | None:
        if parts.refuse_long("A payload", given["payload"]):
            return None
        body = given | {"expiry_s": None if given["expiry_s"] is None else int(given["expiry_s"])}
        made = await view.do(view.api.post(f"{view.tenant_path}/messages", body))
        if made is not None:
            gets = "It has subscribers." if made.get("has_subscribers") else "Nobody subscribes to it."
            parts.notify(f"Published to {given['topic']}. {gets}", "positive")
        return made

    await dialogs.form("Publish a message", draw, send, verb="Publish")
