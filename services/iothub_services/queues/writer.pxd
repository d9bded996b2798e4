cimport cython

from iothub.engine.outbox cimport PublishStore, QueueTarget, StoredPublish
from iothub.engine.plane cimport Plane as MessagePlane
from iothub_services.group_thread cimport OperationQueue, Source
from iothub_services.queues.conversions cimport retained_write
from iothub_services.queues.encoder cimport body_of  # in the place of the plain one
from iothub_services.queues.operations cimport AppendOperation
from iothub_services.queues.sources cimport Sources


cdef class QueueWriter


cdef class _Pending(AppendOperation):
    cdef public QueueWriter writer
    cdef public _Pending behind
    cdef public object answer, error
    cdef public int awaited
    cdef public bint is_written

    cpdef object take_answer(self, object answer)


@cython.locals(pending=_Pending)
cdef _Pending _pending(QueueWriter writer, StoredPublish publish, bytes body, Source source)


cdef class QueueWriter(PublishStore):
    cdef _Pending _first, _last
    cdef MessagePlane _message_plane
    cdef object _queues, _retained, _on_alarm, _on_damage, _listeners, _plane, _call_in_reactor, _clock
    cdef set _looked_into
    cdef public object _writes, _reads, _retains
    cdef public Sources _sources
    cdef OperationQueue _to_write
    cdef double _give_up_s
    cdef object _unread
    cdef public long long repeatable_deliveries

    @cython.locals(source=Source, pending=_Pending, body=bytes)
    cpdef object append(self, StoredPublish publish)
    @cython.locals(plane=MessagePlane)
    cdef double _now(self) except? -1.0
    cpdef object append_done(self, _Pending pending, object answer)
    cdef object _one_done(self, _Pending pending)
    @cython.locals(each=_Pending)
    cpdef object report_done(self)
    @cython.locals(publish=StoredPublish, positions=tuple)
    cdef object _report(self, _Pending pending)
