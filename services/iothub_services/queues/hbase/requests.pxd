cimport cython

cdef Py_ssize_t _REQUEST_BYTES, _RESULT_BYTES, _OWNER_AT, _ONE_RUN_BYTES
cdef int _IS_FULL
cdef long long _TWO_31, _TWO_32

cpdef list request(object steps)

@cython.locals(total=Py_ssize_t, part=bytes, parts=list)
cpdef tuple append(object key, object writer, object sequence, tuple room, list records, tuple settled=*)

@cython.locals(at=Py_ssize_t, end=Py_ssize_t, runs="long long", kind=int, count="long long", drops="long long")
cpdef tuple appended_run(bytes raw, Py_ssize_t records)

cpdef bytes sized(bytes head, Py_ssize_t body_bytes)

@cython.locals(at=Py_ssize_t, start=Py_ssize_t, size=Py_ssize_t, results=list)
cpdef list answers(bytes raw)

@cython.locals(number="long long")
cdef long long _i32(bytes raw, Py_ssize_t at) except? -1
cdef long long _i64(bytes raw, Py_ssize_t at) except? -1
