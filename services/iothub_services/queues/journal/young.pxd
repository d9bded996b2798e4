cimport cython

from iothub_services.queues.journal.encoding cimport GroupBuffer
from iothub_services.queues.sqlite.append cimport Appending
from iothub_services.queues.sqlite.row_cache cimport QueueRow, QueueRowCache, Tenant


@cython.final
@cython.no_gc
cdef class Body:
    cdef public object data, expires_at_ms, message_id
    cdef public Py_ssize_t references
    cdef public object stored_id


@cython.final
cdef class Young:
    cdef public object references, released, inbound
    cdef public dict ids
    cdef public bint is_waiting
    cdef public long long visible


@cython.final
cdef class Table:
    cdef object _connection, _move_out
    cdef QueueRowCache _rows
    cdef Appending _appending
    cdef public dict young
    cdef public Py_ssize_t count
    cdef public set tenants
    cdef list _waiting, _deadlines

    cpdef list append(self, list batch, GroupBuffer group)
    @cython.locals(body=Body, made=list, dropped=list, hit=list)
    cdef object _append(self, object item, GroupBuffer group)
    @cython.locals(row=QueueRow)
    cdef object _record_inbound(self, object inbound)
    @cython.locals(row=QueueRow, size=Py_ssize_t, position=cython.longlong, qos=cython.int, before=Py_ssize_t)
    cdef object _deliver(self, Body body, object delivery, list made, list dropped, list hit)
    @cython.locals(young=Young)
    cdef object _known(self, QueueRow row, object message_id)
    @cython.locals(young=Young)
    cpdef object take(self, QueueRow row, object position, int qos, object flags, object subscription_ids, Body body)
    @cython.locals(young=Young, body=Body, messages=Py_ssize_t, size=Py_ssize_t, qos0=Py_ssize_t, reference=tuple)
    cpdef object acknowledge(self, QueueRow row, long long upto)
    @cython.locals(tenant=Tenant)
    cdef object _count(self, QueueRow row, Py_ssize_t messages, Py_ssize_t size_bytes, Py_ssize_t qos0)
    @cython.locals(row=QueueRow, young=Young)
    cpdef object settle(self)
    @cython.locals(young=Young)
    cpdef Young of(self, QueueRow row)
    @cython.locals(young=Young)
    cpdef bint has_old(self, QueueRow row) except -1
    cpdef object released(self, QueueRow row)
    cpdef object inbound(self, QueueRow row)
