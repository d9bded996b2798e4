cimport cython

cdef double _TOLERANCE
cdef int _TICKS_PER_SECOND, _BITS, _LEVELS
cdef long long _SLOTS, _LAST_TICK


@cython.final
@cython.no_gc  # each connection has one: it forgets its item when it is due or cancelled, and until then the wheel has it anyway. No `cpdef`: 8 bytes
cdef class Timer:
    cdef readonly object item
    cdef readonly long long tick
    cdef list slot
    cdef Py_ssize_t index


@cython.final
cdef class Wheel:
    cdef readonly double origin
    cdef readonly long long tick
    cdef list levels

    @cython.locals(ticks=double, tick="long long", timer=Timer)
    cpdef Timer schedule(self, double deadline, object item)
    @cython.locals(slot=list, last=Timer)
    cpdef object cancel(self, Timer timer)
    @cython.locals(target="long long", due=list)
    cpdef list advance(self, double now)

    @cython.locals(differing="long long", level=int, slot=list)
    cdef int _insert(self, Timer timer) except -1
    @cython.locals(level=int, shift=int, place="long long", begins="long long", slots=list, slot=list)
    cdef bint _take_slot(self, long long target, list due) except -1
    @cython.locals(timer=Timer)
    cdef int _empty(self, list slot, int level, list due) except -1
