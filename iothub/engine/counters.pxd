cimport cython


@cython.final
cdef class Counters:
    cdef public long long bytes_received, bytes_sent
    cdef public long long publish_received, puback_received, publish_sent, puback_sent
    cdef public long long received_0, received_1, received_2
    cdef public long long delivered_0, delivered_1, delivered_2
    cdef public long long blocks_received, blocks_delivered, fanout, turns
    cdef public list others_received, others_sent
    cdef public dict dropped

    cpdef object drop(self, object reason, long long count)
