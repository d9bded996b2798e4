"""/tenants: all tenants, and what can be done with one."""

from __future__ import annotations

from iothub.dashboard import parts
from iothub.dashboard.api import part
from iothub.dashboard.frame import PLATFORM, View, page
from iothub.dashboard.parts import Empty
from iothub.dashboard.table import Column, Table
from iothub.dashboard.units import moment

COLUMNS = (
    Column("name", "Name", href=lambda row: f"/tenants/{part(row['name'])}"),
    Column("display_name", "Display name"),
    Column("state", "State", "badge"),
    Column("plan", "Plan", href=lambda row: f"/plans/{part(row['plan'])}"),
    Column("is_protected", "Protected"),
    Column("created", "Created (UTC)", show=moment),
)


@page("/tenants", title="Tenants", scope="tenants:list", group=PLATFORM, icon="apartment", key="t")
async def show(view: View) -> None:
    with parts.heading("Tenants"):
        pass
    table = Table(view, "/tenants", COLUMNS, empty=Empty("No tenants yet.", "iothub tenant create NAME"))
    await table.load()
