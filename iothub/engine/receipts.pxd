cimport cython

from iothub.engine.emission cimport Emission
from iothub.engine.outbound cimport Outbound
from iothub.engine.state cimport Connection, Session
from iothub.engine.turn cimport Turn
from iothub.engine.window cimport Window, packet_id_of

cdef int DONE, RELEASING, WAIT_PUBACK, WAIT_PUBCOMP, WAIT_PUBREC


@cython.final
cdef class Receipts:
    cdef public Turn turn
    cdef public Outbound outbound
    cdef public Emission emission

    @cython.locals(window=Window, position="long long", state=int)
    cpdef bint puback(self, Session session, int packet_id) except -1
    @cython.locals(window=Window, position="long long", state=int)
    cpdef bint pubrec(self, Session session, Connection connection, int packet_id, int code) except -1
    @cython.locals(connection=Connection, window=Window)
    cpdef object released(self, Session session, long long position)
    @cython.locals(window=Window, position="long long", state=int)
    cpdef bint pubcomp(self, Session session, int packet_id) except -1
