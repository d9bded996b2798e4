# cython: language_level=3, boundscheck=False, wraparound=False, binding=False
"""A PUBLISH frame written where it leaves, in one pass. The plain counterpart is in `iothub.engine.encode`."""

from __future__ import annotations

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.string cimport memcpy

from iothub.engine.message cimport Message


cpdef Py_ssize_t append_frame(bytearray out, Message message, bint is_v5, bint is_identified, Py_ssize_t size) except -1:
    """Append the frame of a message, of which `size` is known; return where the Packet Identifier stands."""
    cdef Py_ssize_t start, topic_size, payload_size, properties_size, remaining, at
    cdef unsigned char *to
    if out is None or message is None or message.topic is None or message.payload is None or message.properties is None:
        raise TypeError("a field is missing")
    start = PyByteArray_GET_SIZE(out)
    topic_size, payload_size = PyBytes_GET_SIZE(message.topic), PyBytes_GET_SIZE(message.payload)
    properties_size = PyBytes_GET_SIZE(message.properties)
    remaining = 2 + topic_size + payload_size + (2 if is_identified else 0)
    if is_v5:
        remaining += properties_size + _varint_size(properties_size)
    if size != 1 + _varint_size(remaining) + remaining:
        raise ValueError("the frame has another size")
    PyByteArray_Resize(out, start + size)
    to = <unsigned char *> PyByteArray_AS_STRING(out) + start
    to[0] = 0x30
    to = _varint(to + 1, remaining)
    to[0] = <unsigned char> (topic_size >> 8)
    to[1] = <unsigned char> topic_size
    to += 2
    memcpy(to, PyBytes_AS_STRING(message.topic), topic_size)
    to += topic_size
    at = to - <unsigned char *> PyByteArray_AS_STRING(out)
    if is_identified:
        to[0] = to[1] = 0
        to += 2
    if is_v5:
        to = _varint(to, properties_size)
        memcpy(to, PyBytes_AS_STRING(message.properties), properties_size)
        to += properties_size
    memcpy(to, PyBytes_AS_STRING(message.payload), payload_size)
    return at


cdef inline Py_ssize_t _varint_size(Py_ssize_t number):
    return 1 if number < 0x80 else 2 if number < 0x4000 else 3 if number < 0x200000 else 4


cdef inline unsigned char *_varint(unsigned char *to, Py_ssize_t number):
    while number >= 0x80:
        to[0] = <unsigned char> (number & 0x7F | 0x80)
        number >>= 7
        to += 1
    to[0] = <unsigned char> number
    return to + 1
