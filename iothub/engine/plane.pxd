cimport cython

from iothub.engine.answers cimport Answers
from iothub.engine.counters cimport Counters
from iothub.engine.distribute cimport Distribution
from iothub.engine.emission cimport Emission
from iothub.engine.inbound cimport Inbound
from iothub.engine.message cimport Message
from iothub.engine.outbound cimport Outbound
from iothub.engine.outbox cimport StoredPublish
from iothub.engine.publishing cimport Publishing
from iothub.engine.receipts cimport Receipts
from iothub.engine.state cimport Connection, Session, TenantPlane
from iothub.engine.storage cimport Storage
from iothub.engine.turn cimport Turn
from iothub.engine.window cimport Window

cdef int ACCEPTS_NOBODY, WATCH_BYTES


@cython.final
cdef class Plane:
    cdef public object limits, control, control_queue, wheel, replays, redistribution, starving, call_soon
    cdef public bint is_called_soon
    cdef public Turn turn
    cdef public Counters counters
    cdef public Emission emission
    cdef public Outbound outbound
    cdef public Receipts receipts
    cdef public Answers answers
    cdef public Publishing publishing
    cdef public Distribution distribution
    cdef public Inbound inbound
    cdef public Storage storage
    cdef public Py_ssize_t connection_count
    cdef object __weakref__

    cpdef object feed(self, Connection connection, bytes data)
    cpdef list publish_arrived(self, TenantPlane tenant, list messages)
    cpdef bint is_routing(self) except -1
    cpdef Py_ssize_t unwritten(self) except -1
    @cython.locals(turn=Turn, connection=Connection, dirty=list)
    cpdef object end_batch(self)
    @cython.locals(turn=Turn)
    cpdef object stored(self, StoredPublish publish, tuple positions, bint is_duplicate=*)
    cdef object _settle(self)
    cdef object _go_on(self, Connection connection)
    cdef object _unblock(self, Connection connection)
    cdef object _due(self, Connection connection)
    cdef object _close(self, Connection connection)
