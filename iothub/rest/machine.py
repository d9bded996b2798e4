"""What the API does on its own machine: settings, jobs, the program. `iothub.cli.served_machine` is it, with the functions of the command line.

Knows no path.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Protocol

from fastapi import Depends, Request

from iothub.config.sections import Config
from iothub_services.streams.port import Direction, Stream
from iothub_tenants.accounts.job_runs import Run
from iothub_tenants.accounts.store import AccountStore

Row = dict[str, object]


class Machine(Protocol):
    """All methods block."""

    def config(self) -> Config:
        """Return the settings as the hub has them since its last reload."""
        ...

    def settings(self) -> list[Row]:
        """Return every setting with its value and origin."""
        ...

    def features(self) -> Row:
        """Return what is installed and chosen here."""
        ...

    def event_lag(self) -> list[Row]:
        """Return for each partition of the session log how far the states are behind. Raises NotFoundError: there is no log."""
        ...

    def findings(self) -> list[Row]:
        """Return what `iothub doctor` finds."""
        ...

    def start_run(
        self, store: AccountStore, job: str, *, is_full: bool, is_dry_run: bool, options: Sequence[str]
    ) -> Run:
        """Start a job. Raises NotFoundError, ConfigError, ConflictError, UnavailableError."""
        ...

    def cancel_run(self, run: Run) -> None:
        """Raises ConflictError, DeniedError."""
        ...

    def read_log(self, run: Run) -> bytes:
        """Raises NotFoundError."""
        ...

    def read_report(self, run: Run) -> str:
        """Raises NotFoundError, UnavailableError."""
        ...

    def create_stream(
        self,
        store: AccountStore,
        tenant: str,
        name: str,
        topic_filter: str,
        *,
        direction: Direction,
        partitions: int | None,
        retention_s: float | None,
    ) -> Row:
        """Create a stream and its topic. Raises ConfigError, ConflictError, NotFoundError, TenantLimitError, UnavailableError."""
        ...

    def delete_stream(self, store: AccountStore, stream: Stream, *, is_topic_kept: bool) -> None:
        """Delete a stream and, unless it is kept, its topic. Raises ConfigError, ConflictError, UnavailableError."""
        ...

    def stream_row(self, stream: Stream) -> Row:
        """Return a stream as it is shown."""
        ...


async def machine_of(request: Request) -> Machine:
    """Return the machine that the edge has given with the request."""
    machine: Machine = request.scope["iothub.machine"]
    return machine


Here = Annotated[Machine, Depends(machine_of)]
