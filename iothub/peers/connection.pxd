cimport cython

from iothub.peers.framing cimport FrameDecoder
from iothub.peers.numbered cimport NumberedFrames


@cython.final
cdef class Connection:
    cdef public object wire, dialled, node
    cdef public NumberedFrames link
    cdef public double deadline
    cdef bint _is_closed
    cdef object _judge
    cdef readonly FrameDecoder _decoder
    cdef object __weakref__

    @cython.locals(link=NumberedFrames, has_changed=bint, decoder=FrameDecoder)
    cpdef object received(self, bytes data)
    cdef object _take_frame(self, object frame_type, bytes body)
    cdef object _take_refusal(self, bytes body)
