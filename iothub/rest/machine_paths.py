"""/config, /features, /events/lag and /doctor: the machine that the API runs on, and the hub's own settings."""

from __future__ import annotations

from fastapi import Response

from iothub.records.admin_commands import Verb
from iothub.rest import answers
from iothub.rest.machine import Here
from iothub.rest.models import Anything, Items
from iothub.rest.routes import Call, Routes
from iothub.rest.scopes import Scope
from iothub_tenants.accounts import audit

routes = Routes("machine")


@routes.get("/config", Scope.CONFIG_READ, returns=Items)
def list_settings(_call: Call, here: Here) -> Response:
    """List every setting with its value and where it comes from. No setting is a secret: secrets are in files that settings name.

    These are the settings of this API; a reload of the hub reaches it. A hub that was started with other flags has those.
    """
    return answers.shown({"items": here.settings()})


@routes.post("/config:reload", Scope.CONFIG_WRITE, status=200, returns=Anything)
def reload_settings(call: Call) -> Response:
    """Have the hub that runs here, each of its workers, read its configuration again, and list the settings that have changed.

    One with `now` is in force, one with `restart` waits for a restart. If there is a mistake, nothing is changed.
    """
    first, *_ = call.hub.ask_workers(Verb.CONFIG_RELOAD)  # all read the same
    changed = [dict(row) for row in first.rows]
    audit.note(
        call.store, "", "config", "reload", {"done": "reloaded", "changed": [row.get("name") for row in changed]}
    )
    return answers.shown({**first.result, "changed": changed})


@routes.get("/features", Scope.CONFIG_READ, returns=Anything)
def show_features(_call: Call, here: Here) -> Response:
    """Show the version of the program, the extras that are installed, and the drivers that the settings choose."""
    return answers.shown(here.features())


@routes.get("/events/lag", Scope.STATUS_READ, returns=Items)
def list_event_lag(_call: Call, here: Here) -> Response:
    """List for each partition where the session log begins and ends, and how far the session states are behind."""
    return answers.shown({"items": here.event_lag()})


@routes.get("/doctor", Scope.STATUS_READ, returns=Items)
def list_findings(_call: Call, here: Here) -> Response:
    """List what `iothub doctor` finds here: accounts, stores, servers, ports, certificates, clock. It may take up to 20 s."""
    return answers.shown({"items": here.findings()})
