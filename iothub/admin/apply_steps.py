"""One change of what `apply` does.

Knows no file; `run` is a call of the function that the change's own command calls.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from iothub_tenants.accounts.devices import NewSecret


@dataclass(frozen=True, slots=True)
class Step:
    """One change. `action`: create, update or delete; `change`: what becomes what. `run` returns a secret that it has made.

    `run` None: it is done by another step, or elsewhere.
    """

    action: str
    what: str
    tenant: str
    name: str
    change: str
    run: Callable[[], NewSecret | None] | None = field(repr=False)


def silent(run: Callable[[], object]) -> Callable[[], None]:
    def silent() -> None:
        run()

    return silent
