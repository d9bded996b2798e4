"""What can be done with a tenant, in the list of all and on its own page: the question, the request, the command."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from iothub.dashboard import dialogs
from iothub.dashboard.api import Json, part
from iothub.dashboard.dialogs import Danger
from iothub.dashboard.frame import View
from iothub.dashboard.parts import command
from iothub.dashboard.table import Action

SCOPE = "tenants:write"


@dataclass(frozen=True, slots=True)
class TenantAction:
    """`verb` is that of REST and of the command line."""

    verb: str
    label: str
    icon: str
    question: str
    danger: Danger
    done: str
    when: Callable[[Json], bool]


ALL = (
    TenantAction(
        "suspend",
        "Suspend",
        "pause_circle",
        "Its connections are closed and new ones are refused. Everything that is stored is kept.",
        Danger.MODERATE,
        "suspended",
        lambda row: row["state"] == "active",
    ),
    TenantAction(
        "resume",
        "Resume",
        "play_circle",
        "Its devices may connect again.",
        Danger.NONE,
        "active again",
        lambda row: row["state"] == "suspended",
    ),
    TenantAction(
        "protect",
        "Protect",
        "lock",
        "It cannot be deleted until the protection is removed.",
        Danger.NONE,
        "protected",
        lambda row: not row["is_protected"] and row["state"] != "deleting",
    ),
    TenantAction(
        "unprotect",
        "Remove the protection",
        "lock_open",
        "It can be deleted from then on.",
        Danger.MODERATE,
        "no longer protected",
        lambda row: bool(row["is_protected"]),
    ),
    TenantAction(
        "delete",
        "Delete",
        "delete",
        "Everything it has is removed: devices, rules, limits, sessions, queued and retained messages, topics of streams.",
        Danger.SEVERE,
        "being deleted",
        lambda row: not row["is_protected"] and row["state"] != "deleting",
    ),
)


async def run(view: View, action: TenantAction, name: str) -> bool:
    """Ask, then do it. False: it was cancelled, or REST has refused."""
    is_deletion = action.verb == "delete"
    words = ("--confirm", name) if is_deletion else ()
    if not await dialogs.confirm(
        f"{action.label}: tenant {name}",
        action.question,
        verb=action.label,
        danger=action.danger,
        name=name,
        command=command("tenant", action.verb, name, *words),
    ):
        return False
    path = f"/tenants/{part(name)}"
    request = view.api.delete(path) if is_deletion else view.api.post(f"{path}:{action.verb}")
    return await view.do(request, f"Tenant {name} is {action.done}.") is not None


def of_rows(view: View, reload: Callable[[], Awaitable[None]]) -> list[Action]:
    """Return them as the actions of a table of tenants."""

    def action_of(each: TenantAction) -> Action:
        async def act(row: Json) -> None:
            if await run(view, each, str(row["name"])):
                await reload()

        return Action(each.icon, each.label, act, SCOPE, each.when)

    return [action_of(each) for each in ALL]
