cimport cython

from iothub_services.queues.redis.index cimport KnownQueue
from iothub_services.queues.redis.names cimport Names
from iothub_services.queues.remote.shares cimport Item, Operation, Share

cdef bytes _END
cdef int _SPACE, _RUN, _ZERO, _NINE


@cython.final
@cython.no_gc
cdef class AppendCall(Operation):
    cdef public long long went_back_to
    cdef public object call

    @cython.locals(known=KnownQueue, first="long long", messages="long long", size_bytes="long long")
    cpdef object on_answer(self, bytes answer)
    @cython.locals(known=KnownQueue, share=Share)
    cpdef object _on_words(self, list words)
    @cython.locals(share=Share)
    cpdef object _take_results(self, object words)


@cython.final
cdef class Encoder:
    cdef Names _names
    cdef bytes _writer, _start, _said, _head
    cdef long long _now_ms, _expires_at_ms
    cdef tuple _room
    cdef int _qos, _flags
    cdef Py_ssize_t _size

    @cython.locals(known=KnownQueue, items=list, shares=list, count=Py_ssize_t, at=Py_ssize_t, item=Item, parts=list)
    cpdef object call(self, AppendCall append, long long sequence, long long now_ms, tuple room)
    cdef bytes _head_of(self, Item item, Share share)


@cython.locals(word=int, value="long long", messages="long long", size_bytes="long long", octet=int, is_number=bint)
cpdef tuple run_of(bytes answer)

@cython.locals(digits=str)
cpdef bytes packed_number(long long number)

cdef bytes _start(Py_ssize_t records)

cdef bytes _head(Item item, Share share)
