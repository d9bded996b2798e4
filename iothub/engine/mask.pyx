# cython: language_level=3, boundscheck=False, wraparound=False, binding=False
"""XOR with a repeated key of four bytes, eight bytes at a time: the mask of RFC 6455 section 5.3.

Knows no frames. The plain counterpart is in `iothub.net.websocket_frames`.
"""

from __future__ import annotations

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint64_t
from libc.string cimport memcpy


def unmask(bytes data not None, bytes key not None):
    """XOR `data` with `key` (four bytes, from its first)."""
    cdef Py_ssize_t size = PyBytes_GET_SIZE(data)
    cdef Py_ssize_t at = 0
    cdef const char *source = PyBytes_AS_STRING(data)
    cdef const char *mask = PyBytes_AS_STRING(key)
    cdef uint64_t wide
    cdef uint64_t word
    cdef char *target
    if PyBytes_GET_SIZE(key) != 4:
        raise ValueError("the key has four bytes")
    plain = PyBytes_FromStringAndSize(NULL, size)
    target = PyBytes_AS_STRING(plain)
    memcpy(&wide, mask, 4)
    memcpy(<char *> &wide + 4, mask, 4)
    while at + 8 <= size:
        memcpy(&word, source + at, 8)
        word ^= wide
        memcpy(target + at, &word, 8)
        at += 8
    while at < size:
        target[at] = source[at] ^ mask[at & 3]
        at += 1
    return plain
