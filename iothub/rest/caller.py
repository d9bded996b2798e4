"""Who makes a request, and what is done for him: the accounts that he changes, the hub.

Knows no path and no HTTP.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import BoundedSemaphore
from typing import Literal, NamedTuple, Protocol, TypeVar

from iothub.base.errors import NotFoundError, UnavailableError
from iothub.config.sections import Config
from iothub.records.admin_commands import Json, Verb
from iothub.rest.problems import Code, ProblemError
from iothub.rest.scopes import SCOPES_OF, Scope
from iothub_tenants.accounts import audit
from iothub_tenants.accounts.api_keys import ApiKey
from iothub_tenants.accounts.roles import Role
from iothub_tenants.accounts.store import AccountStore
from iothub_tenants.accounts.users import User
from iothub_tenants.identity import shown

ASK_S = 10.0  # how long a hub may be silent
CHANGE_S = 30.0  # how long a hub may take to change something
_AT_ONCE = 6  # requests that wait for the hub; the other threads are for the accounts
_FREE_S = 2.0

T = TypeVar("T")


class Answer(Protocol):
    """What a hub has answered."""

    @property
    def rows(self) -> list[Json]: ...

    @property
    def result(self) -> Json: ...


class Hub(Protocol):
    """The hub that runs on this data directory. All methods block."""

    def ask(self, verb: Verb, tenant: str, argument: Json, silence_s: float) -> Answer: ...

    def change(self, verb: Verb, tenant: str, argument: Json, total_s: float) -> Json: ...

    def ask_workers(self, verb: Verb) -> Sequence[Answer]:
        """Ask each worker of the hub."""
        ...

    def hint_changes(self) -> None: ...

    def address(self, listener: str) -> str:
        """Return where it listens, such as 127.0.0.1:1883; empty: nowhere. `http`: its metrics."""
        ...


class Asked(NamedTuple):
    """An answer of the hub."""

    rows: list[Json]
    result: Json


class BoundedHub:
    """The hub, asked by a few threads at a time: one that does not answer must not take all of them."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._free = BoundedSemaphore(_AT_ONCE)

    def ask(self, verb: Verb, tenant: str, argument: Json) -> Asked:
        """Raises UnavailableError, or the hub's own refusal; ProblemError: too many wait already."""
        return self._guarded(lambda: Asked(*_parts(self._hub.ask(verb, tenant, argument, ASK_S))))

    def change(self, verb: Verb, tenant: str, argument: Json) -> Json:
        """Have the hubs do something. Raises as `ask`; UnavailableError also for a hub that has not done it."""
        result = self._guarded(lambda: self._hub.change(verb, tenant, argument, CHANGE_S))
        missing = result.get("unanswered")
        if isinstance(missing, list) and missing:
            names = ", ".join(str(each.get("hub")) for each in missing if isinstance(each, dict))
            raise UnavailableError(f"done, but not by hubs that did not answer: {names}; repeat it")
        return result

    def ask_workers(self, verb: Verb) -> list[Asked]:
        """Ask each worker of the hub that runs here, or the hub itself. Raises as `ask`."""
        return self._guarded(lambda: [Asked(*_parts(each)) for each in self._hub.ask_workers(verb)])

    def hint_changes(self) -> None:
        self._hub.hint_changes()

    def address(self, listener: str) -> str:
        return self._hub.address(listener)

    def _guarded(self, call: Callable[[], T]) -> T:
        with self._turn():
            return call()

    @contextmanager
    def _turn(self) -> Iterator[None]:
        if not self._free.acquire(timeout=_FREE_S):
            raise ProblemError(Code.BUSY, "too many requests wait for the hub: try again", headers={"Retry-After": "1"})
        try:
            yield
        finally:
            self._free.release()


@dataclass(frozen=True, slots=True)
class Principal:
    """A key, or a user who has logged in. `tenant`: the only one that is there for him; None: he is of the platform.

    `id`: is never another's; a name may be.
    """

    kind: Literal["key", "user"]
    id: str
    name: str
    role: Role
    tenant: str | None

    @classmethod
    def of_key(cls, key: ApiKey) -> Principal:
        return cls("key", f"key:{key.prefix}", key.name, key.role, key.tenant)

    @classmethod
    def of_user(cls, user: User) -> Principal:
        return cls("user", f"user:{user.id}", user.name, user.role, user.tenant)

    @property
    def actor(self) -> str:
        """What the audit log calls him."""
        return f"{self.kind}:{self.name}"

    @property
    def scopes(self) -> frozenset[Scope]:
        return SCOPES_OF[self.role]


@dataclass(frozen=True, slots=True)
class Caller:
    """One request's. `store` writes down his name with each change."""

    principal: Principal
    store: AccountStore
    hub: BoundedHub
    settings: Config

    @property
    def is_platform(self) -> bool:
        return self.principal.tenant is None

    def require_other(self, kind: Literal["key", "user"], name: str, verb: str) -> None:
        """Raises ProblemError: it is the caller, who would be locked out with the next request."""
        if (self.principal.kind, self.principal.name) == (kind, name):
            who, other = ("nobody", "administrator") if kind == "user" else ("no key", "key or an administrator")
            self_ = "himself" if kind == "user" else "itself"
            raise ProblemError(Code.CONFLICT, f"{who} {verb} {self_}: let another {other} do it")

    def require(self, scope: Scope, tenant: str | None) -> None:
        """Let the request through, or not. Another tenant than the key's own does not exist for it, whatever is asked.

        Raises NotFoundError, ProblemError.
        """
        who = self.principal
        if who.tenant is not None and tenant is not None and tenant != who.tenant:
            raise NotFoundError(f"there is no tenant {shown(tenant)}")
        if scope not in who.scopes or (who.tenant is not None and tenant is None and _is_wide(scope)):
            raise ProblemError(
                Code.FORBIDDEN,
                f"the {who.kind} {who.name} has the role {who.role.value}, without the scope {scope.value}",
            )

    def unanswered(self, result: Json) -> list[str]:
        """Say which hubs are missing in an answer; a tenant hears only that there are some."""
        missing = result.get("unanswered")
        hubs = [each for each in missing if isinstance(each, dict)] if isinstance(missing, list) else []
        if not self.is_platform:
            return ["a hub did not answer"] * len(hubs)
        return [f"hub {each.get('hub')} did not answer: {each.get('reason')}" for each in hubs]

    def note(self, tenant: str, kind: str, subject: str, done: str, **more: object) -> None:
        """Write down what a hub has done for this caller."""
        audit.note(self.store, tenant, kind, subject, {"done": done, **more})


def _is_wide(scope: Scope) -> bool:
    """Whether a path without a tenant that has this scope is about all of them."""
    return scope not in (Scope.SELF_READ, Scope.SELF_LOGIN)


def _parts(answer: Answer) -> tuple[list[Json], Json]:
    return list(answer.rows), answer.result
