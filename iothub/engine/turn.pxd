cimport cython

from iothub.engine.counters cimport Counters
from iothub.engine.outbox cimport PublishStore
from iothub.engine.state cimport Connection, Session, TenantPlane


@cython.final
cdef class Turn:
    cdef public object clock, store, limits, observer, may_acknowledge, elsewhere
    cdef public PublishStore queues
    cdef public Counters counters
    cdef public bint is_open, is_disk_short
    cdef public double now, wall, held_at, disk_short_at
    cdef public list dirty, closings, waiting, unblocked, starved, watched, lagging, slicing, routed, answered
    cdef public dict before_sinks
    cdef public long long buffered_bytes, unstored_messages, unstored_bytes, reliefs
    cdef public long long most_buffered_bytes, most_unstored_messages, most_unstored_bytes
    cdef public int most_unstored_per_connection, ack_batch
    cdef public Py_ssize_t out_soft_bytes, out_hard_bytes, grants, reserve_ahead

    cpdef object begin(self)
    cpdef object read_clock(self)
    cpdef double wall_now(self) except? -1.0
    @cython.locals(is_congested=bint)
    cpdef object touch(self, Connection connection)
    cpdef object close(self, Connection connection, object reason, bytes final_packet=*)
    cpdef object drop(self, TenantPlane tenant, object session, object reason, long long count)
    cpdef object wait(self, Session session)
    cpdef object hold(self, TenantPlane tenant, Py_ssize_t size)
    cpdef object account(self, Connection connection)
    @cython.locals(watched=list, connection=Connection)
    cpdef object count_buffers(self)
    cpdef object hold_connection(self, Connection connection, Py_ssize_t size)
    @cython.locals(tenant=TenantPlane)
    cpdef object keep(self, Connection connection, Py_ssize_t size)
    @cython.locals(held="long long", bound="long long")
    cpdef int overload_level(self) except -1
    cpdef bint is_held(self, TenantPlane tenant) except -1
    cpdef bint is_store_full(self) except -1
    cpdef object note_disk(self, bint is_short)
    cpdef bint is_store_roomy(self) except -1
