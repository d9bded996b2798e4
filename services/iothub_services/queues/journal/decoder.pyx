# cython: language_level=3, boundscheck=False, wraparound=False, binding=False
"""The commonest records of the journal, read back without an object for each field.

The plain counterparts are in `iothub_services.queues.journal.decoding`; `iothub_services.queues.fastest` chooses.
"""

from __future__ import annotations

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp

from iothub_services.queues.encoder cimport sum_of

from iothub_services.queues.journal.records import LARGEST, AppendRecord, Found, MoveRecord, Type


cdef enum:
    HEAD_SIZE = 17
    SMALLEST = 9
    APPEND_SIZE = 68
    DELIVERY_SIZE = 20
    MOVE_SIZE = 33
    APPEND = 1

cdef uint64_t _largest = LARGEST
cdef object _new = tuple.__new__  # of a named tuple, whose own constructor is interpreted
cdef list _moves = [None] * 256
for _kind in (Type.HEAD, Type.RELEASE, Type.RESERVE, Type.INBOUND, Type.INBOUND_DONE, Type.PURGE, Type.REMOVED):
    _moves[_kind] = _kind


cdef inline uint64_t _number(const uint8_t *at, int size):
    cdef uint64_t value = 0
    cdef int index
    for index in range(size):
        value |= <uint64_t> at[index] << 8 * index
    return value


def read_common(bytes data not None, Py_ssize_t at, bytes mark not None, list found not None):
    """Add the whole records from here on that are of the kinds that most records are; return where the first other one begins."""
    cdef Py_ssize_t end
    while True:
        end = end_of_whole(data, at, mark)
        if not end:
            return at
        try:
            record = decode_common(data, at, end)
        except ValueError:
            return at
        if record is None:
            return at
        found.append(_new(Found, (at, record)))
        at = end


cpdef Py_ssize_t end_of_whole(bytes data, Py_ssize_t at, bytes mark) except -1:
    """Return where the record ends that begins here, 0: it is not whole."""
    cdef Py_ssize_t size
    cdef const uint8_t *start
    cdef uint64_t length
    if data is None or mark is None:
        raise TypeError("bytes are missing")
    size = PyBytes_GET_SIZE(data)
    start = <const uint8_t *> PyBytes_AS_STRING(data) + at
    if at < 0 or size - at < HEAD_SIZE or PyBytes_GET_SIZE(mark) != 8:
        return 0
    length = _number(start, 4)
    if length < SMALLEST or length > _largest or length > <uint64_t> (size - at - 8) or memcmp(start + 8, PyBytes_AS_STRING(mark), 8):
        return 0
    if sum_of(start + 8, <Py_ssize_t> length) != _number(start + 4, 4):
        return 0
    return at + 8 + <Py_ssize_t> length


cpdef object decode_common(bytes data, Py_ssize_t at, Py_ssize_t end):
    """Return a whole record if it is of the kinds that most records are. Raises ValueError: the fields do not fit."""
    cdef const uint8_t *start
    cdef uint8_t kind
    if data is None or at < 0 or end > PyBytes_GET_SIZE(data) or end - at < HEAD_SIZE:
        raise ValueError("there is no record")
    start = <const uint8_t *> PyBytes_AS_STRING(data)
    kind = start[at + HEAD_SIZE - 1]
    if kind == APPEND:
        return _append(start + at, start + end)
    type_ = _moves[kind]
    if type_ is None:
        return None
    if end - at != MOVE_SIZE:
        raise ValueError("fields and length differ")
    return _new(MoveRecord, (type_, _number(start + at + HEAD_SIZE, 8), _number(start + at + HEAD_SIZE + 8, 8)))


cdef object _append(const uint8_t *at, const uint8_t *end):
    cdef uint64_t expires_at_ms, size, count, queue_id, epoch, packet_id
    cdef uint8_t flags
    cdef const uint8_t *first
    cdef object inbound = None
    if end - at < APPEND_SIZE:
        raise ValueError("fields and length differ")
    expires_at_ms = _number(at + 17, 8)
    size = _number(at + 25, 4)
    count = _number(at + 29, 4)
    queue_id = _number(at + 33, 8)
    epoch = _number(at + 41, 8)
    packet_id = _number(at + 49, 2)
    flags = at[67]
    message_id = PyBytes_FromStringAndSize(<const char *> at + 51, 16) if flags & 1 else b""
    if flags & 2:
        inbound = (queue_id, epoch, packet_id)
    first = at = at + APPEND_SIZE
    while count:
        at = _delivery(at, end)
        count -= 1
    deliveries = PyBytes_FromStringAndSize(<const char *> first, at - first)
    if <uint64_t> (end - at) != size:
        raise ValueError("fields and length differ")
    body = PyBytes_FromStringAndSize(<const char *> at, end - at)
    return _new(AppendRecord, (message_id, body, expires_at_ms, deliveries, inbound))


cdef inline const uint8_t *_delivery(const uint8_t *at, const uint8_t *end) except NULL:
    cdef uint32_t identifiers
    if end - at < DELIVERY_SIZE:
        raise ValueError("fields and length differ")
    identifiers = <uint32_t> _number(at + 18, 2)
    if (end - at - DELIVERY_SIZE) // 4 < <Py_ssize_t> identifiers:
        raise ValueError("fields and length differ")
    return at + DELIVERY_SIZE + 4 * identifiers
