"""/tenants/{tenant}/mqtt: an MQTT client in the page, which connects as a device of the tenant and may do what the device may.

Knows no packet: `iothub.dashboard.mqtt_client` does. Messages are text of the page, never HTML, and the newest few alone are kept.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

from nicegui import ui

from iothub.dashboard import parts
from iothub.dashboard.api import Json
from iothub.dashboard.frame import TENANT, View, page
from iothub.dashboard.mqtt_client import MqttClient, MqttError, Received
from iothub.dashboard.parts import Empty
from iothub.dashboard.table import Column, Table
from iothub.dashboard.units import exact, size

KEPT_MESSAGES = 100
SHOWN_CHARACTERS = 1000  # of a payload
_DRAW_S = 0.5  # a busy topic is drawn as often as this, however many messages come
_COLUMNS = (
    Column("time", "When (UTC)"),
    Column("topic", "Topic", "code"),
    Column("payload", "Payload", "code"),
    Column("bytes", "Size", "number", size),
    Column("is_retained", "Retained"),
)
_HERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  # every address is this one, too
_NO_LISTENER = "No hub listens for MQTT over TCP beside this process (listeners.tcp.port): this page needs one."


@page("/tenants/{tenant}/mqtt", title="MQTT client", scope="messages:read", group=TENANT, icon="swap_vert", key="m")
async def show(view: View) -> None:
    parts.heading("MQTT client", "MQTT 3.1.1 with QoS 0, from this server; the device's own rules and limits apply")
    await view.api.get(view.tenant_path)  # of another tenant nothing is tried
    address = await asyncio.to_thread(view.state.mqtt)
    if not address:
        parts.empty(Empty(_NO_LISTENER, "iothub status"))
        return
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    await _Console(view, (_HERE.get(host, host), int(port))).draw()


class _Console:
    """The client of one page. It ends with the page, with its login, and when the hub ends it."""

    def __init__(self, view: View, address: tuple[str, int]) -> None:
        self._view = view
        self._address = address
        self._client: MqttClient | None = None
        self._messages: deque[Json] = deque(maxlen=KEPT_MESSAGES)
        self._count = 0
        self._drawn = 0
        self._given: Json = {"device": "", "password": "", "client_id": f"dashboard-{secrets.token_hex(4)}"}
        self._given |= {"filter": "#", "topic": "", "payload": "", "is_retained": False}

    async def draw(self) -> None:
        given = self._given
        with parts.panel("Connection"), _form(self._connect):
            parts.field("Device", given, "device", "autocomplete=off")
            parts.field("Password", given, "password", "type=password autocomplete=off")
            parts.field("Client id", given, "client_id")
            ui.button("Connect").props("unelevated no-caps type=submit")
            ui.button("Disconnect", on_click=self._disconnect).props("outline no-caps")
            self._state = parts.badge("offline").props("aria-live=polite")
        with parts.grid():
            with parts.panel("Subscribe"), _form(self._subscribe):
                parts.field("Topic Filter", given, "filter")
                ui.button("Subscribe").props("unelevated no-caps type=submit")
            with parts.panel("Publish"), _form(self._publish):
                parts.field("Topic", given, "topic")
                parts.field("Payload", given, "payload")
                ui.checkbox("Retained").bind_value(given, "is_retained")
                ui.button("Publish").props("unelevated no-caps type=submit")
        with parts.panel("Messages", note=f"the newest {KEPT_MESSAGES}") as right:
            with right:
                self._counter = ui.label().classes("io-soft")
            self._table = Table(
                self._view, "", _COLUMNS, empty=Empty("No message has come."), fetch=self._newest, rows=0
            )
            await self._table.load()
        ui.timer(_DRAW_S, self._redraw)
        ui.context.client.on_delete(self._close)

    async def _newest(self) -> list[Json]:
        return list(reversed(self._messages))

    async def _redraw(self) -> None:
        if self._count != self._drawn:
            self._drawn = self._count
            self._counter.set_text(f"{exact(self._count)} have come")
            await self._table.reload()

    async def _connect(self) -> None:
        self._disconnect()
        given = self._given
        made = MqttClient(self._take, self._ended, self._subscribed)
        self._client = made
        try:
            await made.connect(
                *self._address, f"{self._view.tenant}/{given['device']}", given["password"], given["client_id"]
            )
        except MqttError as error:
            parts.notify(str(error), "negative", hint="`Rejected clients` has the rule that decided.")
            return
        if self._client is made:
            self._show_state("connected")
        else:
            made.close()  # the page, or a second click, was faster

    def _disconnect(self) -> None:
        self._close()
        self._show_state("offline")

    def _close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _show_state(self, state: str) -> None:
        self._state.set_text(state)
        self._state.classes(replace=f"io-badge io-badge-{parts.badge_kind(state)}")

    def _take(self, received: Received) -> None:
        self._count += 1
        self._messages.append(
            {
                "time": datetime.now(UTC).strftime("%H:%M:%S.%f")[:-3],
                "topic": received.topic,
                "payload": as_text(received.payload),
                "bytes": received.size,
                "is_retained": received.is_retained,
            }
        )

    def _ended(self, why: str) -> None:
        self._client = None
        with self._state:
            self._show_state("offline")
            parts.notify(f"Disconnected: {why}", "warning")

    def _subscribed(self, is_granted: bool) -> None:
        with self._state:
            if is_granted:
                parts.notify("Subscribed.", "positive")
            else:
                parts.notify("The hub refuses the Topic Filter.", "negative", hint="`Explain` says which rule decides.")

    async def _subscribe(self) -> None:
        if (client := self._connected()) is not None:
            await _told(client.subscribe(self._given["filter"]))

    async def _publish(self) -> None:
        given, client = self._given, self._connected()
        if client is not None and not parts.refuse_long("A payload", given["payload"]):
            payload = given["payload"].encode()
            if await _told(client.publish(given["topic"], payload, is_retained=given["is_retained"])):
                hint = "QoS 0 has no acknowledgement: `Explain` says whether the device may publish there."
                parts.notify("The message is sent.", hint=hint)

    def _connected(self) -> MqttClient | None:
        if self._client is None:
            parts.notify("It is not connected.", "warning")
        return self._client


def _form(send: Callable[[], Awaitable[object]]) -> ui.element:
    return ui.element("form").classes("io-row").on("submit.prevent", send)


async def _told(request: Awaitable[object]) -> bool:
    """Run what may find the connection ended: whether it did what it should."""
    try:
        await request
    except MqttError as error:
        parts.notify(str(error), "negative")
        return False
    return True


def as_text(payload: bytes) -> str:
    """Write a payload as text; bytes that are no UTF-8 in hexadecimal.

    >>> as_text(b"21.5"), as_text(bytes((255, 0)))
    ('21.5', '0x ff 00')
    """
    try:
        written = payload.decode()
    except UnicodeDecodeError:
        written = f"0x {payload[:SHOWN_CHARACTERS].hex(' ')}"
    return written if len(written) <= SHOWN_CHARACTERS else f"{written[:SHOWN_CHARACTERS]} ..."
