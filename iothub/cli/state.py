"""`iothub state`: compares the session states with the log that they are computed from. Changes neither.

Knows what to open and how to print the result; `iothub_services.state.verification` compares.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from iothub.base.errors import CorruptRecordError, NotFoundError
from iothub.cli import output
from iothub.cli.app import App, noun, verb
from iothub.cli.numbers import WholeNumber
from iothub.cli.progress import Progress

if TYPE_CHECKING:
    from iothub_services.state.verification import Verification

command = noun("state", "The session states, computed from the session-event log. Their driver is `state.driver`.")


@verb(command, "verify")
@click.option("--full", "is_full", is_flag=True, help="Read the whole log, even if there is a checkpoint.")
@click.option(
    "--limit",
    type=WholeNumber(0, 100_000),
    default=20,
    show_default=True,
    help="Maximum number of sessions and events to list.",
)
@click.option("--json", "is_json", is_flag=True, help="The same as -o json.")
def verify(app: App, is_full: bool, limit: int, is_json: bool) -> None:
    """Compute every persistent session from the log and compare; exit code 1 when one differs or an event is damaged.

    Starts from the checkpoint, if there is one, and may run beside a hub. Events that the states do not have yet are no difference:
    the next start adds them. Needs memory for every session twice.

    Examples:
      iothub --data-dir ./hub state verify
      iothub --data-dir ./hub state verify --full --limit 1000 --json
    """
    if is_json:
        app.form = "json"
    from iothub.cli import stores  # loads every driver
    from iothub_services.state.verification import verify as compare

    app.data_dir.require_initialised()
    config = app.loaded.config
    with (
        stores.reading_events(app.data_dir, config) as log,
        stores.reading_states(app.data_dir, config) as states,
        stores.reading_checkpoints(app.data_dir, config) as checkpoints,
    ):
        if log is None or states is None:
            raise NotFoundError("there are no session states yet: the first `iothub serve` creates them")
        with Progress("events") as progress:
            found = compare(log, states, None if is_full else checkpoints, progress)
    for why in found.unusable:
        output.say(f"iothub: warning: {why}: reading the whole log")
    app.record(_record(found, limit))
    if found.differences:
        raise CorruptRecordError(
            f"{len(found.differences)} of {output.counted(found.compared, 'session')} differ from the log: {found.differences[0]}"
        )
    if found.damaged:
        raise CorruptRecordError(
            f"the states match the log, but {output.counted(len(found.damaged), 'damaged event')} passed over: {found.damaged[0]}"
        )


def _record(found: Verification, limit: int) -> output.Row:
    return {
        "from": "the beginning of the log" if found.checkpoint is None else f"checkpoint {found.checkpoint}",
        "events": found.events,
        "damaged": len(found.damaged),
        "damage": found.damaged[:limit],
        "sessions": found.compared,
        "older_than_log": found.unreachable,
        "different": len(found.differences),
        "differences": [str(difference) for difference in found.differences[:limit]],
    }
