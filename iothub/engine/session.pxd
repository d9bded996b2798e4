# An idle session is one of these: fields in the order of their size, no wider than their values.

cimport cython

from iothub.engine.message cimport Delivery, Message
from iothub.engine.tenant cimport TenantPlane
from iothub.engine.window cimport Window

cdef extern from *:
    ctypedef bint flag "_Bool"  # a truth in one byte: `bint` is an int, and these are many


@cython.final
cdef class Session:
    cdef public TenantPlane tenant
    cdef public object client_id, device, connection, policy, control, subscriptions, meters
    cdef public dict inbound, shared, publish_grants, receive_grants
    cdef public Window window
    cdef public list backlog
    cdef public set replay_topics
    cdef public long long queue_id, epoch, announced, loaded
    cdef public Py_ssize_t backlog_bytes
    cdef public int backlog_start, backlog_qos0
    cdef public unsigned short receive_maximum, stale_pages
    cdef public unsigned char passed_meters
    cdef public flag is_persistent, is_discarded, publishes_everything, receives_everything
    cdef public flag is_behind, is_reading, is_waiting, is_lagging, is_sink

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
