cimport cython

cdef double _BURST_SECONDS, _LONGEST_RATE_SECONDS, _TOLERANCE
cdef long long _SLOTS


cdef class Window:
    cdef public long long limit
    cdef readonly double seconds

    cdef double wait(self, long long units, double now) except -1.0
    cdef int spend(self, long long units) except -1
    cdef double spent(self) except? -1.0


@cython.final
cdef class Bucket(Window):
    cdef readonly double rate, burst, capacity, tokens
    cdef double filled_at


@cython.final
cdef class Budget(Window):
    cdef double slot_seconds
    cdef long long slot, total, debt
    cdef list slots

    @cython.locals(steps="long long", step="long long", place="long long", debt="long long")
    cdef int _advance(self, long long slot) except -1
    @cython.locals(age="long long")
    cdef double _gone_at(self, long long units) except -1.0


@cython.final
cdef class Meter:
    cdef readonly list windows

    cpdef double take(self, long long units, double now) except -1.0
    @cython.locals(longest=double, window=Window)
    cpdef double wait(self, long long units, double now) except -1.0
    @cython.locals(window=Window)
    cpdef void spend(self, long long units) except *
    @cython.locals(window=Window, budget=Window, changed=list, spent=double)
    cpdef void set_windows(self, object windows, double now) except *
