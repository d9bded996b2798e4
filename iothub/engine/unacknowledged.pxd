cimport cython

from iothub.engine.message cimport Message

cdef int _SLOTS


@cython.final
cdef class Unacknowledged:
    cdef readonly Py_ssize_t count
    cdef long long _last
    cdef Py_ssize_t _size
    cdef list _messages, _groups

    @cython.locals(slot=Py_ssize_t)
    cpdef object keep(self, long long position, long long base, Message message, object group)
    cpdef object group_of(self, long long position)
    @cython.locals(slot=Py_ssize_t, message=Message)
    cpdef Message remove(self, long long position)
    @cython.locals(position="long long", slot=Py_ssize_t, message=Message, kept=list)
    cpdef list in_order(self)
    @cython.locals(messages=list, groups=list, size=Py_ssize_t, position="long long", slot=Py_ssize_t)
    cdef object _grow(self)
