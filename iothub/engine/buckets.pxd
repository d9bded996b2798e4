cimport cython

cdef double _BURST_SECONDS, _LONGEST_RATE_SECONDS, _TOLERANCE
cdef long long _SLOTS


cdef class Window:
    cdef readonly long long limit
    cdef readonly double seconds


@cython.final
cdef class Bucket(Window):
    cdef readonly double rate, burst, capacity, tokens
    cdef double filled_at

    @cython.locals(missing=double)
    cdef double wait(self, long long units, double now) except -1.0
    cdef int spend(self, long long units) except -1
    cdef double spent(self) except? -1.0


@cython.final
cdef class Budget(Window):
    cdef double slot_seconds
    cdef long long slot, total, debt
    cdef list slots

    @cython.locals(missing="long long")
    cdef double wait(self, long long units, double now) except -1.0
    @cython.locals(room="long long", taken="long long")
    cdef int spend(self, long long units) except -1
    @cython.locals(steps="long long", step="long long", place="long long", debt="long long")
    cdef int _advance(self, long long slot) except -1
    @cython.locals(age="long long")
    cdef double _gone_at(self, long long units) except -1.0


@cython.final
cdef class Meter:
    cdef readonly list buckets, budgets

    cpdef double take(self, long long units, double now) except -1.0
    @cython.locals(longest=double, bucket=Bucket, budget=Budget)
    cpdef double wait(self, long long units, double now) except -1.0
    @cython.locals(bucket=Bucket, budget=Budget)
    cpdef void spend(self, long long units) except *
    @cython.locals(bucket=Bucket, budget=Budget, budgets=dict, spent=double)
    cpdef void set_windows(self, object windows, double now) except *


cdef bint _is_rate(double seconds) except -1
cdef Budget _budget(long long limit, double seconds, double now, Budget before)
