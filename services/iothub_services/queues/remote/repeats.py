"""What was already done of operations that come again: a failed group is repeated whole, and HBase has no commit around a group.

Knows no operation's kind. Operations are compared by identity: whoever repeats brings the same objects.

Theory: the writer's thread repeats a batch until it succeeds, without those that it has given up, or takes it apart. An operation that was
done before something behind it failed must not be done twice, so what came of it is kept until a group with it has ended well. Operations
that were given up never come again; so that they do not stay for ever, the oldest are forgotten when there are too many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, TypeVar

Op = TypeVar("Op")
Kept = TypeVar("Kept")

MOST = 20_000  # a multiple of what one batch has
MOST_BYTES = 64 << 20


class Repeats(Generic[Op, Kept]):
    """Operations and what came of them.

    Invariants: an operation is kept while a group that it was in has not ended well: all those of the last group that failed, before them
    as many as `most` and `most_bytes` allow.
    """

    def __init__(
        self, on_forgotten: Callable[[Kept], None] | None = None, most: int = MOST, most_bytes: int = MOST_BYTES
    ) -> None:
        self._on_forgotten = on_forgotten
        self._most = most
        self._most_bytes = most_bytes
        self._kept: dict[int, tuple[Op, Kept, int]] = {}  # oldest first
        self._bytes = 0
        self._over: list[int] = []
        self._begun: list[tuple[Sequence[Op], Sequence[Kept], int]] = []  # by the group that runs
        self._depth = 0
        self._fresh = 0  # kept by the group that runs, at the end of `_kept`

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, op: Op) -> Kept | None:
        """Return what is kept of an operation, None if it is new."""
        found = self._kept.get(id(op))
        return None if found is None else found[1]

    def keep(self, op: Op, kept: Kept, size_bytes: int = 0) -> None:
        """Remember from now on."""
        if not self._depth:
            self._fresh = 0
        self._put(op, kept, size_bytes)
        self._make_room()

    def all_of(self, ops: Sequence[Op]) -> list[Kept | None]:
        """Return what is kept of each operation, None for those that are new."""
        return [self.get(op) for op in ops] if self._kept else [None] * len(ops)

    def new_of(self, ops: Sequence[Op]) -> list[Op]:
        """Return those of which nothing is kept."""
        return [op for op, kept in zip(ops, self.all_of(ops), strict=True) if kept is None]

    def settle(self, ops: Sequence[Op], came: Iterable[Kept]) -> list[Kept]:
        """Return what is kept of each operation, and what came of the new ones: their answers, which are given back."""
        rest = iter(came)
        found = [next(rest) if kept is None else kept for kept in self.all_of(ops)]
        with self.group():
            self.begin(ops, found, 0)
        return found

    def begin(self, ops: Sequence[Op], kept: Sequence[Kept], size_bytes: int) -> None:
        """Inside a group: remember these together if it fails, and forget them if it ends well."""
        self._begun.append((ops, kept, size_bytes))

    def answered(self, op: Op) -> None:
        """The operation's answer is given back: it can be forgotten when the group ends well."""
        self._over.append(id(op))
        if not self._depth:
            self._end()

    def clear(self) -> None:
        """Nobody repeats anything any more."""
        self._kept.clear()
        self._bytes = 0

    @contextmanager
    def group(self) -> Iterator[None]:
        """Operations inside are repeated together if one of them fails."""
        if not self._depth:
            self._fresh = 0
        self._depth += 1
        is_well = False
        try:
            yield
            is_well = True
        finally:
            self._depth -= 1
            if is_well and not self._depth:
                self._end()
            elif not self._depth:
                self._fail()

    def _end(self) -> None:
        if self._kept:
            for key in (*self._over, *(id(op) for ops, _, _ in self._begun for op in ops)):
                found = self._kept.pop(key, None)
                if found is not None:
                    self._bytes -= found[2]
        self._over.clear()
        self._begun.clear()

    def _fail(self) -> None:
        self._over.clear()
        begun, self._begun = self._begun, []
        for ops, all_kept, size_bytes in begun:
            for op, kept in zip(ops, all_kept, strict=True):
                self._put(op, kept, size_bytes // len(ops))
        self._make_room()

    def _put(self, op: Op, kept: Kept, size_bytes: int) -> None:
        before = self._kept.pop(id(op), None)
        if before is not None:
            self._bytes -= before[2]
        self._kept[id(op)] = op, kept, size_bytes
        self._bytes += size_bytes
        self._fresh += 1

    def _make_room(self) -> None:
        while len(self._kept) > max(self._fresh, 1) and (
            len(self._kept) > self._most or self._bytes > self._most_bytes
        ):
            _, kept, size_bytes = self._kept.pop(next(iter(self._kept)))
            self._bytes -= size_bytes
            if self._on_forgotten is not None:
                self._on_forgotten(kept)
