"""Chooses one of several Redis servers: the first one that is the master, or the one that the Sentinels name.

Knows addresses and roles, and no calls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from iothub.base.errors import BackendError
from iothub.base.units import Endpoint
from iothub_services.redis.calls import ADVICE, RedisUnavailableError, Reply, command
from iothub_services.redis.wire import Wire, WireOptions, open_wire

OpenWire = Callable[[Endpoint, WireOptions], Wire]


class Places:
    """Opens connections to the master; blocks for a time-out at each address at most.

    Args:
        sentinel_name: What the Sentinels call the master; the addresses are theirs then. "": the addresses are servers'.
    """

    def __init__(
        self,
        addresses: Sequence[Endpoint],
        options: WireOptions,
        sentinel_name: str = "",
        open_wire: OpenWire = open_wire,
    ) -> None:
        self._addresses = list(addresses)
        self._options = options
        self._sentinel_name = sentinel_name
        self._open = open_wire

    def connect(self) -> Wire:
        """Return an open connection to the master. Raises RedisUnavailableError with the words of every address."""
        facts = []
        for address in list(self._addresses):
            try:
                wire = self._connect(address)
            except RedisUnavailableError as error:
                facts.append(error.fact)
                self._addresses.append(self._addresses.pop(0))  # begin with another one next time
            else:
                return wire
        raise RedisUnavailableError("; ".join(facts), remedy=str(ADVICE))

    def _connect(self, address: Endpoint) -> Wire:
        if self._sentinel_name:
            return self._master(self._ask_sentinel(address))
        if len(self._addresses) > 1:
            return self._master(address)
        return self._open(address, self._options)

    def _master(self, address: Endpoint) -> Wire:
        wire = self._open(address, self._options)
        role = self._ask(wire, "ROLE")
        if isinstance(role, list) and role and role[0] == b"master":
            return wire
        wire.close()
        if isinstance(role, BackendError):
            raise RedisUnavailableError(f"Redis at {address}: {role.fact}")
        what = "gives no role" if not isinstance(role, list) else "is a replica"
        raise RedisUnavailableError(f"Redis at {address}: {what}, expected the master")

    def _ask_sentinel(self, address: Endpoint) -> Endpoint:
        """Sentinels have no databases, and as a rule neither users nor passwords."""
        wire = self._open(address, replace(self._options, database=0, username="", password=""))
        found = self._ask(wire, "SENTINEL", "get-master-addr-by-name", self._sentinel_name)
        wire.close()
        match found:
            case [bytes() as host, bytes() as port]:
                return Endpoint(host.decode(), int(port))
            case None:
                raise RedisUnavailableError(f"the Sentinel at {address} knows no master {self._sentinel_name!r}")
        raise RedisUnavailableError(f"the Sentinel at {address} does not say where the master is: {found!r}")

    @staticmethod
    def _ask(wire: Wire, *arguments: str) -> Reply:
        """Ask on a connection that is closed when that fails."""
        try:
            wire.send([command(*arguments)])
            answers: list[Reply] = []
            while not answers:
                answers = wire.read(1)
        except BackendError:
            wire.close()
            raise
        return answers[0]
