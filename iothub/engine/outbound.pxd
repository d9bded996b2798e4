cimport cython

from iothub.engine.connection cimport Connection
from iothub.engine.counters cimport Counters
from iothub.engine.encode cimport append_ack, assemble, identifier_at, own_properties, shared_frame
from iothub.engine.message cimport Delivery, Message
from iothub.engine.session cimport Session
from iothub.engine.tenant cimport TenantPlane
from iothub.engine.turn cimport Turn
from iothub.engine.window cimport Window


@cython.final
cdef class Outbound:
    cdef public Turn turn

    @cython.locals(connection=Connection, window=Window)
    cpdef bint deliver(self, Session session, Message message, int qos, bint retain, tuple identifiers, object group) except -1
    @cython.locals(turn=Turn, waiting=Py_ssize_t)
    cdef bint _deliver_qos0(self, Session session, Connection connection, Message message, bint retain, tuple identifiers) except -1
    @cython.locals(tenant=TenantPlane, turn=Turn)
    cdef bint _hold(self, Session session, Delivery delivery) except -1
    @cython.locals(connection=Connection, window=Window, turn=Turn, delivery=Delivery)
    cpdef object pump(self, Session session)
    @cython.locals(turn=Turn, position="long long", message=Message, may_have_been_sent=bint)
    cdef bint _advance(self, Session session, Connection connection, Window window, Delivery delivery) except -1
    cdef object _skip(self, Window window)
    @cython.locals(step="long long", upto="long long")
    cdef object _reserve(self, Session session, Window window, long long position)
    @cython.locals(
        tenant=TenantPlane, turn=Turn, is_v5=bint, topic_length=Py_ssize_t, expiry="long long", left=double, alias=int,
        topic=bytes, properties=bytes, frame=bytes, size=Py_ssize_t, out=bytearray, start=Py_ssize_t, header=int, window=Window,
        packet_id=int, at=Py_ssize_t,
    )
    cdef bint _emit(
        self, Session session, Connection connection, Message message, int qos, bint retain, tuple identifiers,
        bint may_have_been_sent,
    ) except -1
    cdef bint _refuse(self, Session session, int qos, object reason) except -1
    @cython.locals(counters=Counters, own=Counters)
    cdef object _count(self, Session session, int qos, Py_ssize_t size)
    @cython.locals(aliases=dict, alias=int)
    cdef int _alias(self, Connection connection, bytes topic) except? -1
    @cython.locals(tenant=TenantPlane, now=double, size=Py_ssize_t, passed=int, bit=int)
    cdef bint _has_allowance(self, Session session, Message message) except -1
    @cython.locals(size=int)
    cpdef object send_ack(self, Connection connection, int header, int packet_id, int code)
    cpdef object send(self, Connection connection, bytes packet)
    @cython.locals(turn=Turn, counters=Counters, kind=int)
    cdef object _count_control(self, Connection connection, int header, Py_ssize_t size)
    cpdef object notify(self, Session session, Message message, long long position, int qos, bint retain, tuple identifiers)
    cpdef object want_page(self, Session session)
    @cython.locals(before="long long")
    cpdef object page(self, Session session, list records, long long upto, bint is_short)
    cdef object _note_head(self, Session session, Window window)
    @cython.locals(window=Window)
    cpdef object flush_head(self, Session session)
    @cython.locals(connection=Connection, window=Window, position="long long")
    cpdef object start(self, Session session)
    @cython.locals(window=Window, position="long long", state=int)
    cpdef bint puback(self, Session session, int packet_id) except -1
    @cython.locals(window=Window, position="long long", state=int)
    cpdef bint pubrec(self, Session session, Connection connection, int packet_id, int code) except -1
    @cython.locals(connection=Connection, window=Window)
    cpdef object released(self, Session session, long long position)
    @cython.locals(window=Window, position="long long", state=int)
    cpdef bint pubcomp(self, Session session, int packet_id) except -1
