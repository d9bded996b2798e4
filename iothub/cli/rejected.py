"""`iothub rejected`: the last refused CONNECTs of a tenant, from the memory of the running hub.

Knows no store: what is listed is gone when the hub stops; the log keeps it.
"""

from __future__ import annotations

import click

from iothub.admin.hub_rows import rejected_row
from iothub.cli.app import App, Command
from iothub.cli.numbers import WholeNumber
from iothub.records.admin_commands import Verb

_COLUMNS = ("time", "device", "client_id", "address", "listener", "version", "reason", "rule")


@click.command("rejected", cls=Command)
@click.argument("tenant", required=False)
@click.option("--unknown", "is_unknown", is_flag=True, help="Those that named no tenant, or one that does not exist.")
@click.option(
    "--limit", type=WholeNumber(1, 1000), default=1000, show_default=True, help="Maximum number of rows: the newest."
)
@click.pass_context
def command(context: click.Context, tenant: str | None, is_unknown: bool, limit: int) -> None:
    """List the last refused CONNECTs of a tenant, oldest first, with the rule that decided. The hub must run.

    The client gets less than this on purpose. The hub remembers 1,000 of each tenant until it stops; the log has a line for each, as far as
    `log.connections` and its rate allow.
    With --unknown: connections that named no known tenant or were closed before their CONNECT was read.

    Examples:
      iothub --data-dir ./hub rejected acme
      iothub --data-dir ./hub rejected --unknown --limit 20 -o json
    """
    app: App = context.obj
    if (tenant is None) is not is_unknown:
        raise click.UsageError("name a tenant, or use --unknown")
    answer = app.hub.ask(Verb.REJECTED_LIST, tenant or "", {"is_unknown": is_unknown})
    columns = ("time", "tenant", *_COLUMNS[1:]) if is_unknown else _COLUMNS
    app.rows([rejected_row(reported) for reported in answer.rows[-limit:]], *columns)
