package iothub.hbase.queue;

/** What became of one operation; its code is the byte in the answer. */
enum Status {
  DONE, // 0
  GONE, // 1: no such queue
  STALE_EPOCH, // 2: the queue was claimed by another reader
  EXISTS, // 3: it cannot be created
  OLD_SEQUENCE, // 4: the same writer, or reader, has gone on since
  DAMAGED; // 5: the state of the queue is damaged

  int code() {
    return ordinal();
  }
}
