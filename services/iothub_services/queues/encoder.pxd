from libc.stdint cimport uint64_t

from iothub.engine.message cimport Message
from iothub.engine.outbox cimport QueueTarget


cpdef bytes encode_fields(
    bytes topic, bytes payload, int qos, bint is_retain, bytes properties, uint64_t expires_at_ms, bytes message_id, object client_id
)


cpdef Message message_of(bytes body)


cpdef object write_single(
    bytearray data, bytes mark, bytes message_id, bytes body, uint64_t expires_at_ms, QueueTarget target, uint64_t position
)
