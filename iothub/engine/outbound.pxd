cimport cython

from iothub.engine.emission cimport Emission
from iothub.engine.message cimport Delivery, Message
from iothub.engine.router cimport Group
from iothub.engine.state cimport Connection, Session, TenantPlane
from iothub.engine.turn cimport Turn
from iothub.engine.unacknowledged cimport Unacknowledged
from iothub.engine.window cimport Window, packet_id_of

cdef int DROPS_QOS0


@cython.final
cdef class Outbound:
    cdef public Turn turn
    cdef public Emission emission

    @cython.locals(connection=Connection, window=Window)
    cpdef bint deliver(self, Session session, Message message, int qos, bint retain, tuple identifiers, object group) except -1
    @cython.locals(turn=Turn, waiting=Py_ssize_t)
    cdef bint _deliver_qos0(self, Session session, Connection connection, Message message, bint retain, tuple identifiers) except -1
    @cython.locals(waiting=Py_ssize_t, limit=Py_ssize_t)
    cdef bint _is_clogged(self, Connection connection) except -1
    @cython.locals(tenant=TenantPlane, turn=Turn)
    cpdef bint has_room(self, Session session, Message message) except -1
    @cython.locals(tenant=TenantPlane, turn=Turn)
    cdef bint _hold(self, Session session, Delivery delivery) except -1
    @cython.locals(tenant=TenantPlane, turn=Turn, shared=Unacknowledged)
    cdef object _remember(self, Session session, Window window, Message message, object group)
    @cython.locals(shared=Unacknowledged, message=Message)
    cpdef object acknowledged(self, Session session, long long position)
    @cython.locals(shared=Unacknowledged, message=Message)
    cpdef list take_shared(self, Session session)
    @cython.locals(connection=Connection, window=Window, turn=Turn, delivery=Delivery)
    cpdef object pump(self, Session session)
    @cython.locals(turn=Turn, position="long long", message=Message, may_have_been_sent=bint)
    cdef bint _advance(self, Session session, Connection connection, Window window, Delivery delivery) except -1
    cdef object _skip(self, Window window)
    @cython.locals(step="long long", upto="long long")
    cdef object _reserve(self, Session session, Window window, long long position)
    cpdef object notify(self, Session session, Message message, long long position, int qos, bint retain, tuple identifiers)
    @cython.locals(connection=Connection, window=Window, turn=Turn, may_have_been_sent=bint)
    cdef bint _send_at_once(
        self, Session session, Message message, long long position, int qos, bint retain, tuple identifiers
    ) except -1
    cpdef object want_page(self, Session session)
    @cython.locals(before="long long", delivery=Delivery)
    cpdef object page(self, Session session, list records, long long upto, bint is_short)
    cdef object _note_head(self, Session session, Window window)
    @cython.locals(window=Window)
    cpdef object flush_head(self, Session session)
    @cython.locals(connection=Connection, window=Window, position="long long")
    cpdef object start(self, Session session)
