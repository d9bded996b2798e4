cimport cython


@cython.final
cdef class GroupBuffer:
    cdef public bytes mark
    cdef public long long start
    cdef public Py_ssize_t deliveries, records
    cdef public bytearray data

    cpdef object append(self, object message_id, object body, object expires_at_ms, object deliveries, object inbound=*)
    cpdef object removed(self, object queue_id, object position)
    cpdef object move(self, object kind, object queue_id, object value)
    cdef object _write(self, object kind, object fields)
