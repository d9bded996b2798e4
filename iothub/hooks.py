"""Plug-ins in Python: five places where installed code may look at, refuse or change what the hub does (D9).

Knows no engine and no store. A plug-in is a function that a distribution announces in the entry-point group `iothub.hooks`
under the name of the place: `authenticate authorise publish deliver lifecycle`. Without plug-ins every attribute of `Hooks`
is None, so that the places cost one comparison. A plug-in that raises never stops the hub: the answer is a refusal
(lifecycle: nothing), the fault is counted and logged. The guide is docs/guide/hooks.md.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from importlib import metadata
from typing import Protocol, TypeAlias, cast

from iothub.base import log
from iothub.base.errors import ConfigError

GROUP = "iothub.hooks"
PLACES = ("authenticate", "authorise", "publish", "deliver", "lifecycle")


@dataclass(frozen=True, slots=True)
class Attempt:
    """A CONNECT that asks to be let in. `secret` is None when the client sent no password (absent is not empty)."""

    tenant: str
    device: str
    client_id: str
    secret: bytes | None
    peer: str  # "address:port" of the client
    listener: str  # tcp, tls, ws or wss
    certificate_subject: str | None = None
    method: str = ""  # Authentication Method of enhanced authentication (5.0), else empty
    data: bytes | None = None  # Authentication Data of this step
    memory: dict[str, object] = field(default_factory=dict)  # the plug-in's own, kept from step to step

    def __repr__(self) -> str:
        return f"Attempt({self.tenant}/{self.device}, client_id={self.client_id!r}, secret=***, peer={self.peer})"


@dataclass(frozen=True, slots=True)
class Challenge:
    """An answer to one step of enhanced authentication: send this Authentication Data and wait for the client's next step."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Proof:
    """The last answer of enhanced authentication: let in, and send this Authentication Data along."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Client:
    """An admitted client; `version` is the protocol level: 3 (MQTT 3.1), 4 (3.1.1) or 5."""

    tenant: str
    device: str
    client_id: str
    peer: str = ""
    listener: str = ""
    version: int = 5


@dataclass(frozen=True, slots=True)
class Publication:
    """An Application Message as a plug-in sees it. A plug-in may hand back another payload, never another topic or QoS."""

    topic: str
    payload: bytes
    qos: int
    is_retained: bool = False


@dataclass(frozen=True, slots=True)
class Happening:
    """Something that has happened.

    `name` is one of the events of the session-event log, or `hub.started`, `hub.draining`, `hub.resumed`, `hub.stopping`; of another hub
    (`node`, `hub`): `peer_up`, `peer_unreachable`, `peer_expelled`, `peer_down`; of this one as `node` and `hub`: `cluster_view`, whose `reason`
    has the numbers of the hubs that serve clients.
    """

    name: str
    tenant: str = ""
    device: str = ""
    client_id: str = ""
    reason: str = ""
    at: float = 0.0  # Unix time, seconds
    node: int | None = None  # another hub's node.number
    hub: str = ""  # its name


Opinion: TypeAlias = "bool | None"
Step: TypeAlias = "bool | Challenge | Proof | None"
Authenticate: TypeAlias = Callable[[Attempt], Awaitable[Step]]
Authorise: TypeAlias = Callable[[Client, str, str], Opinion]
Filter: TypeAlias = Callable[[Client, Publication], "Publication | None"]
Lifecycle: TypeAlias = Callable[[Happening], None]


class EntryPoint(Protocol):
    """The part of `importlib.metadata.EntryPoint` that is used."""

    @property
    def name(self) -> str: ...

    @property
    def value(self) -> str: ...

    def load(self) -> object: ...


class Policy(Protocol):
    """What the message plane asks of a policy (`iothub.engine.ports.Policy`)."""

    version: int

    def may_publish(self, topic: bytes) -> bool: ...

    def may_receive(self, topic: bytes) -> bool: ...

    def may_subscribe(self, filter: bytes) -> bool: ...


@dataclass(frozen=True, slots=True)
class PlugIn:
    """One loaded function and the place it was announced for."""

    place: str
    origin: str  # "module:function"
    function: Callable[..., object]


class Hooks:
    """The five places. Each is None without plug-ins; otherwise a function that never raises.

    `authenticate(attempt)` is awaited: True lets in, False refuses, None leaves it to the hub's own check; with an Authentication
    Method also a Challenge (one more step) or a Proof.
    `authorise(client, action, topic)`: action is "publish", "subscribe" (topic is a Topic Filter) or "receive"; True
    allows and False denies in place of the tenant's rules, None leaves it to them.
    `publish(client, publication)` and `deliver(client, publication)`: the publication to continue with, or None to drop it
    (`Drop.HOOK`). `lifecycle(happening)`: called afterwards; nothing waits for it.
    With several plug-ins in one place, the first opinion counts, and publications pass through all of them.
    """

    def __init__(self, plug_ins: Iterable[PlugIn] = ()) -> None:
        self.plug_ins: tuple[PlugIn, ...] = tuple(plug_ins)
        self.failures = 0  # for the metric
        self._log = log.get(__name__)
        chains = {place: [plug for plug in self.plug_ins if plug.place == place] for place in PLACES}
        self.authenticate: Authenticate | None = self._authenticate(chains["authenticate"])
        self.authorise: Authorise | None = self._authorise(chains["authorise"])
        self.publish: Filter | None = self._filter(chains["publish"])
        self.deliver: Filter | None = self._filter(chains["deliver"])
        self.lifecycle: Lifecycle | None = self._lifecycle(chains["lifecycle"])

    def _authenticate(self, chain: Sequence[PlugIn]) -> Authenticate | None:
        async def authenticate(attempt: Attempt) -> Step:
            for plug in chain:
                try:
                    answer = plug.function(attempt)
                    opinion = await answer if inspect.isawaitable(answer) else answer
                except Exception as error:  # noqa: BLE001, RUF100 - the edge towards foreign code
                    return self._refusal(plug, error)
                if attempt.method and isinstance(opinion, Challenge | Proof):
                    return opinion
                if opinion is not None:
                    return self._checked(plug, opinion)
            return None

        return authenticate if chain else None

    def _authorise(self, chain: Sequence[PlugIn]) -> Authorise | None:
        def authorise(client: Client, action: str, topic: str) -> Opinion:
            for plug in chain:
                try:
                    opinion = plug.function(client, action, topic)
                except Exception as error:  # noqa: BLE001, RUF100 - the edge towards foreign code
                    return self._refusal(plug, error)
                if opinion is not None:
                    return self._checked(plug, opinion)
            return None

        return authorise if chain else None

    def _filter(self, chain: Sequence[PlugIn]) -> Filter | None:
        def pass_on(client: Client, publication: Publication) -> Publication | None:
            current = publication
            for plug in chain:
                try:
                    answer = plug.function(client, current)
                except Exception as error:  # noqa: BLE001, RUF100 - the edge towards foreign code
                    self._refusal(plug, error)
                    return None
                if answer is None:
                    return None
                if not _differs_in_payload_only(answer, current):
                    self._refusal(
                        plug, TypeError("expected None or the publication, of which only the payload may differ")
                    )
                    return None
                current = cast("Publication", answer)
            return current

        return pass_on if chain else None

    def _lifecycle(self, chain: Sequence[PlugIn]) -> Lifecycle | None:
        def notify(happening: Happening) -> None:
            for plug in chain:
                try:
                    plug.function(happening)
                except Exception as error:  # noqa: BLE001, RUF100 - the edge towards foreign code
                    self._refusal(plug, error)

        return notify if chain else None

    def _checked(self, plug: PlugIn, opinion: object) -> bool:
        if isinstance(opinion, bool):
            return opinion
        return self._refusal(plug, TypeError(f"expected True, False or None, got {type(opinion).__name__}"))

    def _refusal(self, plug: PlugIn, error: Exception) -> bool:
        self.failures += 1
        self._log.warning("plug-in failed", hook=plug.place, plug_in=plug.origin, exc_info=error)
        return False


class HookedPolicy:
    """A tenant's policy with the plug-ins' opinion in front of it, for one client.

    Its fast paths are off: a plug-in is asked for each topic, but for the hub's own (`$...`), to which no client ever publishes.
    """

    publishes_everything = False
    receives_everything = False

    def __init__(self, policy: Policy, authorise: Authorise, client: Client) -> None:
        self.version = policy.version
        self._policy = policy
        self._authorise = authorise
        self._client = client

    def may_publish(self, topic: bytes) -> bool:
        if topic.startswith(b"$"):
            return False
        opinion = self._authorise(self._client, "publish", topic.decode())
        return self._policy.may_publish(topic) if opinion is None else opinion

    def may_receive(self, topic: bytes) -> bool:
        opinion = self._authorise(self._client, "receive", topic.decode())
        return self._policy.may_receive(topic) if opinion is None else opinion

    def may_subscribe(self, filter: bytes) -> bool:
        opinion = self._authorise(self._client, "subscribe", filter.decode())
        return self._policy.may_subscribe(filter) if opinion is None else opinion


def load(entry_points: Iterable[EntryPoint] | None = None) -> Hooks:
    """Load every installed plug-in, in the order of their targets' names.

    Raises:
        ConfigError: One cannot be loaded, or its name is no place; a hub without its guard must not start.
    """
    found = metadata.entry_points(group=GROUP) if entry_points is None else entry_points
    return Hooks([_loaded(point) for point in sorted(found, key=lambda point: (point.value, point.name))])


def _loaded(point: EntryPoint) -> PlugIn:
    if point.name not in PLACES:
        raise ConfigError(f"plug-in {point.value}: unknown hook {point.name!r}, expected one of {', '.join(PLACES)}")
    try:
        function = point.load()
    except Exception as error:
        kind = type(error).__name__
        raise ConfigError(f"plug-in {point.value}: cannot be loaded: {kind}: {error}; repair or uninstall it") from None
    if not callable(function):
        raise ConfigError(f"plug-in {point.value}: expected a function for hook {point.name!r}")
    return PlugIn(point.name, point.value, function)


def _differs_in_payload_only(answer: object, current: Publication) -> bool:
    """A new topic would have to be authorised, matched and counted again: not offered."""
    if answer is current:
        return True
    if not isinstance(answer, Publication) or not isinstance(answer.payload, bytes):
        return False
    return replace(answer, payload=current.payload) == current
