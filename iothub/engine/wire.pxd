cimport cython


cpdef bint is_utf8(bytes data) except -1


@cython.final
cdef class Wire:
    cdef public Py_ssize_t body, at, end, value
    cdef public bytes topic, payload, properties
    cdef public int packet_id, alias, code
    cdef public long long expiry
    cdef public bint is_plain, is_repeat

    @cython.locals(index=Py_ssize_t, shift=int, length=Py_ssize_t, byte=Py_ssize_t)
    cpdef Py_ssize_t measure(self, bytes data, Py_ssize_t start, Py_ssize_t end, bint is_v5) except -2
    @cython.locals(code=int)
    cpdef int read_publish(self, bytes data, Py_ssize_t body, Py_ssize_t end, int header, bint is_v5, int user_properties) except -1
    @cython.locals(qos=int, at=Py_ssize_t, topic_end=Py_ssize_t, code=int, view="const unsigned char*")
    cdef int _read_publish(self, bytes data, Py_ssize_t body, Py_ssize_t end, int header, bint is_v5, int user_properties) except -1
    @cython.locals(kind=int, length=Py_ssize_t)
    cpdef int read_ack(self, bytes data, Py_ssize_t body, Py_ssize_t end, int header, bint is_v5, int user_properties) except -1

    @cython.locals(length=Py_ssize_t, shift=int, byte=Py_ssize_t)
    cdef int _read_length(self, bytes data, Py_ssize_t at, Py_ssize_t end) except -1
    @cython.locals(
        code=int, first=Py_ssize_t, start=Py_ssize_t, identifier=int, seen="unsigned long long", one="unsigned long long",
        forwarded=bytes,
    )
    cdef int _read_publish_properties(self, bytes data, Py_ssize_t at, Py_ssize_t end, int user_properties) except -1
    @cython.locals(code=int, identifier=int, has_reason=bint, whole=Py_ssize_t)
    cdef int _read_ack_properties(self, bytes data, Py_ssize_t at, Py_ssize_t end, int user_properties) except -1
    cdef Py_ssize_t _binary(self, bytes data, Py_ssize_t at, Py_ssize_t end) except -2
    @cython.locals(behind=Py_ssize_t)
    cdef Py_ssize_t _text(self, bytes data, Py_ssize_t at, Py_ssize_t end) except -2
