cimport cython

from iothub.engine.outbox cimport QueueTarget
from iothub_services.queues.operations cimport AppendOperation
from iothub_services.queues.remote.tenant cimport RemoteQueue


cdef int _GONE
cdef object _PROGRESS_NEW


@cython.final
@cython.no_gc  # no circle can go through it
@cython.freelist(256)
cdef class Share:
    cdef public object queue_id
    cdef public tuple subscription_ids, dropped, hits
    cdef public RemoteQueue known
    cdef public long long position
    cdef public int qos, flags


@cython.locals(share=Share)
cpdef Share share_of(QueueTarget target, RemoteQueue known)


@cython.final
@cython.no_gc
@cython.freelist(256)
cdef class Item:
    cdef public object message_id, unput, answer, progress
    cdef public bytes stored, body_id
    cdef public Py_ssize_t size
    cdef public long long expires_at_ms
    cdef public list shares
    cdef public bint is_settled_later

    cpdef object set(self, object message_id, long long expires_at_ms, bytes stored, Py_ssize_t size)
    @cython.locals(share=Share)
    cpdef bint is_waiting(self) except -1
    cpdef object answered(self)
    @cython.locals(share=Share, shares=list)
    cpdef object answer_of_operation(self)
    cpdef object refuse(self, object answer)


@cython.locals(item=Item, operation=AppendOperation)
cpdef Item item_of(object op)


@cython.no_gc
cdef class Operation:
    cdef public RemoteQueue known
    cdef public list items, shares
    cdef public Py_ssize_t size_bytes, stored_bytes, alive
    cdef public bint is_full, is_uncertain

    @cython.locals(stored=Py_ssize_t)
    cpdef object add_share(self, Item item, Share share, Py_ssize_t most, Py_ssize_t most_bytes)
    @cython.locals(share=Share)
    cpdef object take_run(self, long long first)
    @cython.locals(share=Share)
    cpdef object refuse_all(self, long long refused)


@cython.locals(share=Share)
cdef object _merged(list shares)
