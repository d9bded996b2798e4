cimport cython

from iothub.engine.message cimport Message, received

cdef object _HEAD, _MOST_MS
cdef Py_ssize_t _HEAD_BYTES
cdef int _QOS, _RETAIN, _IS_CLIENTS, _FLAGS


@cython.locals(flags=int, client_id=bytes, topic=bytes, properties=bytes, head=bytes)
cpdef bytes encode_routed(long long tenant_id, Message message)
cpdef long long tenant_of_routed(bytes body) except -2
@cython.locals(
    flags=int, id_length=Py_ssize_t, topic_length=Py_ssize_t, properties_length=Py_ssize_t, topic_at=Py_ssize_t,
    properties_at=Py_ssize_t, payload_at=Py_ssize_t,
)
cpdef Message decode_routed(bytes body, dict sessions)
