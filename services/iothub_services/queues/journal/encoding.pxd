cimport cython


@cython.final
cdef class GroupBuffer:
    cdef public object mark, start
    cdef public Py_ssize_t records
    cdef public bytearray data

    @cython.locals(at=Py_ssize_t, flags=cython.int)
    cpdef object append(self, object message_id, object body, object expires_at_ms, object deliveries, object inbound=*)
    cpdef object removed(self, object queue_id, object position)
    @cython.locals(at=Py_ssize_t)
    cpdef object move(self, object kind, object queue_id, object value)
    cdef object _write(self, object kind, object fields)
    @cython.locals(length=Py_ssize_t)
    cdef object _end(self, Py_ssize_t at)
