"""/tenants/{tenant}/audit: who has changed what of a tenant."""

from __future__ import annotations

from iothub.dashboard import parts
from iothub.dashboard.frame import TENANT, View, page
from iothub.dashboard.parts import Empty, command
from iothub.dashboard.table import Column, Table, text
from iothub.dashboard.units import moment


def audit_columns(*, with_tenant: bool) -> list[Column]:
    """Return the columns of the audit log; `before` and `after` are texts, whatever a client has put there."""
    return [
        Column("at", "When (UTC)", show=moment),
        Column("actor", "Who"),
        *([Column("tenant", "Tenant")] if with_tenant else []),
        Column("kind", "Kind"),
        Column("subject", "What", "code"),
        Column("action", "Action"),
        Column("before", "Before", show=text),
        Column("after", "After", show=text),
    ]


@page("/tenants/{tenant}/audit", title="Changes", scope="tenant-audit:read", group=TENANT, icon="history")
async def show(view: View) -> None:
    parts.heading("Changes", "the newest first")
    table = Table(
        view,
        f"{view.tenant_path}/audit",
        audit_columns(with_tenant=False),
        empty=Empty("Nothing has been changed yet.", command("audit", "list", "--tenant", view.tenant)),
    )
    await table.load()
