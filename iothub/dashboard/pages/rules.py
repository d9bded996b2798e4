"""/tenants/{tenant}/rules: who may publish and subscribe what, and which rule would decide."""

from __future__ import annotations

from nicegui import ui

from iothub.dashboard import dialogs, parts
from iothub.dashboard.api import Json
from iothub.dashboard.frame import TENANT, View, page
from iothub.dashboard.parts import Empty, command
from iothub.dashboard.rule_files import RuleImport
from iothub.dashboard.table import Action, Column, Table, text
from iothub.dashboard.units import moment


@page("/tenants/{tenant}/rules", title="Access rules", scope="rules:read", group=TENANT, icon="rule", key="r")
async def show(view: View) -> None:
    actions = parts.heading("Access rules")
    path = f"{view.tenant_path}/acl-rules"
    subject = view.query.get("subject") or None

    async def remove(row: Json) -> None:
        line = command("acl", "remove", view.tenant, row["id"])
        sentence = f"{row['effect']} {row['subject']} {row['action']} {row['filter']}"
        question = f"{sentence}\nLive subscriptions and connections are judged again within a second."
        if await dialogs.confirm("Remove this rule", question, verb="Remove", command=line):
            await view.do(view.api.delete(f"{path}/{row['id']}"), "The rule is removed.")
            await table.reload()

    _test(view)
    table = Table(
        view,
        path,
        (
            Column("id", "No."),
            Column("subject", "Subject"),
            Column("effect", "Effect", "badge"),
            Column("action", "Action"),
            Column("filter", "Topic Filter", "code"),
            Column("created", "Created (UTC)", show=moment),
        ),
        empty=Empty(
            "No rules: nothing is allowed.", command("acl", "allow", view.tenant, "*", "both", "#"), "rules:write"
        ),
        actions=[Action("delete", "Remove", remove, "rules:write")],
        query={"subject": subject},
        rows=0 if subject else 50,
    )
    with table.above:
        if subject:
            ui.link(f"applies to {subject}  \u00d7", f"{view.tenant_path}/rules").classes("io-badge io-badge-none")
            ui.label("in order of precedence").classes("io-soft")
    if view.may("rules:write"):
        with actions:
            load = RuleImport(view, table.load)
            ui.button("Import", icon="upload_file", on_click=load.show).props("outline no-caps")
            ui.button("Add rule", icon="add", on_click=lambda: _add(view, table)).props("unelevated no-caps")
    await table.load()


def _test(view: View) -> None:
    """A form that asks which rule decides."""
    given: Json = {"device": "", "action": "publish", "topic": "", "client_id": ""}

    async def ask() -> None:
        asked = {name: value for name, value in given.items() if value}
        answer = await view.do(view.api.get(f"{view.tenant_path}/acl:test", **asked))
        result.clear()
        if answer is not None:
            with result:
                parts.badge("allow" if answer["is_allowed"] else "deny")
                ui.label(str(answer["reason"]))
                rule = answer.get("rule")
                if rule:
                    ui.label(
                        f"rule {rule['id']}: {text(rule['effect'])} {rule['subject']} {rule['action']} {rule['filter']}"
                    ).classes("io-code")
                parts.copy_button(command("acl", "test", view.tenant, given["device"], given["action"], given["topic"]))

    with (
        parts.panel("May it?", note="which rule decides for a device"),
        ui.element("form").classes("io-row").on("submit.prevent", ask),
    ):
        parts.field("Device", given, "device")
        ui.select(["publish", "subscribe"], label="Action").props("outlined dense options-dense").bind_value(
            given, "action"
        )
        parts.field("Topic, or Topic Filter", given, "topic")
        parts.field("Other client id", given, "client_id")
        ui.button("Test").props("unelevated no-caps type=submit")
        result = ui.element("div").classes("io-row io-fill").props("aria-live=polite")


async def _add(view: View, table: Table) -> None:
    given: Json = {"subject": "*", "effect": "allow", "action": "both", "filter": ""}

    def draw() -> None:
        parts.field("Subject", given, "subject", 'hint="a device, @GROUP, or * for all devices"')
        ui.select(["allow", "deny"], label="Effect").props("outlined dense options-dense").bind_value(given, "effect")
        ui.select(["publish", "subscribe", "both"], label="Action").props("outlined dense options-dense").bind_value(
            given, "action"
        )
        field = parts.field("Topic Filter", given, "filter", "autofocus")
        field.props["hint"] = "such as sensors/{device}/#"

    async def send() -> object | None:
        made = await view.do(view.api.post(f"{view.tenant_path}/acl-rules", given), "The rule is in force.")
        if made is not None:
            await table.load()
        return made

    def line() -> str:
        return command(
            "acl", given["effect"], view.tenant, given["subject"], given["action"], given["filter"] or "FILTER"
        )

    await dialogs.form("Add rule", draw, send, verb="Add", command=line)
