"""Keys of the session directory with a number for each, by slot, in few bytes: a hub has one for each client that is connected.

Knows no hub and no frame. Theory: the entries of a slot are one `bytes`, searched by `find`: it has some hundred bytes, and a slot that grows has
twice as many of them. An entry is

    0xFF tenant ":" Client Identifier 0xFF number in hexadecimal digits

Invariants: UTF-8 has no 0xFF and a number no colon, so what is found between two 0xFF is a whole key. Which block of its slot a key is in, no client
can choose: Python's hash of bytes is keyed anew in each process. Client Identifiers that share a slot are easily made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from iothub.peers.view import SLOTS, Key, slot_of

BLOCK_BYTES = 2_048  # about 60 keys
BLOCK_KEYS = 16  # with fewer, a block may be larger: they are long


class PackedKeys:
    """Keys, each with a number of any size. Look-ups and changes are O(bytes of a block)."""

    __slots__ = ("_count", "_slots")

    def __init__(self) -> None:
        self._count = 0
        self._slots: list[tuple[bytes, ...]] = []
        self.clear()

    def __len__(self) -> int:
        return self._count

    def get(self, key: Key) -> int | None:
        """Return the number of a key."""
        name = _name(key)
        blocks = self._slots[slot_of(key)]
        block = blocks[_part(name, len(blocks))]
        at = block.find(name)
        if at < 0:
            return None
        at += len(name)
        end = block.find(b"\xff", at)
        return int(block[at:] if end < 0 else block[at:end], 16)

    def put(self, key: Key, number: int) -> None:
        """Keep a key with a number, in place of the one that it has."""
        self._change(key, b"%x" % number)

    def pop(self, key: Key) -> None:
        """Forget a key, if it is there."""
        self._change(key, b"")

    def slots(self) -> Iterator[int]:
        """Yield the slots that have keys."""
        return filter(self.has, range(SLOTS))

    def has(self, slot: int) -> bool:
        """Whether a slot has a key."""
        return any(self._slots[slot])

    def of_slot(self, slot: int) -> list[tuple[Key, int]]:
        """Return the keys of a slot with their numbers."""
        return [(_key(name), int(number, 16)) for block in self._slots[slot] for name, number in _entries(block)]

    def remove(self, slot: int, is_removed: Callable[[int], bool]) -> int:
        """Forget the keys of a slot whose numbers are to be removed; return how many there were, with the others."""
        left, found = [], 0
        for block in self._slots[slot]:
            entries = _entries(block)
            kept = [(name, number) for name, number in entries if not is_removed(int(number, 16))]
            found += len(entries)
            self._count -= len(entries) - len(kept)
            left.append(_joined(kept))
        self._slots[slot] = tuple(left)
        return found

    def clear(self) -> None:
        """Forget all."""
        self._count = 0
        self._slots = [(b"",)] * SLOTS

    # --- private

    def _change(self, key: Key, number: bytes) -> None:
        """Keep a key with a number; b"": without the key."""
        name = _name(key)
        slot = slot_of(key)
        blocks = self._slots[slot]
        part = _part(name, len(blocks))
        block = blocks[part]
        at = block.find(name)
        if at >= 0:
            end = block.find(b"\xff", at + len(name))
            block = block[:at] if end < 0 else block[:at] + block[end:]
            self._count -= 1
        if number:
            block += name + number
            self._count += 1
        blocks = *blocks[:part], block, *blocks[part + 1 :]
        is_large = len(block) > BLOCK_BYTES and block.count(b"\xff") > 2 * BLOCK_KEYS
        self._slots[slot] = _spread(blocks, 2 * len(blocks)) if is_large else blocks


def _name(key: Key) -> bytes:
    return b"\xff%d:%b\xff" % (key[0], key[1].encode())


def _part(name: bytes, parts: int) -> int:
    return hash(name) % parts


def _spread(blocks: tuple[bytes, ...], parts: int) -> tuple[bytes, ...]:
    """Return the entries of a slot in more blocks."""
    spread: list[list[tuple[bytes, bytes]]] = [[] for _ in range(parts)]
    for block in blocks:
        for entry in _entries(block):
            spread[_part(b"\xff%b\xff" % entry[0], parts)].append(entry)
    return tuple(map(_joined, spread))


def _entries(block: bytes) -> list[tuple[bytes, bytes]]:
    fields = block.split(b"\xff")
    return list(zip(fields[1::2], fields[2::2], strict=True))


def _joined(entries: Iterable[tuple[bytes, bytes]]) -> bytes:
    return b"".join(b"\xff%b\xff%b" % entry for entry in entries)


def _key(name: bytes) -> Key:
    tenant_id, _, client_id = name.partition(b":")
    return int(tenant_id), client_id.decode()
