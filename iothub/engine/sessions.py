# cython: annotation_typing=False
"""The sessions of one tenant by Client Identifier: those at work as objects, the others packed.

Knows no log and no store: whoever packs a session says how it is unpacked. Theory: in a cluster every hub knows every persistent session, and has
little to do with those of other hubs. Such a session is a `PackedSession`, and its Topic Filters lead to its Client Identifier instead of
Subscriptions. It becomes a Session again, in the same turn, when it is asked for by its Client Identifier or when a message matches.

Invariants: a session is in `awake` or in `packed`. A Session that somebody else refers to is not packed, so there are never two of one client.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from iothub.engine.router import Router

Unpack = Callable[[str, "PackedSession", object], Any]


class PackedSession:
    """A persistent session of another hub: numbers, its device, and its Topic Filters as bytes. What they mean is `unpack`'s.

    `filters`: the only Topic Filter itself, with its `options` and `identifier`; if there are more or none, all of them in one.
    Epochs are counted from the first one of the queue.
    """

    def __init__(self, device: str, queue_id: int, filters: bytes) -> None:
        self.device = device
        self.queue_id = queue_id
        self.filters = filters
        self.since_ms = 0
        self.announced = 0
        self.epoch = 0
        self.logged_epoch = 0
        self.claimed = 0
        self.device_id = 0
        self.expiry_s = 0
        self.identifier = 0
        self.holder = 0
        self.count = 0  # of its Topic Filters
        self.version = 0
        self.options = 0
        self.is_online = False
        self.is_counted = False

    @property
    def is_persistent(self) -> bool:
        """As `Session.is_persistent`: whoever looks at all sessions needs not to know which are packed."""
        return True


class Sessions:
    """A mapping of all of them; `awake` has those that are objects: all that have a connection or anything under way."""

    def __init__(self, router: Router) -> None:
        self.awake: dict[str, Any] = {}
        self.packed: dict[str, PackedSession] = {}
        self.woken: dict[str, None] = {}  # were packed, and may be again; the first woken first
        self._wills: dict[str, object] = {}
        self._unpack: Unpack | None = None
        router.wake = self.wake

    def __len__(self) -> int:
        return len(self.awake) + len(self.packed)

    def __contains__(self, client_id: object) -> bool:
        return client_id in self.awake or client_id in self.packed

    def __iter__(self) -> Iterator[str]:
        return iter([*self.awake, *self.packed])

    def __eq__(self, other: object) -> bool:
        return not self.packed and self.awake == other

    __hash__ = None  # type: ignore[assignment]

    def __getitem__(self, client_id: str) -> Any:
        session = self.get(client_id)
        if session is None:
            raise KeyError(client_id)
        return session

    def __setitem__(self, client_id: str, session: Any) -> None:
        self.wake(client_id)  # its Subscriptions, not its name, are in the router
        self.awake[client_id] = session

    def __delitem__(self, client_id: str) -> None:
        del self.awake[client_id]

    def get(self, client_id: str) -> Any:
        """Return a session, unpacked if need be; None: there is none."""
        session = self.awake.get(client_id)
        return self.wake(client_id) if session is None and self.packed else session

    def items(self) -> list[tuple[str, Any]]:
        """Return all by Client Identifier, each as it is: a Session, or packed. One step: nobody changes them meanwhile."""
        return [*self.awake.items(), *self.packed.items()]

    def wake(self, client_id: str) -> Any:
        """Unpack a session; None: it is not packed."""
        packed = self.packed.pop(client_id, None)
        unpack = self._unpack
        if packed is None or unpack is None:
            return None
        session = unpack(client_id, packed, self._wills.pop(client_id, None))
        self.awake[client_id] = session
        self.woken[client_id] = None
        return session

    def keep_packed(self, client_id: str, packed: PackedSession, will: object, unpack: Unpack) -> None:
        """Keep a session packed from now on. The router has its Client Identifier where its Subscriptions were."""
        self._unpack = unpack
        del self.awake[client_id]
        self.packed[client_id] = packed
        if will is not None:
            self._wills[client_id] = will
