cimport cython

from iothub.engine.outbox cimport QueueTarget, StoredPublish
from iothub_services.queues.conversions cimport append_of, body_of, retained_write
from iothub_services.queues.sources cimport Sources


@cython.final
cdef class _Pending:
    cdef public StoredPublish publish
    cdef public object source, answer, error
    cdef public int awaited
    cdef public bint is_written


cdef class QueueWriter:
    cdef object _queues, _retained, _on_alarm, _on_damage, _listeners, _plane, _order, _call_in_reactor, _clock
    cdef set _looked_into
    cdef public object _writes, _reads, _retains
    cdef public Sources _sources
    cdef object _unread
    cdef public long long repeatable_deliveries

    @cython.locals(pending=_Pending, body=bytes)
    cpdef object append(self, StoredPublish publish)
    cpdef object _append_done(self, _Pending pending, object answer)
    @cython.locals(each=_Pending)
    cdef object _one_done(self, _Pending pending)
    @cython.locals(publish=StoredPublish)
    cdef object _report(self, _Pending pending)
