"""Creates many devices from CSV rows `name,password` or `name`: all of them or, with the bad lines named, none.

Knows no file: the caller opens it, keeps the generated secrets and shows the progress.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from sqlalchemy import Connection, select

from iothub_tenants.accounts import tenants
from iothub_tenants.accounts.csv_rows import CsvRows, read_csv_rows
from iothub_tenants.accounts.devices import Credential, insert_devices, make_credential
from iothub_tenants.accounts.store import AccountStore, ChangeKind
from iothub_tenants.accounts.tables import device as table

_LOOKUP = 500  # names per query
_BATCH = 256  # passwords that wait for a thread at once

Progress = Callable[[int, int], None]
"""`progress(done, of)`: so many passwords are hashed."""

Keep = Callable[[Sequence[tuple[str, str]]], None]
"""`keep([(name, secret), ...])`: the generated secrets, which cannot be read again."""

BeforeWrite = Callable[[Sequence[str]], None]
"""`before_write(names)`: all is checked and hashed; what follows takes seconds and must not be interrupted by halves."""


def hash_threads() -> int:
    """Return how many threads hash: argon2 releases the interpreter's lock, and one core is left to a running hub."""
    return max(2, len(os.sched_getaffinity(0)) - 1)


def import_devices(
    store: AccountStore,
    tenant: str,
    lines: Iterable[str],
    *,
    keep: Keep | None = None,
    on_progress: Progress | None = None,
    before_write: BeforeWrite | None = None,
) -> list[str]:
    """Create a device for every row and return the names in the order of the rows.

    Chosen passwords take tens of milliseconds each (that is their purpose), in several threads; then one transaction writes all.
    With `keep` the rows without a password get generated secrets, microseconds each. `keep`, then `before_write`, are called before
    anything is written, and what they raise stops the import.

    Raises:
        NotFoundError: no such tenant.
        BadLinesError: the text is no such CSV, or rows are malformed, doubled, or name devices that exist; nothing was written.
    """
    parsed = read_csv_rows(lines, is_generating=keep is not None)
    with store.read() as connection:
        owner = tenants.living(connection, tenant)
        _mark_taken(connection, owner.id, parsed)
    parsed.refuse()
    credentials = _hashed(store, parsed, on_progress, hash_threads())
    if keep is not None:
        keep(_generate(store, parsed, credentials))
    if before_write is not None:
        before_write(list(parsed.passwords))
    with store.write() as writer:
        owner = tenants.living(writer.connection, tenant)
        _mark_taken(writer.connection, owner.id, parsed)
        parsed.refuse()
        insert_devices(writer, owner.id, [(name, credentials[name]) for name in parsed.passwords])
        if credentials:
            writer.changed(owner.id, ChangeKind.DEVICE, "*")
    return list(parsed.passwords)


def _mark_taken(connection: Connection, tenant_id: int, parsed: CsvRows) -> None:
    names = list(parsed.lines)
    for start in range(0, len(names), _LOOKUP):
        some = table.c.name.in_(names[start : start + _LOOKUP])
        for name in connection.execute(select(table.c.name).where(table.c.tenant_id == tenant_id, some)).scalars():
            parsed.faults[parsed.lines[name]] = f"device {name} exists already"


def _hashed(store: AccountStore, parsed: CsvRows, on_progress: Progress | None, threads: int) -> dict[str, Credential]:
    """Hash the chosen passwords, by name."""
    chosen = [(name, password) for name, password in parsed.passwords.items() if password is not None]
    credentials: dict[str, Credential] = {}
    pool = ThreadPoolExecutor(threads, thread_name_prefix="hash")
    try:
        for start in range(0, len(chosen), _BATCH):
            batch = chosen[start : start + _BATCH]
            made = pool.map(lambda entry: make_credential(store, entry[1]), batch)
            for (name, _), (_, credential) in zip(batch, made, strict=True):
                credentials[name] = credential
                if on_progress is not None:
                    on_progress(len(credentials), len(chosen))
    finally:
        pool.shutdown(cancel_futures=True)
    return credentials


def _generate(store: AccountStore, parsed: CsvRows, credentials: dict[str, Credential]) -> list[tuple[str, str]]:
    """Make secrets for the others, put their hashes to the rest, and return them by name."""
    made = []
    for name in parsed.passwords:
        if name not in credentials:
            secret, credentials[name] = make_credential(store, None)
            made.append((name, str(secret)))
    return made
