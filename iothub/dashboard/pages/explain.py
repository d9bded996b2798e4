"""/tenants/{tenant}/explain: what the hubs would say to a CONNECT, PUBLISH or SUBSCRIBE, step by step, and what decides.

The query fills the form in; with a device it is asked at once, so a page can link to its answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlencode

from nicegui import ui

from iothub.dashboard import parts
from iothub.dashboard.api import Json, RefusalError
from iothub.dashboard.frame import TENANT, View, page
from iothub.dashboard.parts import Empty, command
from iothub.dashboard.table import Column, Table, text
from iothub.dashboard.units import moment

KINDS = ("connect", "publish", "subscribe")
UNTESTED = "not tested"  # only a real attempt shows it
_ALLOWED = "No step refuses it."
_LISTENERS = ("tcp", "tls", "ws", "wss")
_STEPS = (
    Column("step", "Step"),
    Column("outcome", "Outcome", "badge"),
    Column("reason", "Why", "long"),
    Column("rule", "Rule", "code"),
)
_FIELDS = {
    "connect": ("device", "client_id", "address", "listener", "is_persistent"),
    "publish": ("device", "client_id", "topic", "qos", "size", "is_retained"),
    "subscribe": ("device", "client_id", "filter", "qos"),
}


def link_of(view: View, client: Json) -> str:
    """Return the page that answers at once for a CONNECT like this one; of a refused one it says why that was."""
    given = {name: client[name] for name in ("device", "client_id", "listener")}
    given["address"] = str(client["address"]).rpartition(":")[0].strip("[]")  # without its port
    given |= {"refused": client["rule"] or client["reason"], "at": moment(client["time"])} if "rule" in client else {}
    return f"{view.tenant_path}/explain?{urlencode(given)}"


@page("/tenants/{tenant}/explain", title="Explain", scope="rules:read", group=TENANT, icon="psychology_alt", key="x")
async def show(view: View) -> None:
    parts.heading("Explain", "what the hubs would say, and which step decides; nothing is sent and no secret is tested")
    await view.api.get(view.tenant_path)  # a tenant that is not there has no form
    given = _asked_for(view.query)
    of_attempt = dict(given)

    async def ask() -> None:
        is_attempt = "refused" in view.query and given == of_attempt  # the form may ask for something else
        attempt.set_visibility(is_attempt)
        result.clear()
        with result:
            try:
                await _answer(view, given, is_attempt=is_attempt)
            except RefusalError as refusal:
                parts.problem(refusal)

    with parts.panel(), ui.element("form").classes("io-row").on("submit.prevent", ask):
        _draw_form(given)
        ui.button("Explain").props("unelevated no-caps type=submit")
    attempt = ui.element("div")
    with attempt, parts.panel("The attempt"):
        ui.label(f"Refused at {view.query.get('at', '')}: {view.query.get('refused', '')}").classes("io-strong")
        ui.label("Below is what the hubs would say now to one like it.").classes("io-soft")
    attempt.set_visibility("refused" in view.query)
    result = ui.element("div").props("aria-live=polite")
    if given["device"]:
        await ask()


def _asked_for(query: Mapping[str, str]) -> Json:
    found: Json = {"kind": "connect", "device": "", "client_id": "", "address": "127.0.0.1", "listener": "tcp"}
    found |= {"topic": "", "filter": "", "qos": 0, "size": 0, "is_persistent": False, "is_retained": False}
    found |= {name: value for name, value in query.items() if isinstance(found.get(name), str)}
    found["kind"] = found["kind"] if found["kind"] in KINDS else KINDS[0]
    found["listener"] = found["listener"].partition(".")[0]
    found["listener"] = found["listener"] if found["listener"] in _LISTENERS else _LISTENERS[0]
    return found


def _draw_form(given: Json) -> None:
    def of(field: ui.element, *kinds: str) -> None:
        field.bind_visibility_from(given, "kind", lambda kind: kind in kinds)

    style = "outlined dense options-dense"
    ui.select(list(KINDS), label="Packet").props(style).bind_value(given, "kind")
    parts.field("Device", given, "device")
    parts.field("Other client id", given, "client_id")
    of(parts.field("Address", given, "address"), "connect")
    of(ui.select(list(_LISTENERS), label="Listener").props(style).bind_value(given, "listener"), "connect")
    of(ui.checkbox("Persistent session").bind_value(given, "is_persistent"), "connect")
    of(parts.field("Topic", given, "topic"), "publish")
    of(parts.field("Topic Filter", given, "filter"), "subscribe")
    of(ui.select([0, 1, 2], label="QoS").props(style).bind_value(given, "qos"), "publish", "subscribe")
    of(ui.number("Payload bytes", min=0, precision=0).props("outlined dense").bind_value(given, "size"), "publish")
    of(ui.checkbox("Retained").bind_value(given, "is_retained"), "publish")


async def _answer(view: View, given: Json, *, is_attempt: bool) -> None:
    """Ask every hub. `is_attempt`: of what was refused, perhaps by a step that is not tested here. Raises RefusalError."""
    kind = given["kind"]
    body = {name: given[name] for name in _FIELDS[kind]}
    body["client_id"] = body["client_id"] or None
    if "size" in body:
        body["size"] = int(body["size"] or 0)
    answer = await view.api.post(f"{view.tenant_path}/explain:{kind}", body)
    deciding = answer["deciding"]
    with parts.panel("Answer") as right:
        with right:
            parts.copy_button(_line(view.tenant, kind, given))
        with ui.element("div").classes("io-row"):
            untested = [step["step"] for hub in answer["hubs"] for step in hub["steps"] if step["outcome"] == UNTESTED]
            untested += ["Will Message"] if is_attempt else []  # a form has none
            parts.badge("deny" if not answer["is_allowed"] else "not tested" if is_attempt else "allow")
            said = (
                f"No step refuses it; {', '.join(dict.fromkeys(untested))}: not tested here." if untested else _ALLOWED
            )
            ui.label(said if deciding is None else f"{deciding['step']}: {deciding['reason']}").classes("io-strong")
            if deciding and deciding["rule"]:
                ui.label(text(deciding["rule"])).classes("io-code")
        for missing in answer["unanswered"]:
            ui.label(missing).classes("io-soft")
    for hub in answer["hubs"]:
        nodes = ", ".join(str(node) for node in hub["nodes"])
        with parts.panel(f"Steps at hub {nodes}", note="in the order in which it decides; the last one does"):
            await _steps(view, hub["steps"]).load()


def _steps(view: View, rows: list[Json]) -> Table:
    async def fetch() -> list[Json]:
        return rows

    return Table(view, "", _STEPS, empty=Empty("The hub has reported no step."), fetch=fetch, rows=0)


def _line(tenant: str, kind: str, given: Json) -> str:
    words: list[object] = ["explain", kind, f"{tenant}/{given['device']}"]
    if kind != "connect":
        words.append(given["topic"] if kind == "publish" else given["filter"])
        words += ["--qos", given["qos"]]
    else:
        words += ["--ip", given["address"], "--listener", given["listener"]]
        words += ["--persistent"] if given["is_persistent"] else []
    if kind == "publish":
        words += ["--size", int(given["size"] or 0), *(["--retain"] if given["is_retained"] else [])]
    words += ["--client-id", given["client_id"]] if given["client_id"] else []
    return command(*words)
