cimport cython

from iothub.engine.message cimport Message, received
from iothub.engine.state cimport TenantPlane
from iothub.engine.turn cimport Turn

cdef object _HEAD
cdef long long _MOST_MS, _MOST_BYTES
cdef Py_ssize_t _HEAD_BYTES, _LENGTH_BYTES, _ID_BYTES, _TENANT_AT, _FLAGS_AT, _EXPIRES_AT, _LENGTHS_AT
cdef int _QOS, _RETAIN, _IS_CLIENTS, _FLAGS, _LIKE, _LEVELS, _TOPIC_BYTES


cdef class RoutedBatch:
    cdef public Turn turn
    cdef public Py_ssize_t batch_bytes
    cdef public bint is_full, is_half_full, is_flush_due
    cdef bytearray records
    cdef Message like
    cdef long long tenant_id

    @cython.locals(records=bytearray, like=Message, payload=bytes, length=Py_ssize_t, record=bytes)
    cpdef object send(self, TenantPlane tenant, Message message)
    cpdef bytes take_records(self)
    cpdef object flush_later(self)
    cpdef object flush_messages(self)


cdef bint _is_alike(Message message, Message other) except -1
@cython.locals(flags=int, length=Py_ssize_t, client_id=bytes, topic=bytes, properties=bytes, payload=bytes, head=bytes)
cpdef bytes encode_routed(long long tenant_id, Message message)
cpdef long long tenant_of_routed(bytes body, Py_ssize_t at) except -2
@cython.locals(
    size=Py_ssize_t, flags=int, expires_ms="long long", end=Py_ssize_t, id_at=Py_ssize_t, topic_at=Py_ssize_t, properties_at=Py_ssize_t,
    payload_at=Py_ssize_t, topic=bytes, found_id=bytes, raw_id=bytes, client_id=str,
    properties=bytes, expires_at=double, qos=int, retain=bint, is_like=int, payload=bytes,
    view="const unsigned char*",
)
cpdef Py_ssize_t decode_routed(bytes body, Py_ssize_t at, long long tenant_id, dict sessions, dict known, list into) except -2
@cython.locals(value="unsigned long long", index=Py_ssize_t)
cdef long long _number(bytes body, Py_ssize_t at, Py_ssize_t count) except? -2
