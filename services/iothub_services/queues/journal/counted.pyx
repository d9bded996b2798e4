# cython: language_level=3, boundscheck=False, wraparound=False, binding=False
"""Numbers of 8 bytes in an array, without an object for each. The plain counterparts are in `iothub_services.queues.journal.words`."""

from __future__ import annotations

from cpython.array cimport array, clone, resize_smart
from libc.stdint cimport uint64_t

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
