"""What `apply` refuses before its first step: a name that cannot be, is given twice, or names what will not be there.

Knows no step. Each check is the one of the function that a step calls, asked of what there is together with what the file makes before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from iothub.base.errors import ConfigError, ConflictError, IotHubError, NotFoundError
from iothub_tenants.identity import (
    check_device_name,
    check_group_name,
    check_plan_name,
    shown,
)

if TYPE_CHECKING:
    from iothub_tenants.accounts.plans import Plan


@contextmanager
def placed(where: str) -> Iterator[None]:
    """Name the place in the file before what is wrong with it."""
    try:
        yield
    except IotHubError as error:
        error.args = (f"{where}: {error}",)
        raise


def require_once(names: Iterable[str], where: str) -> None:
    """Raise ConfigError if a name is there twice: which of the two is meant?"""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ConfigError(f"{where}: {shown(name)} is given twice")
        seen.add(name)


class Plans:
    """The plans that there are (`known`), and those of the file so far."""

    def __init__(self, known: Iterable[Plan]) -> None:
        self.known = {plan.name: plan for plan in known}
        self._parents = {name: plan.parent for name, plan in self.known.items()}

    def require(self, name: str) -> None:
        """Raise NotFoundError unless there is this plan."""
        if name not in self._parents:
            raise NotFoundError(f"there is no plan {shown(name)}: put it before what names it, under `plans`")

    def set(self, name: str, parent: str | None, weight: int | None) -> None:
        """Make or change one. Raises ConfigError, ConflictError, NotFoundError."""
        from iothub_tenants.accounts import plans

        check_plan_name(name)
        if parent is not None:
            check_plan_name(parent)
        plans.check_weight(weight)
        is_new = name not in self._parents
        above = parent or (plans.STANDARD if is_new else self._parents[name])
        if parent not in (None, self._parents.get(name)):
            plans.refuse_parent_of_built_in(name)
        if above is None:
            return
        self.require(above)
        chain = self._chain(above)
        if name in chain:
            cycle = " -> ".join((name, *chain[: chain.index(name) + 1]))
            raise ConflictError(f"plan {name} cannot inherit from {above}: {cycle} is a cycle")
        self._parents[name] = above
        levels = max(len(self._chain(each)) for each in self._parents)
        if levels > plans.MOST_LEVELS:
            raise ConfigError(
                f"the chain of plan {name} would have {levels} plans, expected at most {plans.MOST_LEVELS}"
            )

    def _chain(self, name: str) -> list[str]:
        """Return a plan and those above it."""
        found: list[str] = []
        above: str | None = name
        while above is not None and above not in found:
            found.append(above)
            above = self._parents.get(above)
        return found


class Names:
    """The groups and devices of a tenant once the steps are done, and its streams."""

    def __init__(self, has: Mapping[str, Any]) -> None:
        """`has`: the tenant as it is; nothing of a new one."""
        self._had_groups = set(has.get("groups", ()))
        self._had_devices = {row["name"] for row in has.get("devices", ())}
        self._groups, self._devices = set(self._had_groups), set(self._had_devices)
        self._streams = {row["name"] for row in has.get("streams", ())}

    def set_groups(self, names: Sequence[str], where: str, *, prunes: bool) -> None:
        """Raises ConfigError."""
        require_once(names, where)
        for name in names:
            if name not in self._had_groups:
                with placed(where):
                    check_group_name(name)
        self._groups = set(names) if prunes else self._groups | set(names)

    def set_devices(self, names: Sequence[str], where: str, *, prunes: bool) -> None:
        """Raises ConfigError, ConflictError."""
        require_once(names, where)
        for place, name in enumerate(names):
            if name not in self._had_devices:
                with placed(f"{where}[{place}]"):
                    check_device_name(name)
                    if self._is_stream(name):
                        raise ConflictError(
                            f"a device cannot be named {name}: that is how the access rules name a stream"
                        )
        self._devices = set(names) if prunes else self._devices | set(names)

    def require_group(self, name: str, where: str) -> None:
        """Raise NotFoundError unless it will be there."""
        if name not in self._groups:
            raise NotFoundError(f"{where}: there is no device group {shown(name)}: name it under `groups`")

    def require_device(self, name: str, where: str) -> None:
        """Raise NotFoundError unless it will be there."""
        if name not in self._devices:
            raise NotFoundError(f"{where}: there is no device {shown(name)}: name it under `devices`")

    def require_subject(self, subject: str, where: str) -> None:
        """Raise NotFoundError unless whom a rule is for will be there."""
        from iothub_services.auth.port import Scope
        from iothub_tenants.accounts import acl_rules, streams

        scope, name = acl_rules.split_subject(subject)
        if scope is Scope.GROUP:
            self.require_group(name, where)
        elif scope is Scope.DEVICE and not self._is_stream(name):
            if name.startswith(streams.SUBJECT) and name not in self._devices:
                stream = name.removeprefix(streams.SUBJECT)
                raise NotFoundError(f"{where}: there is no stream {shown(stream)}: `iothub stream create` makes it")
            self.require_device(name, where)

    def _is_stream(self, subject: str) -> bool:
        from iothub_tenants.accounts import streams

        return subject.startswith(streams.SUBJECT) and subject.removeprefix(streams.SUBJECT) in self._streams
