cimport cython

from iothub.engine.message cimport Message

cdef int _SLOTS, _FEW


@cython.final
cdef class Unacknowledged:
    cdef readonly Py_ssize_t count, size
    cdef long long _first, _last
    cdef Py_ssize_t _in_ring
    cdef list _messages, _groups
    cdef dict _old

    @cython.locals(slot=Py_ssize_t)
    cpdef object keep(self, long long position, Message message, object group)
    cpdef object group_of(self, long long position)
    @cython.locals(slot=Py_ssize_t, message=Message)
    cpdef Message remove(self, long long position)
    @cython.locals(position="long long", slot=Py_ssize_t, message=Message, kept=list)
    cpdef list in_order(self)
    @cython.locals(position="long long", half=Py_ssize_t, kept=Py_ssize_t)
    cdef object _make_room(self)
    @cython.locals(position="long long", slot=Py_ssize_t, message=Message)
    cdef object _leave(self, Py_ssize_t half)
    @cython.locals(messages=list, groups=list, size=Py_ssize_t, position="long long", slot=Py_ssize_t)
    cdef object _grow(self)
