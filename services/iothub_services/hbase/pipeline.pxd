cimport cython


@cython.final
cdef class PendingCall:
    cdef public object call, receiver, index
    cdef public double sent_at

    cpdef object succeed(self, bytes frame)


cdef class Pipeline:
    cdef public Py_ssize_t frame_bytes, in_flight_bytes
    cdef public object broken
    cdef public bint is_too_large
    cdef public object count
    cdef object _before
    cdef object _sent
    cdef bytearray _arrived
    cdef Py_ssize_t _needed

    cpdef tuple encode_call(self, PendingCall pending)
    @cython.locals(answered=list, at=Py_ssize_t, size=Py_ssize_t, start=Py_ssize_t, frame=bytes)
    cpdef list receive(self, bytes octets)
    @cython.locals(here=Py_ssize_t, size=Py_ssize_t)
    cdef Py_ssize_t _frame_size(self, Py_ssize_t at) except -2
    @cython.locals(size=Py_ssize_t, body_at=Py_ssize_t, pending=PendingCall, head=bytes)
    cdef PendingCall _match(self, bytes frame)
