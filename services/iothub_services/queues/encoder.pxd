from libc.stdint cimport uint8_t, uint32_t, uint64_t

from iothub.engine.message cimport Message
from iothub.engine.outbox cimport QueueTarget


cdef uint32_t sum_of(const uint8_t *data, Py_ssize_t size)


cpdef Py_ssize_t body_size(Message message) except -1


cpdef bytes body_of(Message message)


cpdef Message message_of(bytes body)


cpdef object write_single(
    bytearray data, bytes mark, bytes message_id, bytes body, uint64_t expires_at_ms, QueueTarget target, uint64_t position
)


cpdef object write_message(
    bytearray data, bytes mark, bytes message_id, Message message, uint64_t expires_at_ms, QueueTarget target, uint64_t position
)
