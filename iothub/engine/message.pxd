cimport cython


@cython.final
@cython.freelist(1024)
cdef class Message:
    cdef public bytes topic, payload, properties, message_id
    cdef public int qos
    cdef public bint retain
    cdef public double expires_at
    cdef public object publisher, publisher_client_id
    cdef public Py_ssize_t size
    cdef public bytes frame3, frame3_identified, frame5, frame5_identified


@cython.locals(message=Message)
cpdef Message received(
    bytes topic, bytes payload, int qos, bint retain, bytes properties, double expires_at, object publisher, object publisher_client_id
)


cpdef Message copy_of(Message message)


cpdef long long blocks(Message message) except -1


@cython.final
@cython.freelist(256)
cdef class Delivery:
    cdef public Message message
    cdef public int qos
    cdef public bint retain, is_shared
    cdef public tuple identifiers
    cdef public long long position
    cdef public object group


@cython.locals(delivery=Delivery)
cpdef Delivery loaded(Message message, int qos, bint retain, tuple identifiers, long long position, bint is_shared)
