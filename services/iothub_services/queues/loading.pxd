cimport cython

from iothub.engine.message cimport Message, loaded
from iothub_services.queues.encoder cimport message_of  # in the place of the plain one

cdef int _RETAIN, _SHARED


@cython.locals(found=list, position="long long", qos=int, flags=int, subscription_ids=tuple, body=bytes, message=Message)
cpdef list deliveries_of(object records, list damaged)
