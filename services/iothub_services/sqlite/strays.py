"""Finds the pages of a damaged SQLite file that hang on no tree any more, because a page above them is damaged, and hangs them on a table.

Knows the file format: kinds of pages, children, the free list; no table's meaning. Works on a scratch copy.

Theory: every page of a tree is reached from a root, lies on the free list, or continues a long row of another page; the last begin with a zero
byte. A page that looks like a tree's and is neither reached nor free was cut off by damage. A schema that is told that such a page is a
table's root reads it, with what is below it. If the free list cannot be followed to its end, nobody can say what is cut off and what was deleted:
nothing is found.
"""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Iterable, Iterator
from pathlib import Path

from iothub_services.sqlite.scratch import open_damaged, page_bytes

_INSIDE = frozenset((0x02, 0x05))
_BY_ROWID = frozenset((0x05, 0x0D))
_KINDS = frozenset((0x02, 0x05, 0x0A, 0x0D))
_HEADER_BYTES = 100  # of the file, on its first page
_FIRST_FREE = 32


class _Pages:
    """The pages of a file, by number from 1."""

    def __init__(self, content: mmap.mmap, size_bytes: int) -> None:
        self._content = content
        self._size_bytes = size_bytes
        self.count = len(content) // size_bytes

    def number(self, page: int, offset: int, width: int = 4) -> int:
        start = (page - 1) * self._size_bytes + offset
        return int.from_bytes(self._content[start : start + width])

    def kind(self, page: int) -> int:
        return self.number(page, _begin(page), 1)

    def children(self, page: int) -> Iterator[int]:
        """The pages below one inside a tree, as far as they can exist."""
        begin = _begin(page)
        if self.kind(page) not in _INSIDE:
            return
        count = self.number(page, begin + 3, 2)
        for index in range(min(count, self._size_bytes // 2)):
            cell = self.number(page, begin + 12 + 2 * index, 2)
            yield from self._existing(self.number(page, cell))
        yield from self._existing(self.number(page, begin + 8))

    def free(self) -> set[int] | None:
        """The free pages; None: their list is damaged."""
        free: set[int] = set()
        trunk = self.number(1, _FIRST_FREE)
        while trunk:
            count = self.number(trunk, 4) if trunk <= self.count else self._size_bytes
            if trunk in free or count > self._size_bytes // 4 - 2:
                return None
            free.add(trunk)
            free.update(self.number(trunk, 8 + 4 * index) for index in range(count))
            trunk = self.number(trunk, 0)
        return free

    def reached(self, roots: Iterable[int]) -> set[int]:
        """The pages of the trees, the roots included."""
        found: set[int] = set()
        pending = list(roots)
        while pending:
            page = pending.pop()
            if page not in found:
                found.add(page)
                pending += self.children(page)
        return found

    def _existing(self, page: int) -> Iterator[int]:
        if 1 < page <= self.count:
            yield page


def find(scratch: Path) -> list[tuple[bool, int]]:
    """Return the roots of trees that were cut off: whether they are in the order of a rowid, and their page."""
    with contextlib.closing(open_damaged(scratch)) as connection:
        roots = [root for (root,) in connection.execute("SELECT rootpage FROM sqlite_master WHERE rootpage > 0")]
    with scratch.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        pages = _Pages(content, page_bytes(scratch))
        free = pages.free()
        if free is None:
            return []
        known = pages.reached([1, *roots]) | free
        cut = [page for page in range(2, pages.count + 1) if page not in known and pages.kind(page) in _KINDS]
        below = {child for page in cut for child in pages.children(page)}
        return [(pages.kind(page) in _BY_ROWID, page) for page in cut if page not in below]


def hang_on(scratch: Path, table: str, page: int, *, is_by_rowid: bool) -> bool:
    """Make a page the root of a table; False: the table's order is another one."""
    with contextlib.closing(open_damaged(scratch)) as connection:
        connection.execute("PRAGMA synchronous=OFF")
        found = connection.execute("SELECT sql FROM sqlite_master WHERE name = ?", (table,)).fetchone()
        if ("WITHOUT ROWID" in found[0].upper()) is is_by_rowid:
            return False
        connection.execute("UPDATE sqlite_master SET rootpage = ? WHERE name = ?", (page, table))
        return True


def _begin(page: int) -> int:
    return _HEADER_BYTES if page == 1 else 0
