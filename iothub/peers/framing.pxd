cimport cython

cdef object _HEADER, _NUMBER
cdef Py_ssize_t _HEADER_BYTES, _NUMBER_BYTES
cdef int _RELIABLE_FROM


@cython.final
cdef class FrameDecoder:
    cdef public Py_ssize_t frame_bytes
    cdef public object frame_type
    cdef public bint is_reliable
    cdef public long long number
    cdef public bytes body
    cdef readonly bytearray _buffer
    cdef bytes _chunk
    cdef Py_ssize_t _at

    cpdef object add(self, bytes data)
    @cython.locals(
        chunk=bytes, buffer=bytearray, at=Py_ssize_t, is_buffered=bint, left=Py_ssize_t, type_number=int, size=Py_ssize_t, body_at=Py_ssize_t,
        end=Py_ssize_t,
    )
    cpdef bint cut(self) except -1
    cdef object _number_at(self, object source, Py_ssize_t at)
    cdef bint _keep(self) except -1
