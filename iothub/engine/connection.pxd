cimport cython

from iothub.engine.session cimport Session
from iothub.engine.tenant cimport TenantPlane


@cython.final
cdef class Connection:
    cdef public object plane, transport, listener, peer, certificate_subject, control, close_reason, timer
    cdef public bytearray out, partial
    cdef public Session session
    cdef public TenantPlane tenant
    cdef public int version
    cdef public bytes farewell
    cdef public bint is_waiting, is_blocked, is_unanswered, is_paused, is_closing, is_lost, is_buried
    cdef public bint is_dirty, is_congested, is_watched, has_connect
    cdef public Py_ssize_t needed, accounted, packet_bytes, maximum_packet_size
    cdef public double last_seen, blocked_since, wake_at
    cdef public int taken_meters, keep_alive_s, inbound_maximum, inbound_open, unstored
    cdef public int topic_aliases, topic_alias_maximum, next_alias
    cdef public list pending
    cdef public dict aliases_in, aliases_out
    cdef object __weakref__

    cpdef bint is_stalled(self) except -1
