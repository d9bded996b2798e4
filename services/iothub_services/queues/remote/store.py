"""What the stores of drivers on servers do in the same way: batches of the writer, what comes again of them, and a tenant's bounds.

Knows no server. A driver says how its store is opened, what is looked at before it writes, and all verbs about single queues.

Theory: the server has no commit around several queues, so a batch that failed is repeated as a whole, with the same objects, and what was done
of it is kept (`repeats`). Moves of a batch go ahead of its messages, in one request.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from iothub_services.queues.operations import AppendOperation
from iothub_services.queues.port import Append, Appended, Move, TenantUsage
from iothub_services.queues.remote.inbound import InboundRoutes, Publish
from iothub_services.queues.remote.repeats import Repeats
from iothub_services.queues.remote.rounds import Ahead, Rounds
from iothub_services.queues.remote.shares import Item
from iothub_services.queues.remote.tenant import Tenant
from iothub_services.queues.writing import Answer


class Moving(Ahead, Protocol):
    """Moves on their way."""

    def done(self, moves: Sequence[Move]) -> list[bool]:
        """Say of each of these moves whether it is done."""


class Readers(Protocol):
    """What readers do to their own queues. Raises BackendError: some may be done."""

    def begin(self, moves: Sequence[Move]) -> Moving:
        """Return moves that somebody else sends."""

    def apply(self, moves: Sequence[Move]) -> list[bool]: ...


class Tenants(Protocol):
    """What tenants have stored, as far as this hub has heard."""

    def tenant(self, tenant_id: int) -> Tenant: ...

    def usage(self, tenant_id: int) -> TenantUsage: ...


class RemoteQueues:
    """The part of a `QueueStore` that all drivers on servers have in common."""

    def __init__(self, tenants: Tenants, readers: Readers, appending: Rounds, inbounds: InboundRoutes) -> None:
        self._usage = tenants
        self._moves = readers
        self._rounds = appending
        self._publishers = inbounds
        self._moved: Repeats[Move, bool] = Repeats()
        self._created: set[int] = set()  # by the group that runs
        self._created_before: set[int] = set()  # by one that failed, and comes again
        self._is_open = False
        self._opening = threading.Lock()

    def open(self) -> None:
        """Learn what the server is like, which queues there are and what they hold; otherwise the first verb does it. Raises BackendError."""
        with self._opening:
            if not self._is_open:
                self._load()
                self._is_open = True

    # --- of a driver

    def _load(self) -> None:
        """Do what `open` says. Raises BackendError."""
        raise NotImplementedError

    def _opened(self) -> None:
        """Called before anything is asked. Raises BackendError."""
        if not self._is_open:
            self.open()

    def _writing(self) -> None:
        """Called before anything is written. Raises BackendError."""
        self._opened()

    # --- batches

    @contextmanager
    def group(self) -> Iterator[None]:
        """Let a failure inside be repeated by doing everything again, with the same objects: what was done is not done twice.

        The server has no commit around several queues: each verb is durable when it returns.
        """
        self._created.clear()
        with self._rounds.repeats.group(), self._moved.group():
            try:
                yield
            except BaseException:
                self._created_before |= self._created
                raise
            self._created_before.clear()

    def idle(self) -> bool:
        """Forget what was given up: who repeats a batch does nothing else before it is over, and is idle now. There is never more to do."""
        self._rounds.forget()
        self._moved.clear()
        self._created_before.clear()
        return False

    def append(self, batch: list[Append]) -> list[Appended]:
        self._writing()
        return [item.answered() for item in self._append(batch, None)]

    def apply(self, moves: list[Move]) -> list[bool]:
        self._writing()
        new = self._moved.new_of(moves)
        return self._moved.settle(moves, self._moves.apply(new))

    def write_operations(self, moves: list[Move], batch: list[AppendOperation]) -> tuple[list[bool], list[Answer]]:
        """Do what `apply` and `append` do, for the writer: see `WritesTogether`."""
        self._writing()
        new = self._moved.new_of(moves)
        moving = self._moves.begin(new) if new else None
        items = self._append(batch, moving)
        done = self._moved.settle(moves, () if moving is None else moving.done(new))
        return done, [item.answer_of_operation() for item in items]

    def _append(self, batch: Sequence[Append | AppendOperation], moving: Moving | None) -> list[Item]:
        """`moving`: goes ahead of everything."""
        with self._rounds.repeats.group():
            items = self._rounds.items(batch)
            publishes = [Publish(op.inbound, item) for op, item in zip(batch, items, strict=True) if op.inbound]
            if publishes:
                self._rounds.route((), moving)
                self._publishers.route(items, publishes)
            else:
                self._rounds.route(items, moving)
        return items

    # --- tenants

    def set_tenant_limits(self, tenant_id: int, messages: int, size_bytes: int) -> None:
        self._opened()  # bounds are about what is stored already
        tenant = self._usage.tenant(tenant_id)
        tenant.max_messages = messages
        tenant.max_bytes = size_bytes

    def tenant_usage(self, tenant_id: int) -> TenantUsage:
        """From memory: what this hub has seen; what others append to a queue is included with the next answer about that queue."""
        return self._usage.usage(tenant_id)
