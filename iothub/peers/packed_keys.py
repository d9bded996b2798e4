"""Keys of the session directory with a number for each, by slot, in few bytes: a hub has one for each client that is connected.

Knows no hub and no frame. Theory: the entries of a slot are one `bytes`, searched by `find`: it has some hundred bytes, and one that grows is
split by further bits of the hash. An entry is

    0xFF tenant ":" Client Identifier 0xFF number in hexadecimal digits

Invariant: UTF-8 has no 0xFF and a number no colon, so what is found between two 0xFF is a whole key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from zlib import crc32

from iothub.peers.view import SLOTS, Key

BLOCK_BYTES = 2_048  # a larger one is split: about 60 keys
PARTS = 16  # of a slot that is split; with a million keys each has as many


class PackedKeys:
    """Keys, each with a number of any size. Look-ups and changes are O(bytes of a block)."""

    __slots__ = ("_blocks", "_count")

    def __init__(self) -> None:
        self._count = 0
        self._blocks: list[bytes | list[bytes]] = [b""] * SLOTS

    def __len__(self) -> int:
        return self._count

    def get(self, key: Key) -> int | None:
        """Return the number of a key."""
        client = key[1].encode()
        place = _place(key[0], client)
        block = self._blocks[place % SLOTS]
        if isinstance(block, list):
            block = block[place // SLOTS % PARTS]
        name = b"\xff%d:%b\xff" % (key[0], client)
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
        return any(self._blocks_of(slot))

    def of_slot(self, slot: int) -> list[tuple[Key, int]]:
        """Return the keys of a slot with their numbers."""
        entries = [entry for block in self._blocks_of(slot) for entry in _entries(block)]
        return [(_key(name), int(number, 16)) for name, number in entries]

    def remove(self, slot: int, is_removed: Callable[[int], bool]) -> None:
        """Forget the keys of a slot whose numbers are to be removed."""
        left = []
        for block in self._blocks_of(slot):
            entries = _entries(block)
            kept = [(name, number) for name, number in entries if not is_removed(int(number, 16))]
            self._count -= len(entries) - len(kept)
            left.append(_joined(kept))
        self._blocks[slot] = left if isinstance(self._blocks[slot], list) else left[0]

    def clear(self) -> None:
        """Forget all."""
        self._count = 0
        self._blocks = [b""] * SLOTS

    # --- private

    def _change(self, key: Key, number: bytes) -> None:
        """Keep a key with a number; b"": without the key."""
        client = key[1].encode()
        place = _place(key[0], client)
        slot, part = place % SLOTS, place // SLOTS % PARTS
        blocks = self._blocks[slot]
        block = blocks[part] if isinstance(blocks, list) else blocks
        name = b"\xff%d:%b\xff" % (key[0], client)
        at = block.find(name)
        if at >= 0:
            end = block.find(b"\xff", at + len(name))
            block = block[:at] if end < 0 else block[:at] + block[end:]
            self._count -= 1
        if number:
            block += name + number
            self._count += 1
        if isinstance(blocks, list):
            blocks[part] = block
        else:
            self._blocks[slot] = block if len(block) <= BLOCK_BYTES else _split(block)

    def _blocks_of(self, slot: int) -> list[bytes]:
        blocks = self._blocks[slot]
        return blocks if isinstance(blocks, list) else [blocks]


def _place(tenant_id: int, client: bytes) -> int:
    """Return a number whose remainder by `SLOTS` is `slot_of`, and whose further bits are the part of a split slot."""
    return crc32(client, tenant_id & 0xFFFF_FFFF)


def _split(block: bytes) -> list[bytes]:
    parts: list[list[tuple[bytes, bytes]]] = [[] for _ in range(PARTS)]
    for entry in _entries(block):
        tenant_id, client_id = _key(entry[0])
        parts[_place(tenant_id, client_id.encode()) // SLOTS % PARTS].append(entry)
    return list(map(_joined, parts))


def _entries(block: bytes) -> list[tuple[bytes, bytes]]:
    fields = block.split(b"\xff")
    return list(zip(fields[1::2], fields[2::2], strict=True))


def _joined(entries: Iterable[tuple[bytes, bytes]]) -> bytes:
    return b"".join(b"\xff%b\xff%b" % entry for entry in entries)


def _key(name: bytes) -> Key:
    tenant_id, _, client_id = name.partition(b":")
    return int(tenant_id), client_id.decode()
