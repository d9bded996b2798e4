"""Creates many devices with their groups and own limits from the rows of a file: all of them or, with the bad lines named, none.

Knows no form of a file and no path: `csv_rows` and `foreign_accounts` read; the caller opens it, keeps the generated secrets and shows the progress.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from sqlalchemy import Connection

from iothub.base.errors import ConflictError
from iothub_tenants.accounts import groups, quotas, streams, tenants
from iothub_tenants.accounts.csv_rows import CsvRows, read_csv_rows
from iothub_tenants.accounts.devices import Credential, CredentialForm, insert_devices, make_credential, row_ids
from iothub_tenants.accounts.store import AccountStore, ChangeKind, Writer

_BATCH = 256  # passwords that wait for a thread at once, or secrets that are made between two reports

Progress = Callable[[str, int, int], None]
"""`progress(what, done, of)`: how far one stage of the work is, such as "passwords hashed"; the last one is "devices written", once they are."""

Keep = Callable[[Sequence[tuple[str, str]]], None]
"""`keep([(name, secret), ...])`: the generated secrets, which cannot be read again."""

BeforeWrite = Callable[[Sequence[str]], None]
"""`before_write(names)`: all is checked and hashed; what follows takes seconds and must not be interrupted by halves."""


Read = Callable[[Iterable[str]], CsvRows]
"""`read(lines)`: the rows of a file of another form than CSV of ours."""


def hash_threads() -> int:
    """Return how many threads hash: argon2 releases the interpreter's lock, and one core is left to a running hub."""
    return max(2, len(os.sched_getaffinity(0)) - 1)


def import_devices(
    store: AccountStore,
    tenant: str,
    lines: Iterable[str],
    *,
    read: Read | None = None,
    keep: Keep | None = None,
    on_progress: Progress | None = None,
    before_write: BeforeWrite | None = None,
    is_dry_run: bool = False,
) -> list[str]:
    """Create a device for every row and return the names in the order of the rows.

    Chosen passwords take tens of milliseconds each (that is their purpose), in several threads; then one transaction writes all.
    With `keep` the rows without a password get generated secrets, microseconds each. `keep`, then `before_write`, are called before
    anything is written, and what they raise stops the import. A dry run ends when all rows are checked.

    Raises:
        NotFoundError: no such tenant.
        BadLinesError: the text is no such CSV, or rows are malformed, doubled, name devices that exist or groups that do not; nothing was written.
    """
    parsed = read_csv_rows(lines, is_generating=keep is not None) if read is None else read(lines)
    with store.read() as connection:
        owner = tenants.living(connection, tenant)
        _mark_faults(connection, owner.id, parsed)
    parsed.refuse()
    if is_dry_run:
        return list(parsed.devices)
    credentials = _hashed(store, parsed, on_progress, hash_threads())
    if keep is not None:
        keep(_generate(store, parsed, credentials, on_progress))
    if before_write is not None:
        before_write(list(parsed.devices))
    with store.write() as writer:
        owner = tenants.living(writer.connection, tenant)
        _mark_faults(writer.connection, owner.id, parsed)
        parsed.refuse()
        if parsed.devices:
            _insert(writer, owner, parsed, credentials)
    if on_progress is not None:  # a terminal that stands still must not keep the others from writing
        on_progress("devices written", len(parsed.devices), len(parsed.devices))
    return list(parsed.devices)


def _mark_faults(connection: Connection, tenant_id: int, parsed: CsvRows) -> None:
    """Note what the store has against rows. A group is not named: its cell may hold a part of a password."""
    taken, known = row_ids(connection, tenant_id, list(parsed.devices)), groups.row_ids(connection, tenant_id)
    for name, row in parsed.devices.items():
        missing = [place for place, group in enumerate(row.groups, 1) if group not in known]
        if name in taken:
            parsed.faults[row.line] = f"device {name} exists already"
        elif missing:
            parsed.faults.setdefault(row.line, f"group {missing[0]} of {name} does not exist: create it first")
        else:
            _mark_subject(connection, tenant_id, parsed, name)


def _mark_subject(connection: Connection, tenant_id: int, parsed: CsvRows, name: str) -> None:
    try:
        streams.refuse_subjects(connection, tenant_id, [name])
    except ConflictError as error:
        parsed.faults[parsed.devices[name].line] = str(error)


def _insert(writer: Writer, owner: tenants.Tenant, parsed: CsvRows, credentials: dict[str, Credential]) -> None:
    """Write the devices; one line of the change log covers all of them."""
    insert_devices(writer, owner.id, [(name, credentials[name]) for name in parsed.devices])
    groups.insert_members(writer.connection, owner.id, {name: row.groups for name, row in parsed.devices.items()})
    own = {name: row.limits for name, row in parsed.devices.items() if row.limits}
    if own:
        quotas.write_many(writer.connection, owner, quotas.merge_many(writer.connection, owner, own))
    kind = ChangeKind.QUOTA if own else ChangeKind.DEVICE  # either is about all devices
    done = {"done": "imported", "devices": list(parsed.devices)}
    writer.changed(owner.id, kind, "*", after=done, action="imported")


def _hashed(store: AccountStore, parsed: CsvRows, on_progress: Progress | None, threads: int) -> dict[str, Credential]:
    """Hash the chosen passwords, and take the hashes of others as they are; by name."""
    chosen = [(name, row.password) for name, row in parsed.devices.items() if row.password is not None]
    credentials = {
        name: Credential(CredentialForm.PASSWORD, row.stored)
        for name, row in parsed.devices.items()
        if row.stored is not None
    }
    pool = ThreadPoolExecutor(threads, thread_name_prefix="hash")
    try:
        for start in range(0, len(chosen), _BATCH):
            batch = chosen[start : start + _BATCH]
            made = pool.map(lambda entry: make_credential(store, entry[1]), batch)
            for done, ((name, _), (_, credential)) in enumerate(zip(batch, made, strict=True), start + 1):
                credentials[name] = credential
                if on_progress is not None:
                    on_progress("passwords hashed", done, len(chosen))
    finally:
        pool.shutdown(cancel_futures=True)
    return credentials


def _generate(
    store: AccountStore, parsed: CsvRows, credentials: dict[str, Credential], on_progress: Progress | None
) -> list[tuple[str, str]]:
    """Make secrets for the others, put their hashes to the rest, and return them by name."""
    made: list[tuple[str, str]] = []
    missing = [name for name in parsed.devices if name not in credentials]
    for name in missing:
        secret, credentials[name] = make_credential(store, None)
        made.append((name, str(secret)))
        if on_progress is not None and (len(made) % _BATCH == 0 or len(made) == len(missing)):
            on_progress("secrets made", len(made), len(missing))
    return made
