"""HBase through its Thrift 1 gateway: the wire, a pipelined client on the reactor, callers for threads and tools, our tables."""
