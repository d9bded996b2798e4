cimport cython


@cython.final
cdef class Source:
    cdef public bint is_cut, may_skip
    cdef public Py_ssize_t waiting


cdef class Waiting:
    cdef public object op
    cdef public Py_ssize_t size_bytes
    cdef public Source source
    cdef public double until

    cpdef object take_answer(self, object answer)


cdef class _Calling(Waiting):
    cdef public object callback

    cpdef object take_answer(self, object answer)


@cython.final
cdef class OperationQueue:
    cdef public list pending
    cdef public object wakeup
    cdef public bint is_asleep, is_closing
    cdef public Py_ssize_t submitted, submitted_bytes, answered, answered_bytes

    cpdef bint is_empty(self) except -1
    cpdef object put(self, Waiting operation, double until)
    @cython.locals(waiting=Waiting, pending=list, last=Py_ssize_t, end=Py_ssize_t, size=Py_ssize_t)
    cpdef list take(self, Py_ssize_t count, Py_ssize_t size_bytes)
    @cython.locals(waiting=Waiting, size=Py_ssize_t)
    cpdef object count_answered(self, list batch)


@cython.final
cdef class _Answered:
    cdef list batch, answers
    cdef object call_in_reactor
    cdef Py_ssize_t at

    @cython.locals(batch=list, answers=list, count=Py_ssize_t, at=Py_ssize_t, waiting=Waiting)
    cpdef object hand_out(self)


@cython.locals(waiting=Waiting)
cdef list _operations(list batch)


@cython.locals(waiting=Waiting, source=Source)
cdef list _of_cut(list batch)
