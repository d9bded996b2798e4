"""`iothub alarm`: the alarms that are raised now, at every hub.

Knows no condition: `iothub_services.metrics.alarms` names them, the hubs raise them. Alarms of before are in the log.
"""

from __future__ import annotations

from difflib import get_close_matches

import click

from iothub.admin.hub_rows import alarm_rows
from iothub.base.errors import NotFoundError
from iothub.cli.app import COMMAND_TIMEOUT_S, App, noun, verb
from iothub.records.admin_commands import Verb

command = noun("alarm", "Alarms: what is wrong at the hubs now, and what to do.")

_COLUMNS = ("node", "severity", "name", "subject", "since", "detail")


@verb(command, "list")
def list_all(app: App) -> None:
    """List the alarms of all hubs and workers, the oldest first. A hub must run here.

    What several hubs say alike is one line of the table, with all their node numbers; `-o json` has a record for each hub.

    `iothub alarm show NAME` says what to do. The exit code says nothing of alarms: `iothub doctor` ends with 1 if a critical one is raised at this
    hub. Exit code 7: a hub did not answer; the alarms of the others are listed.

    Examples:
      iothub --data-dir ./hub alarm list
      iothub --data-dir ./hub alarm list -o json
    """
    rows = raised(app)
    app.rows(_merged(rows) if app.form == "table" else rows, *_COLUMNS)


def _merged(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    """Make one row of those that say the same at several hubs: `node` has all of them, `since` is the earliest."""
    found: dict[tuple[object, ...], dict[str, object]] = {}
    for row in rows:
        same = found.setdefault((row["name"], row["subject"], row["detail"]), {**row, "node": ""})
        same["node"] = f"{same['node']}, {row['node']}" if same["node"] else str(row["node"])
    return list(found.values())


@verb(command, "show")
@click.argument("name")
def show(app: App, name: str) -> None:
    """Show what to do about an alarm, and where it is raised; with or without a running hub.

    Example:
      iothub --data-dir ./hub alarm show disk_low
    """
    from iothub_services.metrics.alarms import AlarmName

    known = {each.word: each for each in AlarmName}
    if name not in known:
        near = get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"expected one of {', '.join(sorted(known))}"
        raise NotFoundError(f"there is no alarm {name!r}: {hint}")
    is_asked = app.may_hub_run
    rows = [row for row in raised(app) if row["name"] == name] if is_asked else []
    record: dict[str, object] = {"name": name, "severity": known[name].severity, "advice": known[name].advice}
    app.record(record if app.form == "table" else {**record, "raised": rows if is_asked else None})
    app.section("raised", [{column: row[column] for column in ("node", "subject", "since", "detail")} for row in rows])
    if not is_asked:
        app.say("iothub: warning: no hub runs here that could say where the alarm is raised")


def raised(app: App) -> list[dict[str, object]]:
    """Return the raised alarms of all hubs. Raises UnavailableError."""
    answer = app.ask_hub("", Verb.ALARM_LIST, {}, COMMAND_TIMEOUT_S)
    return alarm_rows(answer.rows)
