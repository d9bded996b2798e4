cimport cython

from iothub.engine.outbox cimport QueueTarget, StoredPublish
from iothub_services.queues.journal.encoding cimport GroupBuffer
from iothub_services.queues.operations cimport AppendOperation
from iothub_services.queues.encoder cimport write_single
from iothub_services.queues.sqlite.append cimport Appending, full
from iothub_services.queues.sqlite.row_cache cimport QueueRow, QueueRowCache, Tenant


@cython.final
@cython.no_gc
@cython.freelist(256)
cdef class Body:
    cdef public bytes data, message_id
    cdef public object expires_at_ms
    cdef public Py_ssize_t references
    cdef public object stored_id


@cython.locals(body=Body)
cdef Body _new_body(bytes message_id, bytes data, object expires_at_ms)


@cython.final
cdef class Young:
    cdef public object references, released, inbound
    cdef public dict ids
    cdef public bint is_waiting
    cdef public long long visible, first, last


@cython.final
cdef class Table:
    cdef object _connection, _move_out
    cdef QueueRowCache _rows
    cdef Appending _appending
    cdef public dict young
    cdef public Py_ssize_t count
    cdef public set tenants
    cdef list _waiting, _deadlines, _positions, _made, _dropped, _hit
    cdef GroupBuffer _group
    cdef Body _body

    cpdef list append(self, list batch, GroupBuffer group)
    cdef object _append(self, object item, GroupBuffer group)
    @cython.locals(operation=AppendOperation, answers=list)
    cpdef list append_operations(self, list batch, GroupBuffer group)
    @cython.locals(publish=StoredPublish, target=QueueTarget, expires_at=double, positions=tuple)
    cdef object _append_operation(self, AppendOperation operation, GroupBuffer group)
    @cython.locals(row=QueueRow, body=Body, data=bytes, message_id=bytes, position=cython.longlong)
    cdef tuple _append_single(self, AppendOperation operation, QueueTarget target, object expires_at_ms, GroupBuffer group)
    cdef object _begin(self, GroupBuffer group, bytes message_id, bytes data, object expires_at_ms)
    @cython.locals(body=Body, made=list, group=GroupBuffer)
    cdef tuple _end(self, object inbound)
    @cython.locals(row=QueueRow)
    cdef object _record_inbound(self, object inbound)
    @cython.locals(row=QueueRow, body=Body, size=Py_ssize_t, position=cython.longlong, before=Py_ssize_t)
    cdef object _deliver(self, long long queue_id, int qos, int flags, tuple subscription_ids)
    @cython.locals(young=Young)
    cdef object _known(self, QueueRow row, object message_id)
    @cython.locals(young=Young, reference=tuple)
    cpdef tuple take(self, QueueRow row, long long position, int qos, int flags, tuple subscription_ids, Body body)
    @cython.locals(young=Young, body=Body, messages=Py_ssize_t, size=Py_ssize_t, qos0=Py_ssize_t, reference=tuple, qos=int)
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
