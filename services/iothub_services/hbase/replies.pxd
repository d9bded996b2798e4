cimport cython

from iothub_services.hbase.thrift cimport Reader


cpdef bytes read_first_value(Reader reader)
@cython.locals(cells=dict)
cdef object _row(Reader reader)
@cython.locals(value=bytes)
cdef object _cell(Reader reader)
