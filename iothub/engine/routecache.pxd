cimport cython


cdef class Entry:
    cdef readonly Py_ssize_t size


cdef class RouteCache:
    cdef readonly Py_ssize_t half_entries, half_bytes, young_bytes, old_bytes
    cdef readonly dict young, old

    @cython.locals(entry=Entry, size=Py_ssize_t)
    cpdef object promote(self, bytes topic)
    @cython.locals(size=Py_ssize_t)
    cpdef void put(self, bytes topic, Entry entry) except *
    @cython.locals(entry=Entry)
    cpdef void forget(self, bytes topic) except *
    cpdef void clear(self) except *
