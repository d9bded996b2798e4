"""/tenants/{tenant}/rejected and /rejected: why a client cannot connect - the last refused CONNECTs, with the rule that decided."""

from __future__ import annotations

from collections.abc import Sequence

from iothub.dashboard import parts
from iothub.dashboard.api import Json
from iothub.dashboard.frame import DIAGNOSE, TENANT, View, page
from iothub.dashboard.pages import explain
from iothub.dashboard.parts import Empty, command
from iothub.dashboard.table import Column, Table
from iothub.dashboard.units import moment


@page(
    "/tenants/{tenant}/rejected", title="Rejected clients", scope="rejected:read", group=TENANT, icon="block", key="j"
)
async def show(view: View) -> None:
    parts.heading("Why can't it connect?", "the last refused connections, with the rule that decided")
    link = Column(
        "", "", of=lambda row: "Explain this" if row["device"] else "", href=lambda row: _explained(view, row)
    )
    more = [link] if view.may("rules:read") else []
    await _table(view, f"{view.tenant_path}/rejected", command("rejected", view.tenant), more)


@page("/rejected", title="Unknown tenants", scope="status:read", group=DIAGNOSE, icon="help_outline")
async def show_unknown(view: View) -> None:
    parts.heading("Rejected without a tenant", "connections whose user name is of no known tenant")
    await _table(view, "/rejected", command("rejected", "--unknown"))


def _explained(view: View, row: Json) -> str:
    """Return the page that says what the hubs would say now; empty: the attempt named no device."""
    return explain.link_of(view, row) if row["device"] else ""


async def _table(view: View, path: str, line: str, more: Sequence[Column] = ()) -> None:
    async def fetch() -> list[Json]:
        return list(reversed((await view.api.page(path)).items))  # the newest first

    await Table(
        view,
        path,
        (
            Column("time", "When (UTC)", show=moment),
            Column("client_id", "Client id", "code"),
            Column("device", "Device", "code"),
            Column("address", "Address", "code"),
            Column("listener", "Listener"),
            Column("version", "MQTT"),
            Column("reason", "Reason", "code"),
            Column("rule", "Rule that decided", "code"),
            *more,
        ),
        empty=Empty("No connection has been refused since the hub started.", line),
        rows=0,
        fetch=fetch,
    ).try_load()
