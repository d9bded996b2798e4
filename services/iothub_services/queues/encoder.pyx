# cython: language_level=3, boundscheck=False, wraparound=False, binding=False
"""Bytes of a durable message, made and read without an object for each field: a body, a record of the journal, and the CRC-32 of both.

Decides nothing. The plain counterparts are `iothub_services.queues.bodies`, `zlib.crc32` and `iothub_services.queues.journal.encoding`;
`iothub_services.queues.fastest` chooses.
"""

from __future__ import annotations

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from iothub.engine.message cimport Message, received
from iothub.engine.outbox cimport QueueTarget

from iothub_services.queues.bodies import message_of as _plain_message_of

cdef extern from *:
    """
    #include <stddef.h>
    #include <stdint.h>
    #include <string.h>

    static uint32_t iothub_crc_table[8][256];

    static void iothub_crc_prepare(void)
    {
        for (uint32_t value = 0; value < 256; value++) {
            uint32_t crc = value;
            for (int bit = 0; bit < 8; bit++)
                crc = crc & 1 ? crc >> 1 ^ 0xEDB88320u : crc >> 1;
            iothub_crc_table[0][value] = crc;
        }
        for (int row = 1; row < 8; row++)
            for (uint32_t value = 0; value < 256; value++) {
                uint32_t crc = iothub_crc_table[row - 1][value];
                iothub_crc_table[row][value] = crc >> 8 ^ iothub_crc_table[0][crc & 0xFF];
            }
    }

    /* Eight bytes at a time. `crc` is the register, not its complement. */
    static uint32_t iothub_crc_by_table(uint32_t crc, const uint8_t *data, size_t size)
    {
        while (size >= 8) {
            uint32_t low = crc ^ ((uint32_t) data[0] | (uint32_t) data[1] << 8 | (uint32_t) data[2] << 16 | (uint32_t) data[3] << 24);
            crc = iothub_crc_table[7][low & 0xFF] ^ iothub_crc_table[6][low >> 8 & 0xFF] ^ iothub_crc_table[5][low >> 16 & 0xFF]
                ^ iothub_crc_table[4][low >> 24] ^ iothub_crc_table[3][data[4]] ^ iothub_crc_table[2][data[5]]
                ^ iothub_crc_table[1][data[6]] ^ iothub_crc_table[0][data[7]];
            data += 8;
            size -= 8;
        }
        while (size--)
            crc = crc >> 8 ^ iothub_crc_table[0][(crc ^ *data++) & 0xFF];
        return crc;
    }

    #if defined(__x86_64__) && defined(__GNUC__)
    #include <immintrin.h>

    #define IOTHUB_FOLD(x, k) _mm_xor_si128(_mm_clmulepi64_si128((x), (k), 0x00), _mm_clmulepi64_si128((x), (k), 0x11))

    /* Four lanes of 128 bits are multiplied by powers of x modulo the polynomial and added to what follows; then the lanes are folded into one, and
       that one is reduced by the table. `size`: at least 64, a multiple of 16. The constants are x^(512+32), x^(512-32), x^(128+32), x^(128-32)
       mod P with their bits reversed: a carry-less product of reversed numbers is shifted by one. */
    __attribute__((target("pclmul,sse4.1")))
    static uint32_t iothub_crc_folded(uint32_t crc, const uint8_t *data, size_t size)
    {
        const __m128i far = _mm_set_epi64x(0x01C6E41596, 0x0154442BD4), near = _mm_set_epi64x(0x00CCAA009E, 0x01751997D0);
        __m128i lane[4];
        uint8_t rest[16];
        for (int index = 0; index < 4; index++)
            lane[index] = _mm_loadu_si128((const __m128i *) data + index);
        lane[0] = _mm_xor_si128(lane[0], _mm_cvtsi32_si128((int) crc));
        data += 64;
        size -= 64;
        while (size >= 64) {
            for (int index = 0; index < 4; index++)
                lane[index] = _mm_xor_si128(IOTHUB_FOLD(lane[index], far), _mm_loadu_si128((const __m128i *) data + index));
            data += 64;
            size -= 64;
        }
        for (int index = 1; index < 4; index++)
            lane[index] = _mm_xor_si128(IOTHUB_FOLD(lane[index - 1], near), lane[index]);
        while (size) {
            lane[3] = _mm_xor_si128(IOTHUB_FOLD(lane[3], near), _mm_loadu_si128((const __m128i *) data));
            data += 16;
            size -= 16;
        }
        _mm_storeu_si128((__m128i *) rest, lane[3]);
        return iothub_crc_by_table(0, rest, 16);
    }

    static int iothub_crc_folds(void)
    {
        return __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
    }
    #else
    static uint32_t iothub_crc_folded(uint32_t crc, const uint8_t *data, size_t size)
    {
        return iothub_crc_by_table(crc, data, size);
    }

    static int iothub_crc_folds(void)
    {
        return 0;
    }
    #endif
    """
    void iothub_crc_prepare()
    uint32_t iothub_crc_by_table(uint32_t crc, const uint8_t *data, size_t size)
    uint32_t iothub_crc_folded(uint32_t crc, const uint8_t *data, size_t size)
    int iothub_crc_folds()


iothub_crc_prepare()
cdef bint _folds = iothub_crc_folds()


cdef uint32_t sum_of(const uint8_t *data, Py_ssize_t size):
    """CRC-32."""
    cdef uint32_t crc = 0xFFFFFFFF
    cdef Py_ssize_t folded = 0
    if _folds and size >= 64:
        folded = size & ~<Py_ssize_t> 15
        crc = iothub_crc_folded(crc, data, folded)
    return ~iothub_crc_by_table(crc, data + folded, size - folded)


def crc32(bytes data not None):
    """Return what `zlib.crc32` returns."""
    return sum_of(<const uint8_t *> PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))


# --- the body of a message, big-endian

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL
    object PyUnicode_DecodeUTF8(const char *text, Py_ssize_t size, const char *errors)


cdef inline uint8_t *_big(uint8_t *to, uint64_t value, int size):
    cdef int index
    for index in range(size):
        to[index] = <uint8_t> (value >> 8 * (size - 1 - index))
    return to + size


cdef inline uint8_t *_copy(uint8_t *to, const void *data, Py_ssize_t size):
    memcpy(to, data, size)
    return to + size


cpdef Py_ssize_t body_size(Message message) except -1:
    """Return how long the body of a message is. Raises ValueError: a field does not fit."""
    cdef Py_ssize_t name_size = 0, topic_size, properties_size, payload_size, id_size
    PyUnicode_AsUTF8AndSize(message.publisher_client_id, &name_size)
    if message.topic is None or message.payload is None or message.properties is None or message.message_id is None:
        raise TypeError("a field is missing")
    topic_size, properties_size = PyBytes_GET_SIZE(message.topic), PyBytes_GET_SIZE(message.properties)
    payload_size, id_size = PyBytes_GET_SIZE(message.payload), PyBytes_GET_SIZE(message.message_id)
    if name_size > 0xFFFF or topic_size > 0xFFFF or properties_size > 0xFFFFFFFF or id_size not in (0, 16):
        raise ValueError("a field is longer than its length says")
    return 38 + name_size + topic_size + properties_size + payload_size


cdef int _write_body(uint8_t *start, Py_ssize_t size, Message message) except -1:
    """Write the body of a message, which has `size` bytes: see `iothub.records.message`."""
    cdef Py_ssize_t name_size = 0, topic_size, properties_size
    cdef const char *name = PyUnicode_AsUTF8AndSize(message.publisher_client_id, &name_size)
    cdef uint8_t *at = start
    topic_size, properties_size = PyBytes_GET_SIZE(message.topic), PyBytes_GET_SIZE(message.properties)
    at[0] = 1
    at[1] = <uint8_t> (message.qos | message.retain << 2 | (PyBytes_GET_SIZE(message.message_id) > 0) << 3)
    at = _big(at + 2, name_size, 2)
    at = _big(at, topic_size, 2)
    at = _big(at, properties_size, 4)
    at = _big(at, <uint64_t> (message.expires_at * 1000), 8)
    if PyBytes_GET_SIZE(message.message_id):
        memcpy(at, PyBytes_AS_STRING(message.message_id), 16)
    else:
        memset(at, 0, 16)
    at = _copy(at + 16, name, name_size)
    at = _copy(at, PyBytes_AS_STRING(message.topic), topic_size)
    at = _copy(at, PyBytes_AS_STRING(message.properties), properties_size)
    at = _copy(at, PyBytes_AS_STRING(message.payload), PyBytes_GET_SIZE(message.payload))
    _big(at, sum_of(start, size - 4), 4)
    return 0


cpdef bytes body_of(Message message):
    """Return the body of a message. Raises ValueError: a field does not fit."""
    cdef Py_ssize_t size = body_size(message)
    body = PyBytes_FromStringAndSize(NULL, size)
    _write_body(<uint8_t *> PyBytes_AS_STRING(body), size, message)
    return body


cdef inline uint64_t _from_big(const uint8_t *at, int size):
    cdef uint64_t value = 0
    cdef int index
    for index in range(size):
        value = value << 8 | at[index]
    return value


cdef inline bytes _part(const uint8_t *at, Py_ssize_t size):
    return PyBytes_FromStringAndSize(<const char *> at, size)


cpdef Message message_of(bytes body):
    """Decode a stored message. Raises CorruptRecordError."""
    cdef Py_ssize_t size, name_size, topic_size, properties_size, payload_size
    cdef const uint8_t *start
    cdef const uint8_t *at
    cdef Message message
    if body is None:
        raise TypeError("a body is missing")
    size = PyBytes_GET_SIZE(body)
    start = <const uint8_t *> PyBytes_AS_STRING(body)
    if size < 38 or start[0] != 1 or start[1] & 3 == 3 or sum_of(start, size - 4) != _from_big(start + size - 4, 4):
        return _plain_message_of(body)  # which says what is wrong
    name_size = <Py_ssize_t> _from_big(start + 2, 2)
    topic_size = <Py_ssize_t> _from_big(start + 4, 2)
    properties_size = <Py_ssize_t> _from_big(start + 6, 4)
    payload_size = size - 38 - name_size - topic_size - properties_size
    if payload_size < 0:
        return _plain_message_of(body)
    at = start + 34
    try:
        name = PyUnicode_DecodeUTF8(<const char *> at, name_size, NULL)
    except UnicodeDecodeError:
        return _plain_message_of(body)
    at += name_size
    message = received(
        _part(at, topic_size),
        _part(at + topic_size + properties_size, payload_size),
        start[1] & 3,
        start[1] & 4,
        _part(at + topic_size, properties_size) if properties_size else b"",
        <double> _from_big(start + 10, 8) / 1000,
        None,
        name,
    )
    if start[1] & 8:
        message.message_id = _part(start + 18, 16)
    return message


# --- a record of the journal, little-endian

cdef inline uint8_t *_little(uint8_t *to, uint64_t value, int size):
    cdef int index
    for index in range(size):
        to[index] = <uint8_t> (value >> 8 * index)
    return to + size


cdef extern from "Python.h":
    ctypedef struct PyByteArrayObject:
        Py_ssize_t ob_alloc


cdef uint8_t *_room(bytearray data, Py_ssize_t size):
    """Make `data` longer; return where that begins.

    What it may grow to is doubled when it is used up: Python adds an eighth, so a group would be moved again and again.
    """
    cdef Py_ssize_t at = PyByteArray_GET_SIZE(data)
    if at + size >= (<PyByteArrayObject *> data).ob_alloc:
        PyByteArray_Resize(data, 2 * (at + size))
    PyByteArray_Resize(data, at + size)
    return <uint8_t *> PyByteArray_AS_STRING(data) + at


cdef void _end(uint8_t *start, Py_ssize_t size):
    _little(start, size - 8, 4)
    _little(start + 4, sum_of(start + 8, size - 8), 4)


cdef enum:
    APPEND = 1
    APPEND_SIZE = 68
    DELIVERY_SIZE = 20
    MOVE_SIZE = 33


def write_append(
    bytearray data not None,
    bytes mark not None,
    bytes message_id not None,
    bytes body not None,
    uint64_t expires_at_ms,
    list deliveries not None,
    inbound,
):
    """Add a record APPEND: see `iothub_services.queues.journal.records`."""
    cdef Py_ssize_t size = APPEND_SIZE + PyBytes_GET_SIZE(body) + DELIVERY_SIZE * len(deliveries)
    cdef uint64_t queue_id = 0, epoch = 0
    cdef uint32_t packet_id = 0
    cdef uint8_t *start
    cdef uint8_t *at
    cdef tuple delivery, identifiers
    cdef bint has_id = PyBytes_GET_SIZE(message_id) != 0
    if PyBytes_GET_SIZE(mark) != 8 or PyBytes_GET_SIZE(message_id) not in (0, 16):
        raise ValueError("a mark has 8 bytes, a message id 16 or none")
    for each in deliveries:
        delivery = <tuple?> each
        if len(delivery) < 5 or len(<tuple?> delivery[4]) > 0xFFFF:
            raise ValueError("a delivery has five fields, and at most 65,535 identifiers")
        size += 4 * len(<tuple> delivery[4])
    if inbound is not None:
        queue_id, epoch, packet_id = inbound[0], inbound[1], inbound[2]
    start = _room(data, size)
    at = _copy(start + 8, PyBytes_AS_STRING(mark), 8)
    at[0] = APPEND
    at = _little(at + 1, expires_at_ms, 8)
    at = _little(at, PyBytes_GET_SIZE(body), 4)
    at = _little(at, len(deliveries), 4)
    at = _little(at, queue_id, 8)
    at = _little(at, epoch, 8)
    at = _little(at, packet_id, 2)
    if has_id:
        memcpy(at, PyBytes_AS_STRING(message_id), 16)
    else:
        memset(at, 0, 16)
    at[16] = <uint8_t> (has_id | (inbound is not None) << 1)
    at += 17
    for each in deliveries:
        delivery = <tuple> each
        identifiers = <tuple> delivery[4]
        at = _little(at, delivery[0], 8)
        at = _little(at, delivery[1], 8)
        at[0] = delivery[2]
        at[1] = delivery[3]
        at = _little(at + 2, len(identifiers), 2)
        for identifier in identifiers:
            at = _little(at, identifier, 4)
    _copy(at, PyBytes_AS_STRING(body), PyBytes_GET_SIZE(body))
    _end(start, size)


cdef uint8_t *_begin_single(
    bytearray data, bytes mark, bytes message_id, Py_ssize_t body_size, uint64_t expires_at_ms, QueueTarget target, uint64_t position
) except NULL:
    """Make room for a record APPEND of one delivery; return where its body goes."""
    cdef Py_ssize_t count
    cdef uint8_t *at
    cdef tuple identifiers
    if data is None or mark is None or message_id is None or target is None:
        raise TypeError("a field is missing")
    identifiers = target.identifiers
    count = len(identifiers)
    if PyBytes_GET_SIZE(mark) != 8 or PyBytes_GET_SIZE(message_id) not in (0, 16) or count > 0xFFFF:
        raise ValueError("a mark has 8 bytes, a message id 16 or none, a delivery at most 65,535 identifiers")
    at = _room(data, APPEND_SIZE + DELIVERY_SIZE + 4 * count + body_size)
    at = _copy(at + 8, PyBytes_AS_STRING(mark), 8)
    at[0] = APPEND
    at = _little(at + 1, expires_at_ms, 8)
    at = _little(at, body_size, 4)
    at = _little(at, 1, 4)
    memset(at, 0, 35)
    if PyBytes_GET_SIZE(message_id):
        memcpy(at + 18, PyBytes_AS_STRING(message_id), 16)
        at[34] = 1
    at = _little(at + 35, target.queue_id, 8)
    at = _little(at, position, 8)
    at[0] = <uint8_t> target.qos
    at[1] = <uint8_t> target.flags()
    at = _little(at + 2, count, 2)
    for identifier in identifiers:
        at = _little(at, identifier, 4)
    return at


cpdef object write_single(
    bytearray data,
    bytes mark,
    bytes message_id,
    bytes body,
    uint64_t expires_at_ms,
    QueueTarget target,
    uint64_t position,
):
    """Add a record APPEND of one delivery and without a publisher's side."""
    cdef Py_ssize_t start, size
    cdef uint8_t *at
    if body is None or data is None:
        raise TypeError("a field is missing")
    start, size = PyByteArray_GET_SIZE(data), PyBytes_GET_SIZE(body)
    at = _begin_single(data, mark, message_id, size, expires_at_ms, target, position)
    _copy(at, PyBytes_AS_STRING(body), size)
    _end(<uint8_t *> PyByteArray_AS_STRING(data) + start, PyByteArray_GET_SIZE(data) - start)


cpdef object write_message(
    bytearray data,
    bytes mark,
    bytes message_id,
    Message message,
    uint64_t expires_at_ms,
    QueueTarget target,
    uint64_t position,
):
    """Do the same with the body of a message, which is made where it stays."""
    cdef Py_ssize_t start, size = body_size(message)
    cdef uint8_t *at
    if data is None:
        raise TypeError("a field is missing")
    start = PyByteArray_GET_SIZE(data)
    at = _begin_single(data, mark, message_id, size, expires_at_ms, target, position)
    _write_body(at, size, message)
    _end(<uint8_t *> PyByteArray_AS_STRING(data) + start, PyByteArray_GET_SIZE(data) - start)


def write_move(bytearray data not None, bytes mark not None, int kind, uint64_t queue_id, uint64_t value):
    """Add a record of one number of one queue."""
    cdef uint8_t *start
    cdef uint8_t *at
    if PyBytes_GET_SIZE(mark) != 8:
        raise ValueError("a mark has 8 bytes")
    start = _room(data, MOVE_SIZE)
    at = _copy(start + 8, PyBytes_AS_STRING(mark), 8)
    at[0] = <uint8_t> kind
    at = _little(at + 1, queue_id, 8)
    _little(at, value, 8)
    _end(start, MOVE_SIZE)
