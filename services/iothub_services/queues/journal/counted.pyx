# cython: language_level=3, boundscheck=False, wraparound=False, binding=False
"""Numbers of 8 bytes in an array, and numbers in bytes, without an object for each. The plain counterparts are in `iothub_services.queues.journal.words`."""

from __future__ import annotations

from cpython.array cimport array, clone, resize_smart
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint64_t

cdef array _none = array("Q")


cpdef array new_words():
    """Return an array without numbers."""
    return clone(_none, 0, False)


cdef inline int _check(array words) except -1:
    if words is None:
        raise TypeError("an array is missing")
    if words.ob_descr.typecode != c"Q":
        raise TypeError("an array of another type")
    return 0


cpdef int add_words(array words, uint64_t one, uint64_t two, uint64_t three, uint64_t four) except -1:
    """Add four numbers to the end. Raises OverflowError: one of them does not fit; nothing is added."""
    cdef Py_ssize_t size
    cdef uint64_t *added
    _check(words)
    size = len(words)
    resize_smart(words, size + 4)
    added = <uint64_t *> words.data.as_ulonglongs + size
    added[0] = one
    added[1] = two
    added[2] = three
    added[3] = four
    return 0


cpdef uint64_t word_at(array words, Py_ssize_t index) except? 0xFFFFFFFFFFFFFFFF:
    """Return a number. Raises IndexError."""
    _check(words)
    if index < 0 or index >= len(words):
        raise IndexError("array index out of range")
    return (<uint64_t *> words.data.as_ulonglongs)[index]


cdef inline const uint8_t *_at(bytes data, Py_ssize_t at, Py_ssize_t size) except NULL:
    if data is None:
        raise TypeError("bytes are missing")
    if at < 0 or PyBytes_GET_SIZE(data) - at < size:
        raise IndexError("bytes end before the number")
    return <const uint8_t *> PyBytes_AS_STRING(data) + at


cpdef uint64_t long_at(bytes data, Py_ssize_t at) except? 0xFFFFFFFFFFFFFFFF:
    """Return the number of 8 bytes that begins there, the lowest first. Raises IndexError."""
    cdef const uint8_t *start = _at(data, at, 8)
    cdef uint64_t value = 0
    cdef int index
    for index in range(8):
        value |= <uint64_t> start[index] << 8 * index
    return value


cpdef int short_at(bytes data, Py_ssize_t at) except -1:
    """Return the number of 2 bytes that begins there, the lowest first. Raises IndexError."""
    cdef const uint8_t *start = _at(data, at, 2)
    return start[0] | start[1] << 8
