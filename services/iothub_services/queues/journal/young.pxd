cimport cython
from cpython.array cimport array

from iothub.engine.outbox cimport QueueTarget, StoredPublish
from iothub_services.queues.journal.counted cimport add_words, long_at, new_words, short_at, word_at  # in the place of the plain ones
from iothub_services.queues.journal.encoding cimport GroupBuffer
from iothub_services.queues.journal.reading cimport Wanted
from iothub_services.queues.operations cimport AppendOperation
from iothub_services.queues.encoder cimport write_message, write_single
from iothub_services.queues.sqlite.append cimport Appending, full
from iothub_services.queues.sqlite.row_cache cimport QueueRow, QueueRowCache, Tenant


cdef unsigned long long _LOWER
cdef Py_ssize_t _APPEND_SIZE, _DELIVERY_SIZE, _IDENTIFIER_SIZE, _SPARE_WORDS, _SPARE_DEADLINES


@cython.final
cdef class Young:
    cdef public array words
    cdef public object released, inbound
    cdef public dict ids
    cdef public bint is_waiting, stored
    cdef public long long visible, first, last, deadline
    cdef public Py_ssize_t begin


@cython.final
cdef class Table:
    cdef object _connection, _move_out
    cdef QueueRowCache _rows
    cdef Appending _appending
    cdef public dict young, marked
    cdef dict _living
    cdef long long _counted, _count_of_it
    cdef public Py_ssize_t count
    cdef public long long segment
    cdef public set tenants
    cdef public list deadlines
    cdef list _waiting, _positions, _made, _dropped, _hit
    cdef GroupBuffer _group
    cdef bytes _message_id, _data
    cdef object _expires_at_ms

    cpdef list append(self, list batch, GroupBuffer group)
    cdef object _append(self, object item, GroupBuffer group)
    @cython.locals(operation=AppendOperation, answers=list)
    cpdef list append_operations(self, list batch, GroupBuffer group)
    @cython.locals(publish=StoredPublish, target=QueueTarget, expires_at=double, positions=tuple)
    cdef object _append_operation(self, AppendOperation operation, GroupBuffer group)
    @cython.locals(row=QueueRow, data=bytes, message_id=bytes, position=cython.longlong, qos=cython.ulonglong, flags=cython.ulonglong,
                   at=cython.ulonglong, body=cython.ulonglong, size=cython.ulonglong, count=cython.ulonglong, segment=cython.ulonglong,
                   delivery=cython.ulonglong)
    cdef tuple _append_single(self, AppendOperation operation, QueueTarget target, object expires_at_ms, GroupBuffer group)
    cdef object _begin(self, GroupBuffer group, bytes message_id, bytes data, object expires_at_ms)
    @cython.locals(made=list, group=GroupBuffer, at=cython.ulonglong, body=cython.ulonglong, delivery=cython.ulonglong, count=cython.ulonglong,
                   position=cython.longlong, qos=cython.ulonglong, flags=cython.ulonglong, row=QueueRow, data=bytes, subscription_ids=tuple,
                   segment=cython.ulonglong, size=cython.ulonglong)
    cdef tuple _end(self, object inbound)
    @cython.locals(row=QueueRow)
    cdef object _record_inbound(self, object inbound)
    @cython.locals(row=QueueRow, size=Py_ssize_t, position=cython.longlong, before=Py_ssize_t)
    cdef object _deliver(self, long long queue_id, int qos, int flags, tuple subscription_ids)
    @cython.locals(young=Young)
    cdef object _admit(self, QueueRow row, long long position, int qos, Py_ssize_t size)
    @cython.locals(young=Young)
    cdef object _known(self, QueueRow row, object message_id)
    @cython.locals(young=Young, expires_at_ms=cython.ulonglong)
    cpdef object push(
        self, QueueRow row, long long position, unsigned long long kind, unsigned long long place, unsigned long long extent,
        unsigned long long delivery
    )
    cdef object _live(self, long long segment, long long messages)
    cpdef Py_ssize_t living(self, long long segment) except -1
    cdef object _watch(self, object deadline, object queue_id)
    @cython.locals(deliveries=bytes, row=QueueRow, young=Young, position=cython.longlong, kind=cython.ulonglong, body=cython.ulonglong, share=Py_ssize_t,
                   delivery=cython.ulonglong, size=cython.ulonglong, count=cython.ulonglong, missing=list)
    cpdef list take(self, unsigned long long segment, unsigned long long at, object record, bint is_done)
    @cython.locals(young=Young)
    cpdef object acknowledge(self, QueueRow row, long long upto)
    @cython.locals(young=Young, messages=cython.longlong)
    cpdef Py_ssize_t remove_upto(self, QueueRow row, long long upto) except -1
    @cython.locals(size=cython.longlong, qos0=cython.longlong)
    cdef object _remove(self, QueueRow row, long long messages)
    @cython.locals(young=Young, words=array, index=Py_ssize_t, start=Py_ssize_t, end=Py_ssize_t, size=cython.longlong, qos0=cython.longlong,
                   place=cython.ulonglong, extent=cython.ulonglong, kind=cython.ulonglong, segment=cython.ulonglong, since=cython.ulonglong,
                   run=cython.longlong)
    cdef object _take_off(self, QueueRow row, long long messages)
    @cython.locals(tenant=Tenant)
    cdef object _count(self, QueueRow row, Py_ssize_t messages, Py_ssize_t size_bytes, Py_ssize_t qos0)
    @cython.locals(row=QueueRow, young=Young)
    cpdef object settle(self)
    @cython.locals(young=Young)
    cpdef Young of(self, QueueRow row)
    @cython.locals(found=list, young=Young, position="long long", last="long long", each=Wanted)
    cpdef list wanted(self, QueueRow row, long long after, long long count, long long size_bytes)
    cpdef bint has_old(self, QueueRow row) except -1
    @cython.locals(young=Young, words=array, index=Py_ssize_t, place=cython.ulonglong, extent=cython.ulonglong, kind=cython.ulonglong, delivery=cython.ulonglong,
                   at=cython.ulonglong, wanted=Wanted)
    cdef Wanted _wanted_at(self, QueueRow row, long long position)
    @cython.locals(living=list, share=Py_ssize_t)
    cpdef list take_living(self, bytes deliveries, unsigned long long place)
    @cython.locals(row=QueueRow, young=Young)
    cdef bint _take_first(self, object queue_id, long long position, unsigned long long place) except -1
    cpdef object released(self, QueueRow row)
    cpdef object inbound(self, QueueRow row)
