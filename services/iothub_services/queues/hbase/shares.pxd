cimport cython

from iothub_services.queues.hbase.index cimport KnownQueue


@cython.final
@cython.no_gc  # no circle can go through it
cdef class Item:
    cdef public object message_id, expires_at_ms, unput, answer, progress
    cdef public bytes stored, body_id
    cdef public Py_ssize_t size
    cdef public list shares
    cdef public bint is_settled_later

    cpdef object answered(self)


@cython.final
@cython.no_gc
cdef class Share:
    cdef public object delivery
    cdef public KnownQueue known
    cdef public long long position
    cdef public tuple dropped, hits


@cython.final
cdef class Heads:
    cdef bytes _head
    cdef int _qos, _flags
    cdef Py_ssize_t _size
    cdef long long _expires_at_ms
    cdef bint _is_apart

    @cython.locals(qos=int, flags=int, is_apart=bint)
    cpdef bytes of(self, Item item, object delivery)


@cython.final
@cython.no_gc
cdef class Operation:
    cdef public KnownQueue known
    cdef public list items, shares
    cdef public Py_ssize_t size_bytes, stored_bytes, alive
    cdef public bint is_full, is_uncertain
    cdef public tuple step

    @cython.locals(stored=Py_ssize_t)
    cpdef object add_share(self, Item item, Share share, Py_ssize_t most_bytes)
    @cython.locals(item=Item, share=Share, records=list, is_settled_later=bint)
    cpdef object encode_call(self, object writer, object sequence, tuple room, Heads heads, tuple settled)
    @cython.locals(share=Share, shares=list, first="long long", messages="long long", size_bytes="long long")
    cpdef object on_answer(self, bytes octets)
    @cython.locals(share=Share, shares=list)
    cpdef object _on_result(self, object result)


@cython.locals(is_apart=bint, head=bytes)
cdef bytes _sized(object qos, object flags, object identifiers, object message_id, Item item)

@cython.locals(share=Share)
cdef object _merged(list shares)
