cimport cython

from iothub.engine.message cimport Delivery, Message
from iothub.engine.tenant cimport TenantPlane
from iothub.engine.window cimport Window


@cython.final
cdef class Session:
    cdef public TenantPlane tenant
    cdef public object client_id, device, connection, policy, control
    cdef public bint is_persistent, is_discarded, publishes_everything, receives_everything
    cdef public bint is_behind, is_reading, is_waiting, is_lagging
    cdef public long long queue_id, epoch, announced, loaded
    cdef public dict subscriptions, inbound, shared, publish_grants, receive_grants
    cdef public object device_inbound_messages, device_inbound_bytes
    cdef public object device_outbound_messages, device_outbound_bytes
    cdef public Window window
    cdef public list backlog
    cdef public Py_ssize_t backlog_start, backlog_bytes
    cdef public int backlog_qos0, stale_pages, passed_meters
    cdef public set replay_topics
    cdef object __weakref__

    @cython.locals(grants=dict)
    cpdef bint may_publish(self, bytes topic, Py_ssize_t bound) except -1
    @cython.locals(grants=dict)
    cpdef bint may_receive(self, bytes topic, Py_ssize_t bound) except -1
    cpdef Py_ssize_t backlog_length(self) except -1
    cpdef object push(self, Delivery delivery)
    cpdef Delivery peek(self)
    @cython.locals(backlog=list, start=Py_ssize_t, size=Py_ssize_t, delivery=Delivery)
    cpdef Py_ssize_t pop(self) except -1
