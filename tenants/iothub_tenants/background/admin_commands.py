"""Runs the admin commands that the command line puts into the command table, and writes their answers there.

Knows no SQL: it is given the commands and a `CommandTable`; the verbs are those of `iothub.records.admin_commands`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from iothub.base import log as logging
from iothub.base.errors import ConfigError, IotHubError, NotFoundError
from iothub.base.reasons import Drop
from iothub.engine.filters import check_topic_filter
from iothub.records.admin_commands import Verb
from iothub_services.auth.failures import source_of
from iothub_services.auth.port import TenantRecord
from iothub_services.awaited import AwaitedQueues
from iothub_tenants.accounts.commands import PASSED, SO_FAR, Command
from iothub_tenants.broker.broker import TenantBroker
from iothub_tenants.broker.hub import Hub
from iothub_tenants.broker.retaining import Progress
from iothub_tenants.identity import invalid_filter

PROGRESS_INTERVAL_S = 0.5  # every progress report costs the accounts database a commit

QUICK = frozenset({Verb.PING, Verb.BAN_LIST, Verb.BAN_LIFT, Verb.STREAM_SHOW})
"""Done in memory: they do not wait behind commands that wait for a store."""

AT_EVERY_HUB = frozenset({Verb.RETAIN_DELETE, Verb.BAN_LIST, Verb.BAN_LIFT, Verb.STREAM_SHOW})
"""Each hub runs them on what it has in memory; the answer is the sum."""

Json = Mapping[str, object]
ShowStream = Callable[[str, str], Json | None]
FindTenant = Callable[[str], Awaitable[TenantRecord | None]]

log = logging.get(__name__)


@dataclass(frozen=True, slots=True)
class OtherHubs:
    """The other hubs on these accounts. `node`: the node number of this hub; `living`: those of the others that live now."""

    node: int
    living: Callable[[], frozenset[int]]


class CommandTable(Protocol):
    """Writes to the command table."""

    async def answer(self, number: int, result: Json) -> None: ...

    async def fail(self, number: int, error: IotHubError) -> None: ...

    async def progress(self, number: int, so_far: Json) -> None: ...

    async def pass_on(self, number: int, node: int, so_far: Json) -> None: ...


CommandHandler = Callable[[Command, CommandTable], Awaitable[Json]]


class AdminCommands:
    """Runs commands one after another."""

    def __init__(
        self,
        hub: Hub,
        queues: AwaitedQueues,
        find_tenant: FindTenant,
        facts: Callable[[], Json],
        other_hubs: OtherHubs | None = None,
        show_stream: ShowStream | None = None,
    ) -> None:
        """`show_stream`: describes a stream of this hub by tenant and name; None from it: this hub does not know the stream."""
        self._other_hubs = other_hubs
        self._stream_facts = show_stream
        self._hub = hub
        self._queues = queues
        self._find_tenant = find_tenant
        self._facts = facts
        self._verbs: dict[str, CommandHandler] = {
            Verb.PING: self._ping,
            Verb.SESSION_DISCARD: self._discard,
            Verb.QUEUE_PURGE: self._purge,
            Verb.RETAIN_DELETE: self._delete_retained,
            Verb.BAN_LIST: self._list_bans,
            Verb.BAN_LIFT: self._lift_bans,
            Verb.STREAM_SHOW: self._show_stream,
        }

    @property
    def node(self) -> int | None:
        """This hub's node number, where other hubs use these accounts too."""
        return None if self._other_hubs is None else self._other_hubs.node

    async def run_commands(self, commands: Iterable[Command], table: CommandTable) -> None:
        for command in commands:
            try:
                verb = self._verbs.get(command.verb)
                if verb is None:
                    raise ConfigError(f"this hub does not know the command {command.verb!r}: it is of another version")
                await self._run_command(verb, command, table)
            except IotHubError as error:
                await table.fail(command.id, error)

    async def _run_command(self, verb: CommandHandler, command: Command, table: CommandTable) -> None:
        """Answer a command, or pass it on to the next hub, which may have what is not here. Raises IotHubError."""
        refusal: NotFoundError | None = None
        result: Json = {}
        try:
            result = await verb(command, table)
        except NotFoundError as error:
            refusal = error
        if command.verb in AT_EVERY_HUB:
            result = _sum(command.argument.get(SO_FAR), result)
            if result.get("bans") or result.get("state"):
                refusal = None  # at least one hub has found something
        if self._other_hubs is not None and self._must_pass_on(self._other_hubs, command, is_found=refusal is None):
            await table.pass_on(command.id, self._other_hubs.node, result)
        elif refusal is not None:
            raise refusal
        else:
            await table.answer(command.id, result)

    def _must_pass_on(self, other_hubs: OtherHubs, command: Command, *, is_found: bool) -> bool:
        """Return whether another hub has to run the command too."""
        passed = command.argument.get(PASSED)
        rest = other_hubs.living().difference(passed if isinstance(passed, list) else ())
        return bool(rest) and (command.verb in AT_EVERY_HUB or (command.verb == Verb.SESSION_DISCARD and not is_found))

    async def _ping(self, _command: Command, _table: CommandTable) -> Json:
        return self._facts()

    async def _discard(self, command: Command, _table: CommandTable) -> Json:
        tenant, client_id = command.tenant, str(command.argument["client_id"])
        broker = await self._broker(tenant)
        if not await self._hub.sessions.discard(broker, client_id, "operator"):
            raise NotFoundError(
                f"tenant {tenant} has no session {client_id!r}; `iothub session list {tenant}` shows them"
            )
        return {}

    async def _purge(self, command: Command, _table: CommandTable) -> Json:
        tenant, client_id = command.tenant, str(command.argument["client_id"])
        broker = await self._broker(tenant)
        session = broker.plane.sessions.get(client_id)
        if session is None or not session.is_persistent:
            raise NotFoundError(
                f"tenant {tenant} has no queue of {client_id!r}; `iothub queue list {tenant}` shows them"
            )
        count = await self._queues.purge(session.queue_id)
        if count:
            self._hub.plane.turn.drop(broker.plane, session, Drop.PURGED, count)
        return {"messages": count}

    async def _delete_retained(self, command: Command, table: CommandTable) -> Json:
        topic_filter = str(command.argument["filter"]).encode()
        if check_topic_filter(topic_filter, 65_536, 65_535):
            raise invalid_filter(str(command.argument["filter"]))
        broker = await self._broker(command.tenant)
        return {"messages": await broker.retained.delete(topic_filter, self._progress_of(command, table))}

    def _progress_of(self, command: Command, table: CommandTable) -> Progress:
        clock, reported_at = self._hub.clock, self._hub.clock.monotonic()

        async def report(done: int, of: int) -> None:
            nonlocal reported_at
            if clock.monotonic() - reported_at < PROGRESS_INTERVAL_S:
                return
            reported_at = clock.monotonic()
            with suppress(IotHubError):  # without this report the work goes on all the same
                await table.progress(command.id, {"done": done, "total": of})

        return report

    async def _list_bans(self, command: Command, _table: CommandTable) -> Json:
        failures, limit = self._hub.authenticator.failures, int(str(command.argument["limit"]))
        bans, now = failures.bans(command.tenant), self._hub.clock.wall()
        rows = [
            {"device": ban.device, "address": ban.address, "until_ms": int((now + ban.left_s) * 1000)}
            for ban in bans[:limit]
        ]
        reason = f"{failures.settings.failures} failed logins within {failures.settings.window_s:g} s"
        return {"bans": rows, "left_out": len(bans) - len(rows), "reason": reason}

    async def _lift_bans(self, command: Command, _table: CommandTable) -> Json:
        tenant, device, address = command.tenant, str(command.argument["device"]), command.argument["address"]
        source = None if address is None else source_of(str(address))
        count = self._hub.authenticator.failures.lift(tenant, device, source)
        if not count:
            whence = "" if address is None else f" from {address}"
            raise NotFoundError(
                f"device {device!r} of tenant {tenant} is not banned for failed logins{whence}; `iothub ban list {tenant}` shows them"
            )
        log.info("failure bans lifted", tenant=tenant, device=device, address=source, count=count)
        return {"bans": count}

    async def _show_stream(self, command: Command, _table: CommandTable) -> Json:
        name = str(command.argument["name"])
        found = None if self._stream_facts is None else self._stream_facts(command.tenant, name)
        if found is None:
            raise NotFoundError(f"this hub has not heard of stream {name!r} of tenant {command.tenant} yet")
        return found

    async def _broker(self, tenant: str) -> TenantBroker:
        record = await self._find_tenant(tenant)
        if record is None:
            raise NotFoundError(f"there is no tenant {tenant!r}; `iothub tenant list` shows them")
        return await self._hub.brokers.broker(record)


def _sum(so_far: object, part: Json) -> Json:
    """Add up what two hubs have found: counts are added, lists are joined."""
    total: dict[str, object] = dict(so_far) if isinstance(so_far, Mapping) else {}
    for name, value in part.items():
        before = total.get(name)
        if isinstance(before, int) and isinstance(value, int):
            total[name] = before + value
        elif isinstance(before, list) and isinstance(value, list):
            total[name] = [*before, *value]
        else:
            total[name] = value
    return total
