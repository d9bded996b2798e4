cimport cython

from iothub.engine.message cimport Message
from iothub.engine.outbox cimport QueueTarget, StoredPublish


@cython.locals(message=Message, target=QueueTarget, deliveries=list)
cpdef object append_of(StoredPublish publish, bytes body)


cpdef object inbound_of(StoredPublish publish)


cpdef bint is_appended_once(StoredPublish publish) except -1


@cython.locals(message=Message)
cpdef object retained_write(StoredPublish publish, bytes body)
