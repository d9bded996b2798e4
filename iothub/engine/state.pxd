# An idle client is one Session and one Connection: fields in the order of their size, no wider than their values.

cimport cython

from iothub.engine.counters cimport Counters
from iothub.engine.message cimport Delivery
from iothub.engine.sessions cimport Sessions
from iothub.engine.router cimport Router
from iothub.engine.unacknowledged cimport Unacknowledged
from iothub.engine.window cimport Window

cdef extern from *:
    ctypedef bint flag "_Bool"  # a truth in one byte: `bint` is an int, and these are many

cdef class Connection


@cython.final
cdef class TenantPlane:
    cdef public long long tenant_id, buffered_bytes, connections, sliced
    cdef public list slices
    cdef public object name
    cdef object _limits
    cdef public Py_ssize_t fanout, fanout_bytes, most_backlog_messages, most_backlog_bytes
    cdef public long long most_buffered_bytes
    cdef public int user_properties, sinks
    cdef public flag is_held
    cdef public Router router
    cdef public Counters counters
    cdef public Sessions sessions
    cdef public object inbound_messages, inbound_bytes, outbound_messages, outbound_bytes
    cdef public object day_messages, day_bytes, persistent_fanout, sink_messages, sink_bytes
    cdef public object may_retain, publish_hook, deliver_hook, interest, routing, changing, control, share


@cython.final
cdef class Place:
    cdef public long long logged_epoch, since_ms, claimed
    cdef public int holder
    cdef public flag is_online, is_counted


@cython.final
cdef class Session:
    cdef public TenantPlane tenant
    cdef public Connection connection
    cdef public object client_id, device, policy, control, meters
    cdef object _subscriptions  # a Subscription or a dict
    cdef public dict inbound, publish_grants, receive_grants
    cdef public Unacknowledged shared
    cdef public Window window
    cdef public list backlog
    cdef public long long queue_id, epoch, announced, loaded, connected_at_ms
    cdef public Py_ssize_t backlog_bytes
    cdef public int backlog_start, backlog_qos0
    cdef public unsigned short receive_maximum, stale_pages
    cdef public unsigned char passed_meters
    cdef public flag is_persistent, is_discarded, publishes_everything, receives_everything
    cdef public flag is_behind, is_reading, is_waiting, is_lagging, is_sink, is_peer

    cpdef bint is_online_elsewhere(self) except -1
    @cython.locals(grants=dict)
    cpdef bint may_publish(self, bytes topic, Py_ssize_t bound) except -1
    @cython.locals(grants=dict)
    cpdef bint may_receive(self, bytes topic, Py_ssize_t bound) except -1
    cpdef Window open_window(self)
    cpdef Py_ssize_t backlog_length(self) except -1
    cpdef object push(self, Delivery delivery)
    cpdef Delivery peek(self)
    @cython.locals(backlog=list, start=Py_ssize_t, size=Py_ssize_t, delivery=Delivery)
    cpdef Py_ssize_t pop(self) except -1


@cython.final
@cython.freelist(256)
cdef class AckSlot:
    cdef public int packet_id, qos, code
    cdef public bint is_held


@cython.locals(slot=AckSlot)
cpdef AckSlot ack_slot(int packet_id, int qos)


@cython.final
@cython.no_gc  # its socket, its timer and its session forget it when it ends, so that no circle goes through it
cdef class Connection:
    cdef public object plane, transport, listener, certificate_subject, control, close_reason, timer
    cdef str _peer_text
    cdef public bytearray out, partial
    cdef public Session session
    cdef public TenantPlane tenant
    cdef public bytes final_packet
    cdef public list pending
    cdef public dict aliases_in, aliases_out
    cdef unsigned long long _peer_packed
    cdef public double last_seen, blocked_since, wake_at
    cdef public unsigned int needed, packet_bytes, maximum_packet_size, next_alias, accounted, kept_bytes
    cdef public int inbound_open, unstored
    cdef public unsigned short keep_alive_s, inbound_maximum, topic_aliases, topic_alias_maximum
    cdef public unsigned char version, taken_meters
    cdef public flag is_waiting, is_blocked, is_unanswered, is_paused, is_closing, is_lost, is_closed
    cdef public flag is_dirty, is_congested, is_watched, has_connect, is_held_up

    cpdef object rest(self)
    cpdef bint is_stalled(self) except -1
