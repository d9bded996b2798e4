cimport cython

cdef object _HEADER
cdef Py_ssize_t _NUMBER_BYTES
cdef double _ACK_S, _NOT_DUE
cdef long long _ACK_FRAMES, _ACK_BYTES


cdef class NumberedFrames:
    cdef public object peer, flush
    cdef public long long applied, sent_bytes, received_bytes
    cdef public Py_ssize_t batch_bytes
    cdef public bint is_over
    cdef public object _clock, _apply, _on_behind, _wire
    cdef public frozenset _features
    cdef public object _overtook, _written, _waiting
    cdef public long long _frame_bytes, _link_bytes, _window_bytes
    cdef public long long _acknowledged, _kept_bytes, _last_number, _last_ack, _unanswered_bytes
    cdef public double _ack_due

    cpdef bint is_full(self) except -1
    cpdef bint is_half_full(self) except -1
    cpdef bint is_ack_due(self) except -1
    cdef long long _load(self) except -2
    cpdef object send(self, object frame_type, bytes body)
    cpdef object announce(self, object frame_type, bytes body)
    @cython.locals(size="long long", number="long long", data=bytes)
    cdef object _keep(self, object frame_type, bytes body)
    @cython.locals(data=bytes)
    cpdef object _write_waiting(self)
    cpdef object _write(self, bytes data)
    cpdef object _forget_acknowledged(self, long long number)
    @cython.locals(is_waited_for=bint)
    cpdef object apply_frame(self, object frame_type, long long number, bytes body)
    cpdef object _confirm(self)
    cpdef object _acknowledge(self)
