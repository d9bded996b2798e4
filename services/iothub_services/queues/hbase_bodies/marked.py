"""What is referred to, in a fixed amount of memory: never forgotten, and a little more than was told.

Knows bytes alone.

Theory: a Bloom filter. What was told is always found, so nothing that is referred to is swept. Of the rest about one in `2**-_PROBES` is found
too while there are fewer than `bits / 10` of them, and stays for the next sweep, which has another salt and with it other mistakes.
"""

from __future__ import annotations

import secrets
from hashlib import blake2b

MARKED_BYTES = 16 << 20  # some 13 million bodies, and then less and less is swept
_PROBES = 7
_HALF = 8


class Marked:
    """A set that cannot grow. `size_bytes`: a power of two."""

    def __init__(self, size_bytes: int = MARKED_BYTES, salt: bytes | None = None) -> None:
        self._bits = bytearray(size_bytes)
        self._mask = size_bytes * 8 - 1
        self._salt = secrets.token_bytes(16) if salt is None else salt

    def add(self, tenant_id: int, body_id: bytes) -> None:
        """Mark a body."""
        bits = self._bits
        for at in self._places(tenant_id, body_id):
            bits[at >> 3] |= 1 << (at & 7)

    def __contains__(self, body: tuple[int, bytes]) -> bool:
        bits = self._bits
        return all(bits[at >> 3] >> (at & 7) & 1 for at in self._places(*body))

    def _places(self, tenant_id: int, body_id: bytes) -> list[int]:
        digest = blake2b(tenant_id.to_bytes(_HALF) + body_id, digest_size=2 * _HALF, salt=self._salt).digest()
        first, step = int.from_bytes(digest[:_HALF]), int.from_bytes(digest[_HALF:]) | 1
        return [(first + number * step) & self._mask for number in range(_PROBES)]
