cimport cython


@cython.final
cdef class Reader:
    cdef bytes _frame
    cdef Py_ssize_t _at

    @cython.locals(kind=int, frame=bytes, at=Py_ssize_t)
    cpdef tuple field(self)
    @cython.locals(at=Py_ssize_t)
    cpdef object sequence(self)
    cpdef int byte(self) except -1
    @cython.locals(at=Py_ssize_t)
    cpdef object i32(self)
    cpdef object i64(self)
    @cython.locals(size=Py_ssize_t, start=Py_ssize_t)
    cpdef bytes text(self)
    @cython.locals(found=int, count=Py_ssize_t)
    cpdef Py_ssize_t values(self, int kind) except -1
    @cython.locals(count=Py_ssize_t)
    cpdef Py_ssize_t pairs(self, int key, int value) except -1
    cpdef object skip(self, int kind, int nesting=*)
    cdef object _skip_struct(self, int nesting)
    cdef object _skip_many(self, tuple kinds, int nesting)
    @cython.locals(count=Py_ssize_t)
    cdef Py_ssize_t _count(self, Py_ssize_t least_bytes) except -1
    @cython.locals(start=Py_ssize_t)
    cdef Py_ssize_t _take(self, Py_ssize_t size) except -1
