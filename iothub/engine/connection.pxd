# An idle connection is one of these: fields in the order of their size, no wider than their values.

cimport cython

from iothub.engine.session cimport Session, flag
from iothub.engine.tenant cimport TenantPlane


@cython.final
cdef class Connection:
    cdef public object plane, transport, listener, certificate_subject, control, close_reason, timer
    cdef str _peer_text
    cdef public bytearray out, partial
    cdef public Session session
    cdef public TenantPlane tenant
    cdef public bytes farewell
    cdef public list pending
    cdef public dict aliases_in, aliases_out
    cdef unsigned long long _peer_packed
    cdef public double last_seen, blocked_since, wake_at
    cdef public unsigned int needed, packet_bytes, maximum_packet_size, next_alias, accounted, kept_bytes
    cdef public int inbound_open, unstored
    cdef public unsigned short keep_alive_s, inbound_maximum, topic_aliases, topic_alias_maximum
    cdef public unsigned char version, taken_meters
    cdef public flag is_waiting, is_blocked, is_unanswered, is_paused, is_closing, is_lost, is_buried
    cdef public flag is_dirty, is_congested, is_watched, has_connect, is_held_up

    cpdef object rest(self)
    cpdef bint is_stalled(self) except -1
