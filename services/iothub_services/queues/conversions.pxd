cimport cython

from iothub.engine.message cimport Message
from iothub.engine.outbox cimport QueueTarget, StoredPublish


@cython.locals(message=Message)
cpdef bytes body_of(StoredPublish publish)


@cython.locals(target=QueueTarget, deliveries=list)
cpdef object append_of(StoredPublish publish, bytes body)


@cython.locals(message=Message)
cpdef object retained_write(StoredPublish publish, bytes body)
