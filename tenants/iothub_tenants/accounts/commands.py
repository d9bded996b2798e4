"""The command table: what the CLI asks a running hub to do, and the hub's answer.

Knows no verb: the CLI and the hub agree on them. Each side sees the other only through rows, so neither needs the other's address.

    queued --take_queued--> running --answer, fail--> done, failed        running --progress--> running
    queued --nobody takes it in time--> failed
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from sqlalchemy import ColumnElement, Connection, RowMapping, delete, insert, select, update

from iothub.base.errors import InterruptedWorkError, IotHubError, NotFoundError, UnavailableError, error_of
from iothub_tenants.accounts import tenants
from iothub_tenants.accounts.store import AccountStore, ChangeKind, Writer
from iothub_tenants.accounts.tables import command as table
from iothub_tenants.accounts.tables import tenant as tenant_table

POLL_S = 0.05
KEEP_S = 3600.0
NODE, PASSED, SO_FAR = (
    "node",
    "passed",
    "so_far",
)  # in an argument: which hub is meant, which have had it, what they found
STALE_S = 60.0

Json = dict[str, object]


class CommandState(StrEnum):
    """How far a command is."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Command:
    """One command. `tenant` is "" (id 0) where it concerns the whole hub.

    `answer` of a failed one: {"error": text, "exit_code": number}; of a running one its progress, if known: {"done": number, "total": number}.
    """

    id: int
    tenant_id: int
    tenant: str
    verb: str
    argument: Json
    state: CommandState
    answer: Json | None
    at_ms: int = 0


@dataclass(frozen=True, slots=True)
class WaitLimits:
    """How long somebody waits: `timeout_s` for a sign of life, `total_s` in all. `on_progress` gets how far a running command is."""

    timeout_s: float = 10.0
    total_s: float = math.inf
    on_progress: Callable[[Json], None] | None = None
    pause: Callable[[float], None] = time.sleep


_USUAL = WaitLimits()


# --- the CLI's side


def call(
    store: AccountStore, tenant: str, verb: str, argument: Mapping[str, object], limits: WaitLimits = _USUAL
) -> Json:
    """Have the running hub do something and return its answer.

    Raises:
        NotFoundError: no such tenant; or what the hub says.
        UnavailableError: no answer in time. A command that no hub has taken by then is withdrawn: it will not be done later.
        InterruptedWorkError: Ctrl-C; the same holds.
        IotHubError: the hub's own refusal, of the class that it had there.
    """
    command_id = enqueue(store, tenant, verb, argument)
    try:
        finished = wait(store, command_id, limits)
    except KeyboardInterrupt:
        finished = _give_up(store, command_id, InterruptedWorkError, "interrupted")
    answer = finished.answer or {}
    if finished.state is CommandState.FAILED:
        raise error_of(answer.get("exit_code"), str(answer.get("error", "the hub could not do it")))
    return answer


def enqueue(store: AccountStore, tenant: str, verb: str, argument: Mapping[str, object]) -> int:
    """Put a command into the table and return its id; `tenant` "" means the whole hub. Raises NotFoundError."""
    text = json.dumps(argument)
    with store.write() as writer:
        tenant_id = tenants.find(writer.connection, tenant).id if tenant else 0
        row = {"tenant_id": tenant_id, "verb": verb, "argument": text, "state": CommandState.QUEUED.value}
        row |= {"at_ms": writer.now_ms, "changed_ms": writer.now_ms}
        key = writer.connection.execute(insert(table).values(row)).inserted_primary_key
        assert key is not None  # noqa: S101  a single insert always has one
        writer.changed(tenant_id, ChangeKind.COMMAND, str(key[0]))
        return int(key[0])


def wait(store: AccountStore, command_id: int, limits: WaitLimits = _USUAL) -> Command:
    """Return the command once it is done or failed. Raises UnavailableError (no answer in time), NotFoundError."""
    heard: tuple[CommandState, Json | None] | None = None
    began = heard_at = store.clock.monotonic()
    while True:
        found, now = show(store, command_id), store.clock.monotonic()
        if found.state in (CommandState.DONE, CommandState.FAILED):
            return found
        if heard != (found.state, found.answer):
            heard, heard_at = (found.state, found.answer), now
            if found.answer is not None and limits.on_progress is not None:
                limits.on_progress(found.answer)
        if now - heard_at >= limits.timeout_s or now - began >= limits.total_s:
            return _give_up(store, command_id, UnavailableError, f"no answer within {max(1, round(now - began))} s")
        limits.pause(POLL_S)


def show(store: AccountStore, command_id: int) -> Command:
    """Return one command. Raises NotFoundError."""
    with store.read() as connection:
        rows = _commands(connection, table.c.id == command_id)
    if not rows:
        raise NotFoundError(f"there is no command {command_id}: it may be older than an hour")
    return rows[0]


def under_way(store: AccountStore) -> list[Command]:
    """Return what a hub is asked to do or is doing, oldest first."""
    with store.read() as connection:
        return _commands(connection, table.c.state.in_([CommandState.QUEUED.value, CommandState.RUNNING.value]))


# --- the hub's side


def take_queued(store: AccountStore, limit: int = 16, node: int | None = None) -> list[Command]:
    """Take queued commands, oldest first; each is taken once, by one hub.

    `node`: the hub's node number, where several use these accounts: what is for another one, or was passed on by this one, is left.
    """
    with store.write() as writer:
        is_queued = table.c.state == CommandState.QUEUED.value
        queued = writer.connection.execute(select(table.c.id, table.c.argument).where(is_queued).order_by(table.c.id))
        ids = [row.id for row in queued if node is None or _is_for(json.loads(row.argument), node)][:limit]
        if not ids:
            return []
        _set(writer, ids, CommandState.RUNNING, None)
        return _commands(writer.connection, table.c.id.in_(ids))


def pass_on(store: AccountStore, command_id: int, node: int, so_far: Mapping[str, object]) -> None:
    """Leave a command that was taken to the next hub, with what this one (`node`) has found."""
    with store.write() as writer:
        (command,) = _commands(writer.connection, table.c.id == command_id)
        passed = command.argument.get(PASSED)
        before = passed if isinstance(passed, list) else []
        argument = {**command.argument, PASSED: [*before, node], SO_FAR: dict(so_far)}
        values = {"argument": json.dumps(argument), "state": CommandState.QUEUED.value, "changed_ms": writer.now_ms}
        writer.connection.execute(update(table).where(table.c.id == command_id).values(values))
        writer.changed(command.tenant_id, ChangeKind.COMMAND, str(command_id))


def progress(store: AccountStore, command_id: int, so_far: Mapping[str, object]) -> None:
    """Write how far a running command is; its caller goes on waiting."""
    with store.write() as writer:
        is_running = (table.c.id == command_id) & (table.c.state == CommandState.RUNNING.value)
        values = {"answer": json.dumps(so_far), "changed_ms": writer.now_ms}
        writer.connection.execute(update(table).where(is_running).values(values))


def answer(store: AccountStore, command_id: int, result: Mapping[str, object]) -> None:
    """Say what came of a command that was taken."""
    with store.write() as writer:
        _set(writer, [command_id], CommandState.DONE, result)


def fail(store: AccountStore, command_id: int, error: IotHubError) -> None:
    """Say why a command that was taken was not done; the caller of `call` gets an error of the same class."""
    with store.write() as writer:
        _set(writer, [command_id], CommandState.FAILED, _refusal(str(error), error.exit_code))


def sweep(store: AccountStore, *, is_starting: bool = False) -> int:
    """Fail the commands that no hub will answer (stale ones; at a hub's start also those that were running), delete old ones.

    Returns how many commands were failed.
    """
    with store.write() as writer:
        stale = (table.c.state == CommandState.QUEUED.value) & (table.c.at_ms < writer.now_ms - int(STALE_S * 1000))
        lost = stale | (table.c.state == CommandState.RUNNING.value) if is_starting else stale
        ids = list(writer.connection.execute(select(table.c.id).where(lost)).scalars())
        if ids:
            text = "the hub stopped before it answered: look whether it was done, and try again"
            _set(writer, ids, CommandState.FAILED, _refusal(text, UnavailableError.exit_code))
        old = table.c.changed_ms < writer.now_ms - int(KEEP_S * 1000)
        finished = table.c.state.in_([CommandState.DONE.value, CommandState.FAILED.value])
        writer.connection.execute(delete(table).where(finished, old))
        return len(ids)


# --- private


def _is_for(argument: Mapping[str, object], node: int) -> bool:
    passed = argument.get(PASSED)
    return argument.get(NODE, node) == node and not (isinstance(passed, list) and node in passed)


def _set(writer: Writer, ids: list[int], state: CommandState, result: Mapping[str, object] | None) -> None:
    text = None if result is None else json.dumps(result)
    values = {"state": state.value, "answer": text, "changed_ms": writer.now_ms}
    writer.connection.execute(update(table).where(table.c.id.in_(ids)).values(values))


def _give_up(store: AccountStore, command_id: int, kind: type[IotHubError], why: str) -> Command:
    """Withdraw a command that no hub has taken, leave the hub to what it does; return the command if it has just ended."""
    with store.write() as writer:
        (now,) = _commands(writer.connection, table.c.id == command_id)
        if now.state in (CommandState.DONE, CommandState.FAILED):
            return now
        if now.state is CommandState.QUEUED:
            _set(writer, [command_id], CommandState.FAILED, _refusal("withdrawn", UnavailableError.exit_code))
            what = "no hub took the command, and it was withdrawn"
        else:
            so_far = "" if now.answer is None else f" ({now.answer['done']} of {now.answer['total']})"
            what = f"the hub has not finished the command{so_far}, and continues it"
    raise kind(f"{why}: {what}; see `iothub status`")


def _refusal(text: str, exit_code: int) -> Json:
    return {"error": text, "exit_code": exit_code}


def _commands(connection: Connection, where: ColumnElement[bool]) -> list[Command]:
    query = select(table, tenant_table.c.name.label("tenant")).outerjoin_from(
        table, tenant_table, table.c.tenant_id == tenant_table.c.id
    )
    rows = connection.execute(query.where(where).order_by(table.c.id)).mappings()
    return [_command(row) for row in rows]


def _command(row: RowMapping) -> Command:
    return Command(
        id=row["id"],
        tenant_id=row["tenant_id"],
        tenant=row["tenant"] or "",
        verb=row["verb"],
        argument=json.loads(row["argument"]),
        state=CommandState(row["state"]),
        answer=None if row["answer"] is None else json.loads(row["answer"]),
        at_ms=row["at_ms"],
    )
