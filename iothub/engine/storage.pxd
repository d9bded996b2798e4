cimport cython

from iothub.engine.answers cimport Answers
from iothub.engine.message cimport Message
from iothub.engine.outbound cimport Outbound
from iothub.engine.outbox cimport QueueTarget, StoredPublish
from iothub.engine.state cimport AckSlot, Connection, Session
from iothub.engine.turn cimport Turn
from iothub.engine.window cimport Window

cdef int FINISHING, FREE, REFUSED, ROUTED, STORING, UNSTORED


@cython.final
cdef class Storage:
    cdef public Turn turn
    cdef public Answers answers
    cdef public Outbound outbound

    @cython.locals(code=int, accepted=bint, session=Session)
    cpdef object stored(self, StoredPublish publish, tuple positions, bint is_duplicate)
    @cython.locals(message=Message, refused=Py_ssize_t, index=Py_ssize_t, target=QueueTarget, position="long long", session=Session, elsewhere=list)
    cdef bint _notify(self, StoredPublish publish, tuple positions) except -1
    @cython.locals(inbound=dict)
    cdef bint _routed(self, Session session, StoredPublish publish, int code) except -1
    @cython.locals(code=int)
    cpdef object not_stored(self, StoredPublish publish, bint is_written, bint is_final)
    @cython.locals(session=Session, connection=Connection, may_answer=bint, inbound=dict)
    cdef object _refuse(self, StoredPublish publish, int code, bint is_certain)
    @cython.locals(slot=AckSlot, connection=Connection)
    cdef object _answer(self, StoredPublish publish, int code)
    @cython.locals(turn=Turn, connection=Connection)
    cdef object _release(self, StoredPublish publish)
