"""Sets limits of a tenant and of many of its devices from lines of text: all of them or, with the bad lines named, none.

A line is what `quota set TENANT` takes, with the device, if it is for one, first: `dev1 connections=3`, `sessions=1000`. Knows no file.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from sqlalchemy import Connection

from iothub.base.errors import ConfigError
from iothub_services.quota.grammar import Limits, parse_limits
from iothub_services.quota.names import Quota
from iothub_tenants.accounts import devices, limits, quotas, tenants
from iothub_tenants.accounts.csv_rows import NOT_UTF_8, BadLinesError, is_foreign
from iothub_tenants.accounts.quotas import Override
from iothub_tenants.accounts.store import AccountStore, ChangeKind
from iothub_tenants.identity import DEVICE_NAME, shown

COMMENT = "#"


def set_limits_of_lines(
    store: AccountStore, tenant: str, lines: Iterable[str], *, is_dry_run: bool = False
) -> list[Override]:
    """Set the limits of all lines in one transaction, and return what the limits of these names now are; others stay.

    A dry run checks everything, and returns what they would be.

    Raises:
        NotFoundError: no such tenant.
        ConflictError: the tenant is being deleted.
        BadLinesError: lines are malformed, name devices that do not exist, or set a limit twice; nothing was set.
    """
    parsed = _Lines()
    for number, line in enumerate(lines, 1):
        parsed.add(number, line)
    if is_dry_run:
        with store.read() as connection:
            return _changed(connection, tenants.living(connection, tenant), parsed)
    with store.write() as writer:
        owner = tenants.living(writer.connection, tenant)
        overrides = _changed(writer.connection, owner, parsed)
        quotas.write_many(writer.connection, owner, overrides)
        if overrides:
            writer.changed(owner.id, ChangeKind.QUOTA, "*", after={"done": "set", "limits": len(overrides)})
        return overrides


@dataclass(slots=True)
class _Lines:
    """What the lines set, by device (`""`: the tenant itself); where each stands; and what is wrong by line."""

    limits: dict[str, Limits] = field(default_factory=dict)
    lines: dict[tuple[str, Quota, bool], int] = field(default_factory=dict)
    named: dict[str, list[int]] = field(default_factory=dict)
    faults: dict[int, str] = field(default_factory=dict)

    def add(self, number: int, line: str) -> None:
        words = line.removeprefix("\ufeff").split()
        if not words or words[0].startswith(COMMENT):
            return
        device = "" if "=" in words[0] else words.pop(0)
        try:
            _check_text(line, device)
            self.named.setdefault(device, []).append(number)
            self._add_limits(number, device, _read(device, words))
        except ConfigError as error:
            self.faults[number] = str(error)

    def _add_limits(self, number: int, device: str, found: Limits) -> None:
        own = self.limits.setdefault(device, {})
        for quota, windows in found.items():
            for is_dry_run in {window.is_dry_run for window in windows}:
                before = self.lines.setdefault((device, quota, is_dry_run), number)
                if before != number:
                    raise ConfigError(f"{quota.value} of {device or 'the tenant'} stands in line {before} already")
            own[quota] = (*own.get(quota, ()), *windows)


def _read(device: str, words: list[str]) -> Limits:
    found = parse_limits(words)
    if not found:
        raise ConfigError(f"no limit after {device}: expected DEVICE name=value, for example dev1 connections=3")
    if device:
        quotas.refuse_wider(found)
    limits.merged({}, found)  # refuses what cannot be stored
    return found


def _check_text(line: str, device: str) -> None:
    if is_foreign(line):
        raise ConfigError(NOT_UTF_8)
    if device and not DEVICE_NAME.fullmatch(device):
        raise ConfigError(f"{shown(device)} is neither name=value nor the name of a device")


def _changed(connection: Connection, owner: tenants.Tenant, parsed: _Lines) -> list[Override]:
    """Return what is to be written. Raises BadLinesError."""
    names = [name for name in parsed.named if name]
    known = devices.row_ids(connection, owner.id, names)
    for name in names:
        if name not in known:
            fault = f"tenant {owner.name} has no device {shown(name)}"
            parsed.faults.update((number, fault) for number in parsed.named[name] if number not in parsed.faults)
    if parsed.faults:
        raise BadLinesError(parsed.faults, done="set")
    return quotas.merge_many(connection, owner, parsed.limits)
