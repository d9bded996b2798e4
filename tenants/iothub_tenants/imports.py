"""Creates many devices from CSV rows `name,password`: all of them or, with every bad line named, none.

Knows no file: the caller opens it and shows the progress. Passwords appear in no message.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from sqlalchemy import Connection, select

from iothub.errors import ConfigError, ConflictError
from iothub_tenants import tenants
from iothub_tenants.devices import Credential, check_password, insert_devices, make_credential
from iothub_tenants.identity import DEVICE_NAME
from iothub_tenants.store import AccountStore, ChangeKind
from iothub_tenants.tables import device as table

HEADER = ["name", "password"]
HASH_THREADS = 2  # argon2 releases the interpreter's lock; more would take the cores from a running hub
_LOOKUP = 500  # names per query

Progress = Callable[[int, int], None]
"""`progress(done, of)`: so many passwords are hashed."""


@dataclass(slots=True)
class _Sheet:
    """What was read: password and line by name, and what is wrong by line."""

    passwords: dict[str, str] = field(default_factory=dict, repr=False)
    lines: dict[str, int] = field(default_factory=dict)
    faults: dict[int, str] = field(default_factory=dict)


def import_devices(
    store: AccountStore,
    tenant: str,
    lines: Iterable[str],
    *,
    on_progress: Progress | None = None,
    threads: int = HASH_THREADS,
) -> list[str]:
    """Create a device for every row and return the names in the order of the rows.

    Chosen passwords take tens of milliseconds each (that is their purpose), in `threads` threads; then one transaction writes all.

    Raises:
        NotFoundError: no such tenant.
        ConfigError: not a CSV text with the header `name,password`.
        ConflictError: rows are malformed, doubled, or name devices that exist; all of them are named, nothing was written.
    """
    sheet = _read(lines)
    with store.read() as connection:
        owner = tenants.living(connection, tenant)
        _mark_taken(connection, owner.id, sheet)
    _refuse(sheet)
    accounts = list(
        zip(sheet.passwords, _credentials(store, list(sheet.passwords.values()), on_progress, threads), strict=True)
    )
    with store.write() as writer:
        owner = tenants.living(writer.connection, tenant)
        _mark_taken(writer.connection, owner.id, sheet)
        _refuse(sheet)
        insert_devices(writer, owner.id, accounts)
        if accounts:
            writer.changed(owner.id, ChangeKind.DEVICE, "*")
    return list(sheet.passwords)


def _read(lines: Iterable[str]) -> _Sheet:
    sheet = _Sheet()
    rows = csv.reader(lines, strict=True)
    try:
        header = next(rows, [])
        if [column.strip().lstrip("\ufeff").lower() for column in header] != HEADER:
            raise ConfigError("the first line is not the header: expected name,password")
        for row in rows:
            if row:
                _take_row(sheet, rows.line_num, row)
    except csv.Error as error:
        raise ConfigError(f"line {rows.line_num}: not CSV ({error}); expected rows of name,password") from error
    except UnicodeError as error:
        raise ConfigError("the file is not UTF-8 text: save it as UTF-8") from error
    return sheet


def _take_row(sheet: _Sheet, line: int, row: list[str]) -> None:
    if len(row) != len(HEADER):
        sheet.faults[line] = f"{len(row)} columns, expected 2"
        return
    name, password = row
    if not DEVICE_NAME.fullmatch(name):
        sheet.faults[line] = "not a device name"  # nor shown: with a wrong separator it may hold the password
    elif name in sheet.lines:
        sheet.faults[line] = f"{name} stands in line {sheet.lines[name]} already"
    else:
        sheet.lines[name] = line
        sheet.passwords[name] = password
        _check_password(sheet, line, password)


def _check_password(sheet: _Sheet, line: int, password: str) -> None:
    try:
        check_password(password)
    except ConfigError:
        sheet.faults[line] = "the password is empty, too long or holds a NUL"


def _mark_taken(connection: Connection, tenant_id: int, sheet: _Sheet) -> None:
    names = list(sheet.lines)
    for start in range(0, len(names), _LOOKUP):
        some = table.c.name.in_(names[start : start + _LOOKUP])
        for name in connection.execute(select(table.c.name).where(table.c.tenant_id == tenant_id, some)).scalars():
            sheet.faults[sheet.lines[name]] = f"device {name} exists already"


def _refuse(sheet: _Sheet) -> None:
    if sheet.faults:
        listed = "; ".join(f"line {line}: {fault}" for line, fault in sorted(sheet.faults.items()))
        raise ConflictError(f"nothing was imported (bad lines: {len(sheet.faults)}): {listed}")


def _credentials(
    store: AccountStore, passwords: list[str], on_progress: Progress | None, threads: int
) -> Iterator[Credential]:
    pool = ThreadPoolExecutor(threads, thread_name_prefix="hash")
    try:
        for done, (_, credential) in enumerate(
            pool.map(lambda password: make_credential(store, password), passwords), 1
        ):
            yield credential
            if on_progress is not None:
                on_progress(done, len(passwords))
    finally:
        pool.shutdown(cancel_futures=True)
