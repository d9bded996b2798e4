cimport cython

from iothub.engine.message cimport Message, received

cdef object _HEAD
cdef long long _MOST_MS
cdef Py_ssize_t _HEAD_BYTES, _LENGTH_BYTES, _ID_BYTES, _TENANT_AT, _FLAGS_AT, _EXPIRES_AT, _LENGTHS_AT
cdef int _QOS, _RETAIN, _IS_CLIENTS, _FLAGS, _LEVELS, _TOPIC_BYTES


cdef class RoutedMessages:
    cdef Message _message
    cdef bytes _body

    cpdef bytes encode(self, long long tenant_id, Message message)


@cython.locals(flags=int, length=Py_ssize_t, client_id=bytes, topic=bytes, properties=bytes, payload=bytes, head=bytes)
cpdef bytes encode_routed(long long tenant_id, Message message)
cpdef long long tenant_of_routed(bytes body, Py_ssize_t at) except -2
@cython.locals(
    size=Py_ssize_t, flags=int, expires_ms="long long", end=Py_ssize_t, id_at=Py_ssize_t, topic_at=Py_ssize_t, properties_at=Py_ssize_t,
    payload_at=Py_ssize_t, topic=bytes, found_id=bytes, raw_id=bytes, client_id=str,
    view="const unsigned char*",
)
cpdef Py_ssize_t decode_routed(bytes body, Py_ssize_t at, long long tenant_id, dict sessions, dict known, list into) except -2
@cython.locals(value="unsigned long long", index=Py_ssize_t)
cdef long long _number(bytes body, Py_ssize_t at, Py_ssize_t count) except? -2
