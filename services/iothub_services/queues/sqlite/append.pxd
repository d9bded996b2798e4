cimport cython

from iothub_services.queues.sqlite.row_cache cimport QueueRow, QueueRowCache, Tenant


@cython.final
cdef class Appending:
    cdef object _connection, _bodies, _removed
    cdef QueueRowCache _rows
    cdef list _new_bodies, _new_references, _made, _hit
    cdef dict _ids

    @cython.locals(is_shared=cython.int, dropped=list)
    cdef object _append(self, object item)
    @cython.locals(row=QueueRow)
    cdef object _record_inbound(self, object inbound)
    @cython.locals(row=QueueRow, size=Py_ssize_t, position=cython.longlong, qos=cython.int, before=Py_ssize_t)
    cdef object _deliver(self, object item, object delivery, object body, int is_shared, list dropped)
    cdef object _known(self, object queue_id, object message_id)
    cpdef bint make_room(self, QueueRow row, Py_ssize_t size, list dropped) except -1
    @cython.locals(tenant=Tenant)
    cdef list _victims(self, QueueRow row, Py_ssize_t size, object statement)
    cdef object _write(self)


cdef long long _over(long long value, long long limit) except? -1


@cython.locals(tenant=Tenant)
cpdef object full(QueueRow row, Py_ssize_t size)
