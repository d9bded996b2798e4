cimport cython


@cython.final
cdef class Tenant:
    cdef public long long tenant_id, messages, bytes, max_messages, max_bytes


@cython.final
cdef class QueueRow:
    cdef public long long queue_id, tenant_id, tail, head, epoch, reserved, messages, bytes, qos0, max_messages, max_bytes
    cdef public long long moved, young_messages, young_bytes, young_qos0
    cdef public int overflow
    cdef public bint is_changed
    cdef public Tenant tenant
    cdef public object owner, young

    cpdef object set_limits(self, object limits)


@cython.final
cdef class QueueRowCache:
    cdef object _connection, _on_usage
    cdef dict _rows, _dirty, _tenants, _before

    @cython.locals(row=QueueRow)
    cpdef QueueRow get(self, object queue_id)
    @cython.locals(row=QueueRow, tenant=Tenant)
    cpdef QueueRow touch(self, object queue_id)
    @cython.locals(row=QueueRow)
    cpdef object write(self, object connection)


@cython.locals(row=QueueRow)
cpdef QueueRow row_of(object columns)


cdef tuple _rarely(QueueRow row)


cdef tuple _counters(QueueRow row)
